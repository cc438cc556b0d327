//! What an experiment says of compiling, and how mistakes in it are shown.

use std::path::PathBuf;

use dbdyno_record::FlagCheck;
use dbdyno_spec::experiment::{BoltProfile, Build, ConfigureTool, Source};
use dbdyno_spec::{Known, parse};

const KNOWN: Known<'static> = Known {
    variants: &["rel_withdbg", "rel", "rel_pgo", "rel_autofdo", "rel_bolt"],
    checks: &["unoptimized", "lto-partial", "march-leaked"],
};

const START: &str = "name = 'x'\nbaseline = 'a'\n[workload]\nmicrobenchmarks = ['all']\n";

/// The build of the candidate `a` in an experiment with these lines.
fn build(lines: &str) -> Build {
    let experiment = parse("test.toml", &format!("{START}{lines}"), &KNOWN);
    let experiment = experiment.unwrap_or_else(|problems| panic!("{problems}"));
    experiment.candidates[0].system.build().expect("it is compiled").clone()
}

fn problems(lines: &str) -> String {
    match parse("test.toml", &format!("{START}{lines}"), &KNOWN) {
        Ok(_) => "none".to_owned(),
        Err(problems) => problems.to_string(),
    }
}

fn candidate(lines: &str) -> String {
    format!("[[candidate]]\nname = 'a'\nsystem = 'postgresql'\n{lines}")
}

#[test]
fn the_source_is_the_candidates_or_the_systems_or_everybodys() {
    let of_all = "[source]\npath = '/all'\n";
    let of_system = "[postgresql]\nsource = { debian = 'postgresql-15', suite = 'bookworm' }\n";
    let own = candidate("variant = 'rel'\nsource = { git = 'https://x/y', revision = 'v1' }");
    let none = candidate("variant = 'rel'");
    let git = Source::Git { url: "https://x/y".to_owned(), revision: "v1".to_owned() };
    assert_eq!(build(&format!("{of_all}{of_system}{own}")).source, git);
    let debian = Source::Debian {
        package: "postgresql-15".to_owned(),
        suite: "bookworm".to_owned(),
        version: None,
    };
    assert_eq!(build(&format!("{of_all}{of_system}{none}")).source, debian);
    assert_eq!(build(&format!("{of_all}{none}")).source, Source::Path(PathBuf::from("/all")));
}

#[test]
fn a_variant_of_the_experiment_says_what_differs() {
    let lines = "[variant.mine]\nbase = 'rel_withdbg'\nlto = 'thin'\ncompiler = 'clang-19'\n\
                 frame_pointers = true\nflags = ['-fno-plt']\n";
    let source = "source = { path = '/s' }";
    let built = build(&format!("{lines}{}", candidate(&format!("variant = 'mine'\n{source}"))));
    let settings = built.settings.expect("the experiment defines it");
    assert_eq!(settings.base, "rel_withdbg");
    assert_eq!(settings.lto.as_deref(), Some("thin"));
    assert_eq!(settings.frame_pointers, Some(true));
    assert_eq!(settings.optimization, None);
    assert_eq!(built.compiler, "clang-19");
    let named = candidate(&format!("variant = 'mine'\ncompiler = 'gcc-12'\n{source}"));
    assert_eq!(build(&format!("{lines}{named}")).compiler, "gcc-12");
}

#[test]
fn what_configures_can_be_told_more() {
    let lines = "variant = 'rel'\nsource = { path = '/s' }\nconfigure_with = 'meson'\n\
                 configure = ['-Dblocksize=16']";
    let built = build(&candidate(lines));
    assert_eq!(built.configure_with, Some(ConfigureTool::Meson));
    assert_eq!(built.configure, ["-Dblocksize=16"]);
}

#[test]
fn a_server_without_a_variant_is_not_compiled() {
    let text = format!("{START}[source]\npath = '/all'\n{}", candidate(""));
    let experiment = parse("test.toml", &text, &KNOWN).expect("it is valid");
    assert!(experiment.candidates[0].system.build().is_none());
}

#[test]
fn mistakes_are_shown_with_what_to_do() {
    let source =
        |source: &str| problems(&candidate(&format!("variant = 'rel'\nsource = {source}")));
    let shows = |text: String, wanted: &str| assert!(text.contains(wanted), "{text}");
    shows(problems(&candidate("variant = 'rel'")), "its source is not named");
    shows(source("{ bundled = true }"), "its source is not named");
    shows(source("{}"), "it has exactly one of bundled, path, tarball, git, debian");
    shows(source("{ path = 's' }"), "the source must be a whole path");
    shows(source("{ tarball = 'https://x/y.tar' }"), "a download needs its checksum");
    shows(source("{ tarball = '/x.tar', sha256 = '12' }"), "it has 64 digits");
    shows(source("{ git = 'https://x/y' }"), "missing key `revision`");
    shows(source("{ git = 'https://x/y', revision = '--all' }"), "`--all` is no revision");
    shows(source("{ debian = 'a' }"), "missing key `suite`");
    shows(source("{ debian = 'a', suite = 'buster' }"), "bookworm is the oldest suite");
    shows(source("{ debian = 'a b', suite = 'sid' }"), "`a b` cannot be a name in Debian");
    shows(source("{ path = '/s', sweet = 'sid' }"), "unknown key `sweet`");
    shows(
        problems(&candidate("variant = 'rel'\nprogram = '/p'\nsource = { path = '/s' }")),
        "leave out `program` or `variant`",
    );
    let variant = |lines: &str| problems(&format!("[variant.mine]\n{lines}\n{}", candidate("")));
    shows(variant("base = 'rell'"), "`rell` is no built-in variant");
    shows(variant("lto = 'thick'"), "`off`, `full`, `thin`, `fat`");
    shows(variant("march = 'native -O0'"), "cannot be the value of `march`");
    shows(variant("optimisation = 'O2'"), "did you mean `optimization`");
    shows(problems("[variant.rel]\nlto = 'full'\n"), "`rel` is a built-in variant");
}

#[test]
fn a_profile_is_collected_from_what_the_experiment_names() {
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
    let shows = |text: String, wanted: &str| assert!(text.contains(wanted), "{text}");
    shows(problems(&lines("")), "`rel_pgo` needs a `training`");
    shows(problems(&lines("training = ['pont-1']")), "pont-1");
    shows(problems(&lines("training = ['writes', '!writes']")), "`training` selects nothing");
    let without = candidate("variant = 'rel'\nsource = { path = '/s' }\ntraining = ['all']");
    shows(problems(&without), "its variant would be one of: rel_pgo, rel_autofdo, rel_bolt");
    let bolt = candidate("variant = 'rel_bolt'\nsource = { path = '/s' }\ntraining = ['writes']");
    assert!(build(&bolt).training.is_some());
    let sampled = "variant = 'rel_autofdo'\nsource = { path = '/s' }\ntraining = ['all']";
    assert!(build(&candidate(sampled)).training.is_some());
    let untrained = candidate("variant = 'rel_bolt'\nsource = { path = '/s' }");
    let by = |word: &str| format!("{}\nbolt_profile = '{word}'", bolt.trim_end());
    let collected = |text: &str| build(text).training.unwrap().bolt_profile;
    assert_eq!(collected(&bolt), BoltProfile::Instrumentation);
    assert_eq!(collected(&by("samples")), BoltProfile::Samples);
    shows(problems(&by("sample")), "samples");
    let other = "variant = 'rel_pgo'\nsource = { path = '/s' }\ntraining = ['all']\n\
                 bolt_profile = 'samples'";
    shows(problems(&candidate(other)), "is for candidates that BOLT lays out");
    shows(problems(&untrained), "`rel_bolt` needs a `training`");
}

#[test]
fn what_the_audit_ignore_is_the_candidates_or_everybodys() {
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
fn an_unknown_check_gets_the_nearest_name() {
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
fn nothing_is_allowed_of_what_is_not_compiled() {
    let text = problems(&candidate("audit_ignore = ['unoptimized']"));
    assert!(text.contains("`audit_ignore` is for systems that dbdyno compiles"), "{text}");
}
