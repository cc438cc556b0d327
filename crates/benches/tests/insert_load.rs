//! The insert benchmark puts into three engines what it should, with fewer rows than by hand.

use std::process::Command;

#[test]
fn rows_indexes_and_answers_are_as_they_must_be_on_three_engines() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_insert-load"));
    let output = command.args(["--rows", "24000"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complained}");
    let checked = "24000 rows, 72000 index entries and 900 answers are as they must be";
    assert_eq!(said.matches(checked).count(), 3, "{said}");
}
