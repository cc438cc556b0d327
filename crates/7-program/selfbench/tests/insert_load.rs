//! The insert benchmark loads the right rows and index entries into three engines.

use std::process::Command;

#[test]
#[ignore = "full"]
fn rows_indexes_and_answers_are_right_on_three_engines() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_load-generator"));
    let output = command.args(["insert-load", "--rows", "24000"]).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}\n{stderr}");
    let checked = "24000 rows, 72000 index entries and 900 query results are correct";
    assert_eq!(stdout.matches(checked).count(), 3, "{stdout}");
}
