//! Audits of the builds of a run: a build that differs from its variant is not measured.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Experiment, Finished, TestDir, call, finish, read_json};
use crate::outside::write_program;

/// A compiler wrapper that edits its arguments: `edit` is a line of shell run for each, in `$word`.
fn wrapped_gcc(test: &TestDir, edit: &str) -> String {
    let path = test.path().join("wrapped-gcc");
    let script = format!(
        "#!/bin/bash\nwords=()\nfor word in \"$@\"; do\n  {edit}\n  words+=(\"$word\")\ndone\n\
         exec gcc \"${{words[@]}}\"\n"
    );
    write_program(&path, &script);
    path.display().to_string()
}

/// Runs an experiment whose candidates are the variant `quick`, with a cache of its own.
fn run(test: &TestDir, out: &str, variant: &str, candidate: &str, checks: &str) -> Finished {
    let experiment = Experiment {
        candidates: &[("base", "")],
        more: &format!("[variant.quick]\n{variant}\n{checks}"),
        ..Experiment::default()
    };
    let text = experiment.text().replace("variant = \"o0\"\n", "variant = \"quick\"\nLINES\n");
    let text = text.replace("LINES", candidate);
    let mut command = crate::common::dbdyno();
    command.arg("run").arg(test.file(&text)).arg("--out").arg(test.path().join(out));
    command.arg("--cache").arg(cache(test));
    finish(command)
}

fn cache(test: &TestDir) -> PathBuf {
    test.path().join("cache")
}

fn only_build(cache: &Path) -> PathBuf {
    let entries = fs::read_dir(cache.join("builds")).unwrap();
    let builds: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(builds.len(), 1, "{builds:?}");
    builds[0].clone()
}

#[test]
fn dropped_optimization_level_is_refused_unless_ignored() {
    let test = TestDir::new();
    let compiler = wrapped_gcc(&test, "[ \"$word\" = -O3 ] && continue");
    let compiler = format!("compiler = \"{compiler}\"");
    let variant = "base = \"rel\"";
    let refused = run(&test, "refused", variant, &compiler, "");
    refused
        .assert_code(1)
        .assert_prints("candidate base: the build does not match its variant quick:")
        .assert_prints(
            "unoptimized (compiled without optimization), in 1 file: recorded: -O0, expected: -O3 \
             sqlite3.o",
        )
        .assert_prints("audit_ignore = [\"unoptimized\", \"compile-database-mismatch\"]");
    assert!(!refused.all().contains("blocks"), "nothing is measured: {}", refused.err);

    let allows =
        format!("{compiler}\naudit_ignore = [\"unoptimized\", \"compile-database-mismatch\"]");
    let allowed = run(&test, "allowed", variant, &allows, "");
    allowed
        .assert_code(0)
        .assert_prints("base: ignored findings: compile-database-mismatch (1), unoptimized (1)");
    assert!(allowed.err.contains("cached"), "{}", allowed.err);
    let page = fs::read_to_string(test.path().join("allowed/report.html")).unwrap();
    assert!(page.contains("ignored findings: compile-database-mismatch (1), unoptimized (1)"));

    // A candidate's own setting overrides the default.
    let checks = "[checks]\naudit_ignore = [\"unoptimized\", \"compile-database-mismatch\"]\n";
    run(&test, "by-default", variant, &compiler, checks).assert_code(0);
    let own = format!("{compiler}\naudit_ignore = [\"unoptimized\"]");
    run(&test, "own", variant, &own, checks)
        .assert_code(1)
        .assert_prints("compile-database-mismatch");

    // The same build, by name.
    let build = only_build(&cache(&test));
    let name = &build.file_name().unwrap().to_str().unwrap()[..10];
    let cache = cache(&test).display().to_string();
    let audit = |more: &[&str]| call([&["audit", name, "--cache", &cache], more].concat());
    audit(&[]).assert_code(1).assert_prints("It is not quick");
    audit(&["--variant", "o0"]).assert_prints("-O0").assert_prints("expected o0:");
    let expectations =
        ["--expect", "ignore=unoptimized", "--expect", "ignore=compile-database-mismatch"];
    audit(&expectations).assert_code(0).assert_prints("It is quick");
    let same = audit(&["--against", name]);
    same.assert_prints("compared 1 file, 1 with the same command line");
    audit(&["--linked", "x"]).assert_code(2).assert_prints("builds that dbdyno did not make");
}

#[test]
#[ignore = "full"]
fn extra_flags_change_what_is_expected() {
    let test = TestDir::new();
    let flags = "flags = [\"-O1\", \"-march=x86-64-v2\"]";
    let ran = run(&test, "ran", "base = \"o0\"", flags, "");
    ran.assert_code(0).assert_prints("-O1; LTO none; march x86-64-v2; assertions off");
}

#[test]
fn audit_is_cached_and_repeated_for_another_version() {
    let test = TestDir::new();
    let variant = "base = \"o0\"";
    run(&test, "first", variant, "", "").assert_code(0);
    let file = only_build(&cache(&test)).join("audit.json");
    let text = fs::read_to_string(&file).unwrap();
    let written = || fs::metadata(&file).unwrap().modified().unwrap();
    let before = written();
    run(&test, "second", variant, "", "").assert_code(0);
    assert_eq!(written(), before);
    let whole: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(whole["audit"]["objects"][0]["effective"]["optimization"], "O0");
    let version = whole["version"].as_u64().unwrap();
    let field = |version: u64| format!("\"version\":{version}");
    let old = text.replacen(&field(version), &field(version - 1), 1);
    assert_ne!(old, text);
    for spoiled in [old.as_str(), &text[..text.len() / 2]] {
        fs::write(&file, spoiled).unwrap();
        run(&test, "third", variant, "", "").assert_code(0);
        fs::remove_dir_all(test.path().join("third")).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
    // Without objects, only the library can be audited.
    fs::remove_file(&file).unwrap();
    fs::remove_file(file.with_file_name("sqlite3.o")).unwrap();
    let alone = run(&test, "alone", variant, "", "");
    alone.assert_code(0).assert_prints("base: read from the linked file only");
}

#[test]
#[ignore = "full"]
fn report_shows_differences_of_command_lines() {
    let test = TestDir::new();
    let experiment = Experiment {
        candidates: &[("base", ""), ("other", "flags = [\"-fno-plt\"]")],
        ..Experiment::default()
    };
    let ran = test.run(&experiment, &[]);
    ran.assert_code(0)
        .assert_prints("candidate other: with -fno-plt")
        .assert_prints("in all: 1 object; -O0; LTO none")
        .assert_prints("command lines against base other 1 file: added -fno-plt");
    let run = read_json(&fs::read_to_string(test.out().join("run.json")).unwrap());
    let audit = &run["candidates"][1]["build"]["audit"];
    assert_eq!(audit["objects"], 1);
    assert_eq!(audit["against_baseline"]["kinds"][0]["added"][0], "-fno-plt");
}

#[test]
fn unknown_build_name_is_explained() {
    let test = TestDir::new();
    let cache = cache(&test).display().to_string();
    let audit = |name: &str| call(["audit", name, "--cache", &cache]);
    audit("abc123").assert_code(2).assert_prints("no build of this name in");
    audit("no-such").assert_code(2).assert_prints("no file `no-such`");
}
