//! Text and JSON output.

use dbdyno_audit::text::{sections, sections_of_difference};
use dbdyno_audit::{Audit, difference};
use dbdyno_text::{Paint, Section, terminal};

use crate::lab::{Lab, PROGRAM, expected};

fn lab() -> Lab {
    let lab = Lab::new();
    for name in ["sql/CMakeFiles/sql.dir/one.c.o", "storage/innobase/two.o"] {
        lab.object("gcc", "-g -O3", name);
    }
    lab.object("gcc", "-g", "storage/innobase/odd.o");
    lab.write("p.c", PROGRAM);
    lab.run("gcc", "-g -O3 p.c -o server");
    lab
}

fn audit(lab: &Lab, expectations: &[&str]) -> Audit {
    let linked = [lab.path().join("server")];
    dbdyno_audit::build(lab.path(), &linked, None, &expected(expectations)).unwrap()
}

fn shown(sections: &[Section]) -> String {
    terminal(sections, 80, Paint::new(false))
}

#[track_caller]
fn assert_narrow(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}\n{text}");
        assert_eq!(line, line.trim_end(), "blanks at the end");
    }
}

#[test]
fn text_has_components_violations_and_verdict() {
    let text = shown(&sections(&audit(&lab(), &["optimization=O3", "lto=on"]), false));
    assert_narrow(&text);
    for words in [
        "3 objects",
        "storage/innobase",
        "Violations",
        "compiled without optimization, 1 object: -O0 (expected: -O3)",
        "      storage/innobase/odd.o",
        "no link-time optimization, 3 objects",
        "server",
        "relro",
        "It is not what was expected",
    ] {
        assert!(text.contains(words), "`{words}` is missing in\n{text}");
    }
    assert!(!text.contains("CMakeFiles/sql.dir\n"), "{text}");
}

#[test]
fn without_expectations_only_inconsistencies_are_shown() {
    let text = shown(&sections(&audit(&lab(), &[]), false));
    assert_narrow(&text);
    assert!(text.contains("1 warning, no violation."), "{text}");
}

#[test]
fn difference_has_summary_and_list() {
    let (here, baseline) = (lab(), lab());
    here.object("gcc", "-g -O3 -march=native", "storage/innobase/two.o");
    let difference = difference(&audit(&here, &[]), &audit(&baseline, &[]));
    let text = shown(&sections_of_difference(&difference, "rel", false));
    assert_narrow(&text);
    for words in ["against rel", "3 files, 2 with the same", "    1  + -m", "Sizes"] {
        assert!(text.contains(words), "`{words}` is missing in\n{text}");
    }
}

#[test]
fn audit_round_trips_through_json() {
    let audit = audit(&lab(), &["optimization=O3"]);
    let text = serde_json::to_string(&audit).unwrap();
    assert_eq!(serde_json::from_str::<Audit>(&text).unwrap(), audit);
}
