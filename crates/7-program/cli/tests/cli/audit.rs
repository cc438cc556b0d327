//! Output and exit codes of `dbdyno audit`.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use crate::common::{TestDir, call, dbdyno, finish};

/// Compiles a source file of this directory.
#[track_caller]
fn compile(test: &TestDir, flags: &str, object: &str) {
    std::fs::write(test.path().join("a.c"), "int f(int x) { return x + 1; }\n").unwrap();
    let done = Command::new("gcc")
        .args(flags.split(' '))
        .args(["-c", "a.c", "-o", object])
        .current_dir(test.path())
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
    let test = TestDir::new();
    compile(&test, "-g -O3", "a.o");
    call(words(test.path(), &["--variant", "rel"])).assert_code(0).assert_prints("It is rel");
    let finished = call(words(test.path(), &["--variant", "rel_lto"]));
    finished.assert_code(1).assert_prints("no link-time optimization, 1 object");
    assert!(finished.out.lines().all(|line| line.chars().count() <= 80), "{}", finished.out);
    let allowed = ["--variant", "rel_lto", "--expect", "ignore=lto-missing"];
    call(words(test.path(), &allowed)).assert_code(0).assert_prints("ignoring lto-missing");
}

#[test]
fn audit_json_can_be_the_baseline() {
    let (test, baseline) = (TestDir::new(), TestDir::new());
    compile(&test, "-g -O3", "a.o");
    compile(&baseline, "-g -O2", "a.o");
    let finished = call(words(baseline.path(), &["--json"]));
    finished.assert_code(0);
    let json: serde_json::Value = serde_json::from_str(&finished.out).unwrap();
    assert_eq!(json["audit"]["objects"][0]["effective"]["optimization"], "O2");
    let file = baseline.path().join("audit.json");
    std::fs::write(&file, &finished.out).unwrap();
    let other_name = baseline.path().join("audit-output");
    std::fs::write(&other_name, format!("\n {}", finished.out)).unwrap();
    for against in [file.as_path(), &other_name, baseline.path()] {
        let finished = call(words(test.path(), &["--against", against.to_str().unwrap()]));
        finished.assert_code(0).assert_prints("1 + -O3").assert_prints("1 - -O2");
    }
}

#[test]
fn audit_json_can_come_from_a_pipe() {
    let test = TestDir::new();
    compile(&test, "-g -O3", "a.o");
    let json = call(words(test.path(), &["--json"])).out;
    let compare = |text: &str| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut command = dbdyno();
        command.args(words(test.path(), &["--against", "/dev/stdin"])).stdin(reader);
        let text = text.to_owned();
        let writing = std::thread::spawn(move || drop(writer.write_all(text.as_bytes())));
        let finished = finish(command);
        writing.join().unwrap();
        finished
    };
    compare(&json).assert_code(0);
    compare("no JSON").assert_code(2).assert_prints("is not output of `dbdyno audit --json`");
}

#[test]
fn wrong_usage_exits_with_2() {
    let test = TestDir::new();
    let missing = test.path().join("missing");
    call(words(&missing, &[])).assert_code(2).assert_prints("missing: No such file");
    let neither = call(vec!["audit", "rel_lto"]);
    neither.assert_code(2).assert_prints("no file `rel_lto`").assert_prints("dbdyno builds list");
    call(words(test.path(), &[])).assert_code(2).assert_prints("no objects, archives or programs");
    compile(&test, "-g", "a.o");
    call(words(test.path(), &["--variant", "rel_02"])).assert_code(2).assert_prints("rel_o2");
    let wish = call(words(test.path(), &["--expect", "optimisation=O3"]));
    wish.assert_code(2).assert_prints("did you mean `optimization`?");
    let source = test.path().join("a.c");
    call(words(&source, &[])).assert_code(2).assert_prints("is not an ELF file");
}
