//! Builds of a run are audited: one that is not what its name says is not measured.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::common::{Experiment, Lab, Said, call, read_json, said};

/// A compiler that edits its arguments before the real one sees them: `edit` is a line of shell
/// for each of them, in `$word`.
fn tampered(lab: &Lab, edit: &str) -> String {
    let path = lab.path().join("tampered-gcc");
    let script = format!(
        "#!/bin/bash\nwords=()\nfor word in \"$@\"; do\n  {edit}\n  words+=(\"$word\")\ndone\n\
         exec gcc \"${{words[@]}}\"\n"
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// Runs an experiment whose candidates are the variant `quick`, with a cache of its own.
fn run(lab: &Lab, out: &str, variant: &str, candidate: &str, checks: &str) -> Said {
    let experiment = Experiment {
        candidates: &[("base", "")],
        more: &format!("[variant.quick]\n{variant}\n{checks}"),
        ..Experiment::default()
    };
    let text = experiment.text().replace("variant = \"o0\"\n", "variant = \"quick\"\nLINES\n");
    let text = text.replace("LINES", candidate);
    let mut command = crate::common::dbdyno();
    command.arg("run").arg(lab.file(&text)).arg("--out").arg(lab.path().join(out));
    command.arg("--cache").arg(cache(lab));
    said(command)
}

fn cache(lab: &Lab) -> PathBuf {
    lab.path().join("cache")
}

fn only_build(cache: &Path) -> PathBuf {
    let entries = fs::read_dir(cache.join("builds")).unwrap();
    let builds: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(builds.len(), 1, "{builds:?}");
    builds[0].clone()
}

#[test]
fn dropped_optimization_level_is_refused_unless_ignored() {
    let lab = Lab::new();
    let compiler = tampered(&lab, "[ \"$word\" = -O3 ] && continue");
    let compiler = format!("compiler = \"{compiler}\"");
    let variant = "base = \"rel\"";
    let refused = run(&lab, "refused", variant, &compiler, "");
    refused
        .assert_code(1)
        .assert_says("candidate base: the build does not match its variant quick:")
        .assert_says(
            "unoptimized (compiled without optimization), in 1 file: recorded: -O0, expected: -O3 \
             sqlite3.o",
        )
        .assert_says("audit_ignore = [\"unoptimized\", \"compile-database-mismatch\"]");
    assert!(!refused.all().contains("blocks"), "nothing is measured: {}", refused.err);

    let allows =
        format!("{compiler}\naudit_ignore = [\"unoptimized\", \"compile-database-mismatch\"]");
    let allowed = run(&lab, "allowed", variant, &allows, "");
    allowed
        .assert_code(0)
        .assert_says("base: ignored findings: compile-database-mismatch (1), unoptimized (1)");
    assert!(allowed.err.contains("cached"), "{}", allowed.err);
    let page = fs::read_to_string(lab.path().join("allowed/report.html")).unwrap();
    assert!(page.contains("ignored findings: compile-database-mismatch (1), unoptimized (1)"));

    // What holds for all is no word against what a candidate says itself.
    let checks = "[checks]\naudit_ignore = [\"unoptimized\", \"compile-database-mismatch\"]\n";
    run(&lab, "by-default", variant, &compiler, checks).assert_code(0);
    let own = format!("{compiler}\naudit_ignore = [\"unoptimized\"]");
    run(&lab, "own", variant, &own, checks).assert_code(1).assert_says("compile-database-mismatch");

    // The same build by its name.
    let build = only_build(&cache(&lab));
    let name = &build.file_name().unwrap().to_str().unwrap()[..10];
    let cache = cache(&lab).display().to_string();
    let audit = |more: &[&str]| call([&["audit", name, "--cache", &cache], more].concat());
    audit(&[]).assert_code(1).assert_says("It is not quick");
    audit(&["--variant", "o0"]).assert_says("-O0").assert_says("expected o0:");
    let expectations =
        ["--expect", "ignore=unoptimized", "--expect", "ignore=compile-database-mismatch"];
    audit(&expectations).assert_code(0).assert_says("It is quick");
    let same = audit(&["--against", name]);
    same.assert_says("compared 1 file, 1 with the same command line");
    audit(&["--linked", "x"]).assert_code(2).assert_says("builds that dbdyno did not make");
}

#[test]
fn leaked_instruction_set_is_refused() {
    let lab = Lab::new();
    let compiler = tampered(&lab, "[ \"$word\" = -O0 ] && words+=(-march=haswell)");
    let compiler = format!("compiler = \"{compiler}\"");
    let refused = run(&lab, "refused", "base = \"o0\"", &compiler, "");
    refused
        .assert_code(1)
        .assert_says("march-leaked (unexpected instruction set), in 1 file")
        .assert_says("recorded: -march=haswell, expected: the baseline sqlite3.o");
}

#[test]
fn build_without_requested_lto_is_refused() {
    let lab = Lab::new();
    let compiler = tampered(&lab, "[[ \"$word\" = -flto* ]] && continue");
    let compiler = format!("compiler = \"{compiler}\"");
    let variant = "base = \"rel_lto\"\noptimization = \"O0\"";
    let refused = run(&lab, "refused", variant, &compiler, "");
    refused
        .assert_code(1)
        .assert_says("lto-missing (no link-time optimization), in 1 file")
        .assert_says("recorded: none, expected: on");
}

#[test]
fn extra_flags_change_what_is_expected() {
    let lab = Lab::new();
    let flags = "flags = [\"-O1\", \"-march=x86-64-v2\"]";
    let ran = run(&lab, "ran", "base = \"o0\"", flags, "");
    ran.assert_code(0).assert_says("-O1; LTO none; march x86-64-v2; assertions off");
}

#[test]
fn audit_is_cached_and_repeated_for_another_version() {
    let lab = Lab::new();
    let variant = "base = \"o0\"";
    run(&lab, "first", variant, "", "").assert_code(0);
    let file = only_build(&cache(&lab)).join("audit.json");
    let text = fs::read_to_string(&file).unwrap();
    let written = || fs::metadata(&file).unwrap().modified().unwrap();
    let before = written();
    run(&lab, "second", variant, "", "").assert_code(0);
    assert_eq!(written(), before);
    let whole: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(whole["audit"]["objects"][0]["effective"]["optimization"], "O0");
    let old = text.replacen("\"version\":1", "\"version\":0", 1);
    for spoiled in [old.as_str(), &text[..text.len() / 2]] {
        fs::write(&file, spoiled).unwrap();
        run(&lab, "third", variant, "", "").assert_code(0);
        fs::remove_dir_all(lab.path().join("third")).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
    // Without its objects the library itself is all there is to read.
    fs::remove_file(&file).unwrap();
    fs::remove_file(file.with_file_name("sqlite3.o")).unwrap();
    let alone = run(&lab, "alone", variant, "", "");
    alone.assert_code(0).assert_says("base: read from the linked file alone");
}

#[test]
fn report_shows_differences_of_command_lines() {
    let lab = Lab::new();
    let experiment = Experiment {
        candidates: &[("base", ""), ("other", "flags = [\"-fno-plt\"]")],
        ..Experiment::default()
    };
    let ran = lab.run(&experiment, &[]);
    ran.assert_code(0)
        .assert_says("in all: 1 object; -O0; LTO none")
        .assert_says("command lines against base other 1 file + -fno-plt");
    let run = read_json(&fs::read_to_string(lab.out().join("run.json")).unwrap());
    let audit = &run["candidates"][1]["build"]["audit"];
    assert_eq!(audit["objects"], 1);
    assert_eq!(audit["against_baseline"]["kinds"][0]["added"][0], "-fno-plt");
}

#[test]
fn unknown_build_name_is_explained() {
    let lab = Lab::new();
    let cache = cache(&lab).display().to_string();
    let audit = |name: &str| call(["audit", name, "--cache", &cache]);
    audit("abc123").assert_code(2).assert_says("no build of this name in");
    audit("no-such").assert_code(2).assert_says("no file `no-such`");
}
