//! `dbdyno audit`: what it prints, and how it ends.

use std::path::Path;
use std::process::Command;

use crate::common::{Lab, call};

/// Compiles a source file of this directory.
#[track_caller]
fn compile(lab: &Lab, flags: &str, object: &str) {
    std::fs::write(lab.path().join("a.c"), "int f(int x) { return x + 1; }\n").unwrap();
    let done = Command::new("gcc")
        .args(flags.split(' '))
        .args(["-c", "a.c", "-o", object])
        .current_dir(lab.path())
        .status()
        .expect("gcc is not installed: scripts/setup.sh");
    assert!(done.success());
}

fn words<'a>(path: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec!["audit", path.to_str().unwrap()];
    words.extend(more);
    words
}

#[test]
fn audit_compares_a_build_with_its_variant() {
    let lab = Lab::new();
    compile(&lab, "-g -O3", "a.o");
    call(words(lab.path(), &["--variant", "rel"])).assert_code(0).assert_says("It is rel");
    let said = call(words(lab.path(), &["--variant", "rel_lto"]));
    said.assert_code(1).assert_says("no link-time optimization, 1 object");
    assert!(said.out.lines().all(|line| line.chars().count() <= 80), "{}", said.out);
    let allowed = ["--variant", "rel_lto", "--want", "allow=lto-missing"];
    call(words(lab.path(), &allowed))
        .assert_code(0)
        .assert_says("ignoring lto-missing")
        .assert_says("`--want` is deprecated: use `--expect`");
}

#[test]
fn audit_json_can_be_the_baseline() {
    let (lab, baseline) = (Lab::new(), Lab::new());
    compile(&lab, "-g -O3", "a.o");
    compile(&baseline, "-g -O2", "a.o");
    let said = call(words(baseline.path(), &["--json"]));
    said.assert_code(0);
    let json: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(json["audit"]["objects"][0]["effective"]["optimization"], "O2");
    let file = baseline.path().join("audit.json");
    std::fs::write(&file, &said.out).unwrap();
    for against in [file.as_path(), baseline.path()] {
        let said = call(words(lab.path(), &["--against", against.to_str().unwrap()]));
        said.assert_code(0).assert_says("1 + -O3").assert_says("1 - -O2");
    }
}

#[test]
fn wrong_usage_exits_with_2() {
    let lab = Lab::new();
    let missing = lab.path().join("missing");
    call(words(&missing, &[])).assert_code(2).assert_says("missing: No such file");
    let neither = call(vec!["audit", "rel_lto"]);
    neither.assert_code(2).assert_says("no file `rel_lto`").assert_says("dbdyno builds list");
    call(words(lab.path(), &[])).assert_code(2).assert_says("no objects, archives or programs");
    compile(&lab, "-g", "a.o");
    call(words(lab.path(), &["--variant", "rel_02"])).assert_code(2).assert_says("rel_o2");
    let wish = call(words(lab.path(), &["--expect", "optimisation=O3"]));
    wish.assert_code(2).assert_says("did you mean `optimization`?");
    let source = lab.path().join("a.c");
    call(words(&source, &[])).assert_code(2).assert_says("is no ELF program");
}
