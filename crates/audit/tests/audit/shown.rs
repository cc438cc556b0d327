//! The text for people, and JSON for programs.

use dbdyno_audit::text::{TextOptions, render, render_difference};
use dbdyno_audit::{Audit, difference};

use crate::lab::{Lab, PROGRAM, intent};

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

fn audit(lab: &Lab, wishes: &[&str]) -> Audit {
    let linked = [lab.path().join("server")];
    dbdyno_audit::build(lab.path(), &linked, None, &intent(wishes)).unwrap()
}

#[track_caller]
fn assert_narrow(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}\n{text}");
        assert_eq!(line, line.trim_end(), "blanks at the end");
    }
}

#[test]
fn the_text_has_the_components_the_offences_and_the_verdict() {
    let text = render(&audit(&lab(), &["optimization=O3", "lto=on"]), &TextOptions::default());
    assert_narrow(&text);
    for words in [
        "3 objects",
        "storage/innobase",
        "Offences",
        "compiled without optimization, 1 object: -O0 (wanted: -O3)",
        "      storage/innobase/odd.o",
        "no link-time optimization, 3 objects",
        "server",
        "relro",
        "It is not what was wanted",
    ] {
        assert!(text.contains(words), "`{words}` is missing in\n{text}");
    }
    assert!(!text.contains("CMakeFiles/sql.dir\n"), "{text}");
}

#[test]
fn without_a_wish_there_is_only_what_is_odd() {
    let text = render(&audit(&lab(), &[]), &TextOptions::default());
    assert_narrow(&text);
    assert!(text.contains("1 warning, no offence."), "{text}");
}

#[test]
fn the_difference_is_summed_up_and_listed() {
    let (here, baseline) = (lab(), lab());
    here.object("gcc", "-g -O3 -march=native", "storage/innobase/two.o");
    let difference = difference(&audit(&here, &[]), &audit(&baseline, &[]));
    let text = render_difference(&difference, "rel", &TextOptions::default());
    assert_narrow(&text);
    for words in ["against rel", "3 files, 2 with the same", "      1  + -m", "Sizes"] {
        assert!(text.contains(words), "`{words}` is missing in\n{text}");
    }
}

#[test]
fn an_audit_survives_json() {
    let audit = audit(&lab(), &["optimization=O3"]);
    let text = serde_json::to_string(&audit).unwrap();
    assert_eq!(serde_json::from_str::<Audit>(&text).unwrap(), audit);
}
