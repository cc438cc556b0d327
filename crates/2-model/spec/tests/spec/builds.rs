//! Keys about compiling, and problems in them.

use std::path::PathBuf;

use dbdyno_spec::experiment::Build;
use dbdyno_spec::parse;
use dbdyno_types::FlagCheck;
use dbdyno_types::build::{
    BoltProfileMethod, ConfigureTool, Lto, Optimization, Pgo, SourceOrigin, Variant,
};

const START: &str = "name = 'x'\nbaseline = 'a'\n[workload]\nmicrobenchmarks = ['all']\n";

/// The build of the candidate `a` in an experiment with these lines.
fn build(lines: &str) -> Build {
    let experiment = parse("test.toml", &format!("{START}{lines}"));
    let experiment = experiment.unwrap_or_else(|problems| panic!("{problems}"));
    experiment.candidates[0].system.build().expect("it is compiled").clone()
}

fn problems(lines: &str) -> String {
    match parse("test.toml", &format!("{START}{lines}")) {
        Ok(_) => "none".to_owned(),
        Err(problems) => problems.to_string(),
    }
}

fn candidate(lines: &str) -> String {
    format!("[[candidate]]\nname = 'a'\nsystem = 'postgresql'\n{lines}")
}

#[test]
fn source_of_candidate_precedes_system_and_experiment() {
    let of_all = "[source]\npath = '/all'\n";
    let of_system = "[postgresql]\nsource = { debian = 'postgresql-15', suite = 'bookworm' }\n";
    let own = candidate("variant = 'rel'\nsource = { git = 'https://x/y', revision = 'v1' }");
    let none = candidate("variant = 'rel'");
    let git = SourceOrigin::Git { url: "https://x/y".to_owned(), revision: "v1".to_owned() };
    assert_eq!(build(&format!("{of_all}{of_system}{own}")).source, git);
    let debian = SourceOrigin::Debian {
        package: "postgresql-15".to_owned(),
        suite: "bookworm".to_owned(),
        version: None,
    };
    assert_eq!(build(&format!("{of_all}{of_system}{none}")).source, debian);
    assert_eq!(build(&format!("{of_all}{none}")).source, SourceOrigin::Path(PathBuf::from("/all")));
}

#[test]
fn defined_variant_has_its_overrides() {
    let lines = "[variant.mine]\nbase = 'rel_withdbg'\nlto = 'thin'\ncompiler = 'clang-19'\n\
                 frame_pointers = true\nflags = ['-fno-plt']\n";
    let source = "source = { path = '/s' }";
    let built = build(&format!("{lines}{}", candidate(&format!("variant = 'mine'\n{source}"))));
    let settings = built.settings.expect("the experiment defines it");
    assert_eq!(settings.base, "rel_withdbg");
    assert_eq!(settings.lto, Some(Lto::Thin));
    assert_eq!(settings.frame_pointers, Some(true));
    assert_eq!(settings.optimization, None);
    assert_eq!(built.compiler, "clang-19");
    let named = candidate(&format!("variant = 'mine'\ncompiler = 'gcc-12'\n{source}"));
    assert_eq!(build(&format!("{lines}{named}")).compiler, "gcc-12");
}

#[test]
fn configure_tool_and_arguments_are_read() {
    let lines = "variant = 'rel'\nsource = { path = '/s' }\nconfigure_with = 'meson'\n\
                 configure = ['-Dblocksize=16']";
    let built = build(&candidate(lines));
    assert_eq!(built.configure_with, Some(ConfigureTool::Meson));
    assert_eq!(built.configure, ["-Dblocksize=16"]);
}

#[test]
fn server_without_variant_is_not_compiled() {
    let text = format!("{START}[source]\npath = '/all'\n{}", candidate(""));
    let experiment = parse("test.toml", &text).expect("it is valid");
    assert!(experiment.candidates[0].system.build().is_none());
}

#[test]
fn build_problems_have_help() {
    let source =
        |source: &str| problems(&candidate(&format!("variant = 'rel'\nsource = {source}")));
    let shows = |text: String, part: &str| assert!(text.contains(part), "{text}");
    shows(problems(&candidate("variant = 'rel'")), "missing `source`");
    shows(source("{ bundled = true }"), "missing `source`");
    shows(source("{}"), "set exactly one of bundled, path, tarball, git, debian");
    shows(source("{ path = 's' }"), "the path of a source must be absolute");
    shows(source("{ tarball = 'https://x/y.tar' }"), "missing `sha256`");
    shows(source("{ tarball = '/x.tar', sha256 = '12' }"), "64 digits");
    shows(source("{ git = 'https://x/y' }"), "missing key `revision`");
    shows(source("{ git = 'https://x/y' }"), "such as `revision = \"v1.0\"`");
    shows(source("{ git = 'https://x/y', revision = '--all' }"), "invalid revision `--all`");
    for path in ["../pg", "pg", "~/pg", "./a:b"] {
        let git = source(&format!("{{ git = '{path}', revision = 'v1' }}"));
        shows(git, "the path of a repository must be absolute");
    }
    shows(source("{ debian = 'a' }"), "missing key `suite`");
    shows(source("{ debian = 'a' }"), "such as `suite = \"bookworm\"`");
    shows(source("{ debian = 'a', suite = 'buster' }"), "use bookworm or newer");
    shows(source("{ debian = 'a', suite = 'bookwrm' }"), "did you mean `bookworm`?");
    shows(source("{ debian = 'a', suite = 'stable' }"), "none");
    shows(source("{ debian = 'a b', suite = 'sid' }"), "invalid Debian name `a b`");
    shows(source("{ path = '/s', sweet = 'sid' }"), "unknown key `sweet`");
    shows(
        problems(&candidate("variant = 'rel'\nprogram = '/p'\nsource = { path = '/s' }")),
        "remove `program` or `variant`",
    );
    let variant = |lines: &str| problems(&format!("[variant.mine]\n{lines}\n{}", candidate("")));
    shows(variant("base = 'rell'"), "unknown preset `rell`");
    for (name, near) in
        [("rel_o3", "rel"), ("rel_03", "rel"), ("rel_O3_lto", "rel_lto"), ("-O3", "rel")]
    {
        let help = format!("did you mean `{near}`, which is compiled with -O3?");
        shows(problems(&candidate(&format!("variant = '{name}'"))), &help);
        shows(variant(&format!("base = '{name}'")), &help);
    }
    shows(problems(&candidate("variant = 'rel_02'")), "did you mean `rel_o2`?");
    shows(problems(&candidate("variant = 'O2'")), "did you mean `rel_o2`?");
    let with_setting = problems(&candidate("variant = 'O2'\nlinker = 'mold'"));
    assert!(!with_setting.contains("unknown key"), "{with_setting}");
    shows(variant("base = 'fastest'"), "`dbdyno list variants` prints the presets");
    shows(problems(&candidate("variant = 'fastest'")), "`dbdyno list variants` prints the presets");
    shows(variant("lto = 'thick'"), "`off`, `full`, `thin`, `fat`");
    shows(variant("march = 'native -O0'"), "invalid value of `march`");
    shows(variant("optimisation = 'O2'"), "did you mean `optimization`");
    shows(problems("[variant.rel]\nlto = 'full'\n"), "`rel` is the name of a preset");
}

#[test]
fn problem_of_a_variant_is_reported_once() {
    for (name, lines) in [("mine", "base = 'rell'"), ("a b", "lto = 'full'")] {
        let used = candidate(&format!("variant = '{name}'\nsource = {{ path = '/s' }}"));
        let shown = problems(&format!("[variant.'{name}']\n{lines}\n{used}"));
        assert_eq!(shown.matches("error:").count(), 1, "{shown}");
    }
}

#[test]
fn password_in_the_url_of_a_source_is_rejected_and_not_shown() {
    let sha256 = "a".repeat(64);
    for source in [
        "git = 'https://me:geheim@host/x.git', revision = 'v1'".to_owned(),
        format!("tarball = 'https://me:geheim@host/x.tgz', sha256 = '{sha256}'"),
    ] {
        let shown = problems(&candidate(&format!("variant = 'rel'\nsource = {{ {source} }}")));
        assert!(shown.contains("the URL contains a password"), "{shown}");
        assert!(shown.contains("me:******@host") && !shown.contains("geheim"), "{shown}");
    }
    let token = "git = 'https://token@host/x.git', revision = 'v1'";
    let shown = problems(&candidate(&format!("variant = 'rel'\nsource = {{ {token} }}")));
    assert!(shown.contains("the URL contains a user"), "{shown}");
    for url in ["ssh://git@host:22/~me/a@b:c.git", "git@host:a/b.git", "/srv/a.git"] {
        let git = format!("git = '{url}', revision = 'v1'");
        build(&candidate(&format!("variant = 'rel'\nsource = {{ {git} }}")));
    }
}

#[test]
fn training_selects_microbenchmarks() {
    let lines = |training: &str| {
        candidate(&format!("variant = 'rel_pgo'\nsource = {{ path = '/s' }}\n{training}"))
    };
    let training = build(&lines("training = ['point-1', 'writes', '!insert*']")).training;
    let names: Vec<String> = training
        .expect("it has a training")
        .microbenchmarks
        .into_iter()
        .map(|one| one.name)
        .collect();
    assert!(names.iter().any(|name| name.starts_with("update-index")), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("insert")), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("scan")), "{names:?}");
    let shows = |text: String, part: &str| assert!(text.contains(part), "{text}");
    shows(problems(&lines("")), "missing `training`: `rel_pgo` uses a profile");
    shows(problems(&lines("training = ['pont-1']")), "pont-1");
    shows(problems(&lines("training = ['pont-1', '!writse']")), "writse");
    shows(problems(&lines("training = ['writes', '!writes']")), "`training` selects nothing");
    let without = candidate("variant = 'rel'\nsource = { path = '/s' }\ntraining = ['all']");
    shows(problems(&without), "applies to candidates with a profile only");
    let bolt = candidate("variant = 'rel_bolt'\nsource = { path = '/s' }\ntraining = ['writes']");
    assert!(build(&bolt).training.is_some());
    let sampled = "variant = 'rel_autofdo'\nsource = { path = '/s' }\ntraining = ['all']";
    assert!(build(&candidate(sampled)).training.is_some());
    let untrained = candidate("variant = 'rel_bolt'\nsource = { path = '/s' }");
    let by = |word: &str| format!("{}\nbolt_profile = '{word}'", bolt.trim_end());
    let collected = |text: &str| build(text).training.unwrap().bolt_profile;
    assert_eq!(collected(&bolt), BoltProfileMethod::Instrumentation);
    assert_eq!(collected(&by("samples")), BoltProfileMethod::Samples);
    shows(problems(&by("sample")), "samples");
    let other = "variant = 'rel_pgo'\nsource = { path = '/s' }\ntraining = ['all']\n\
                 bolt_profile = 'samples'";
    shows(problems(&candidate(other)), "applies to candidates that BOLT optimizes only");
    shows(problems(&untrained), "missing `training`: `rel_bolt` uses a profile");
}

#[test]
fn audit_ignore_of_candidate_precedes_checks_section() {
    let of_all = "[checks]\naudit_ignore = ['march-leaked']\n";
    let source = "variant = 'rel'\nsource = { path = '/s' }\n";
    let none = candidate(source);
    let own = candidate(&format!("{source}audit_ignore = ['unoptimized', 'lto-partial']"));
    let strict = candidate(&format!("{source}audit_ignore = []"));
    assert!(build(&none).audit_ignore.is_empty());
    assert_eq!(build(&format!("{of_all}{none}")).audit_ignore, [FlagCheck::MarchLeaked]);
    let allowed = build(&format!("{of_all}{own}")).audit_ignore;
    assert_eq!(allowed, [FlagCheck::Unoptimized, FlagCheck::LtoPartial]);
    assert!(build(&format!("{of_all}{strict}")).audit_ignore.is_empty());
}

#[test]
fn unknown_check_suggests_the_nearest_name() {
    let source = "variant = 'rel'\nsource = { path = '/s' }\n";
    let own = candidate(&format!("{source}audit_ignore = ['march_leaked']"));
    let text = problems(&own);
    assert!(text.contains("unknown check `march_leaked`"), "{text}");
    assert!(text.contains("did you mean `march-leaked`?"), "{text}");
    let of_all = format!("[checks]\naudit_ignore = ['unoptimised']\n{}", candidate(source));
    let text = problems(&of_all);
    assert!(text.contains("did you mean `unoptimized`?"), "{text}");
}

#[test]
fn audit_ignore_needs_a_compiled_system() {
    let text = problems(&candidate("audit_ignore = ['unoptimized']"));
    assert!(text.contains("`audit_ignore` applies to systems that dbdyno compiles only"), "{text}");
}

/// The settings of a preset as a candidate's keys, without `variant`.
fn settings_of(preset: &Variant) -> String {
    let mut keys = format!(
        "build_type = '{}'\noptimization = '{}'\ndebug = {}\nlto = '{}'\npgo = '{}'\n",
        preset.build_type, preset.optimization, preset.debug, preset.lto, preset.pgo
    );
    if preset.march.is_some() {
        keys += "native = true\n";
    }
    if preset.bolt {
        keys += "bolt = true\n";
    }
    if preset.pgo != Pgo::Off || preset.bolt {
        keys += "training = ['all']\n";
    }
    keys
}

#[test]
fn settings_of_each_preset_resolve_to_that_preset() {
    for preset in Variant::all() {
        let source = "source = { path = '/s' }\n";
        let built = build(&candidate(&format!("{source}{}", settings_of(&preset))));
        assert_eq!((built.variant.as_str(), &built.settings), (preset.name.as_str(), &None));
        assert_eq!(built.resolved_variant().unwrap(), preset);
        let training =
            if preset.pgo != Pgo::Off || preset.bolt { "training = ['all']" } else { "" };
        let named = format!("{source}variant = '{}'\n{training}", preset.name);
        assert_eq!(build(&candidate(&named)).resolved_variant().unwrap(), preset);
    }
}

#[test]
fn settings_override_the_variant() {
    let source = "source = { path = '/s' }\n";
    let own = format!("{source}variant = 'rel_lto'\noptimization = 'Os'\nmarch = 'x86-64-v3'");
    let built = build(&candidate(&own));
    assert_eq!(built.variant, "rel_lto+Os+x86-64-v3");
    let variant = built.resolved_variant().unwrap();
    assert_eq!((variant.optimization, variant.lto), (Optimization::Os, Lto::Full));
    let mine = "[variant.mine]\nbase = 'rel_o2'\npgo = 'sample'\nflags = ['-fno-plt']\n";
    let own = format!("{source}variant = 'mine'\nlto = 'thin'\ntraining = ['all']");
    let built = build(&format!("{mine}{}", candidate(&own)));
    let variant = built.resolved_variant().unwrap();
    assert_eq!(variant.name, "mine+lto-thin");
    assert_eq!((variant.pgo, variant.lto), (Pgo::Sample, Lto::Thin));
    assert_eq!(variant.extra_flags, ["-fno-plt"]);
}

#[test]
fn unknown_values_of_all_settings_are_reported() {
    let keys = ["build_type", "optimization", "lto", "hardening", "packaging", "pgo", "linker"];
    for key in keys {
        let own = format!("variant = 'rel'\nsource = {{ path = '/s' }}\n{key} = 'nonsense'");
        let text = problems(&candidate(&own));
        assert!(text.contains(&format!("unknown `{key}`: `nonsense`")), "{text}");
        let text = problems(&format!("[variant.mine]\n{key} = 'nonsense'\n{}", candidate("")));
        assert!(text.contains(&format!("unknown `{key}`: `nonsense`")), "{text}");
    }
}

#[test]
fn bolt_is_enabled_by_setting_and_disabled_in_a_preset() {
    let source = "source = { path = '/s' }\ntraining = ['all']\n";
    let with = build(&candidate(&format!("{source}variant = 'rel_pgo'\nbolt = true")));
    assert_eq!((with.variant.as_str(), with.bolt), ("rel_pgo_bolt", true));
    let alone = build(&candidate(&format!("{source}bolt = true")));
    assert_eq!((alone.variant.as_str(), alone.bolt), ("rel_bolt", true));
    let linked = build(&candidate(&format!("{source}variant = 'rel_pgo_bolt'\nbolt = false")));
    assert_eq!((linked.variant.as_str(), linked.bolt), ("rel_pgo_bolt", false));
    let text = problems(&candidate(&format!("{source}variant = 'rel_pgo'\nbolt = false")));
    assert!(text.contains("applies to candidates that BOLT optimizes only"), "{text}");
}
