//! Differences between two builds; text and JSON output.

use std::path::PathBuf;

use dbdyno_audit::text::{differing_properties, sections, sections_of_difference};
use dbdyno_audit::{Audit, Change, Expected, difference};
use dbdyno_text::{Paint, Section, terminal};

use crate::lab::{Lab, PROGRAM, build, expected};

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
    build(lab.path(), &linked, None, &expected(expectations)).unwrap()
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
fn directories_with_flags_that_were_not_requested_are_named() {
    let lab = lab();
    lab.object("gcc", "-g -O3 -march=haswell", "storage/rocksdb/CMakeFiles/lib.dir/db.o");
    lab.object("gcc", "-g -O3 -march=haswell", "storage/rocksdb/CMakeFiles/lib.dir/crc.o");
    lab.object("gcc", "-g -O3", "storage/rocksdb/plain.o");
    let expectations = &["optimization=O3", "march=baseline", "ignore=march-leaked"];
    let whole = audit(&lab, expectations);
    let sentences = |audit: &Audit| -> Vec<String> {
        audit.unrequested().iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        sentences(&whole),
        [
            "storage/rocksdb: 2 of 3 files have -march=haswell, which is not expected",
            "storage/innobase: 1 of 2 files has -O0, which is not expected",
        ]
    );
    let text = shown(&sections(&whole, false));
    assert_narrow(&text);
    assert!(text.contains("Flags that were not requested"), "{text}");
    let named = Expected { name: Some("rel".to_owned()), ..expected(expectations) };
    let named = whole.checked_against(named);
    let ending = "-march=haswell, which the variant rel does not ask for";
    assert!(sentences(&named)[0].ends_with(ending), "{:?}", sentences(&named));
    // In one directory, the findings say the same.
    let alone = Lab::new();
    alone.object("gcc", "-g", "a.o");
    let alone = alone.audit(&["optimization=O3"]);
    assert!(alone.has_violations() && alone.unrequested().is_empty());
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
fn largest_linked_files_are_listed_with_their_directory() {
    let lab = || {
        let lab = Lab::new();
        lab.write("p.c", PROGRAM);
        let files: Vec<PathBuf> = (0..12).map(|at| lab.path().join(format!("bin/p{at}"))).collect();
        std::fs::create_dir(lab.path().join("bin")).unwrap();
        for (at, file) in files.iter().enumerate() {
            lab.run("gcc", &format!("-g -DN={at} p.c -o {}", file.display()));
        }
        build(lab.path(), &files, None, &expected(&[])).unwrap()
    };
    let (here, baseline) = (lab(), lab());
    let text = shown(&sections_of_difference(&difference(&here, &baseline), "rel", false));
    assert_eq!(text.matches("\nbin/p").count(), 10, "{text}");
    assert!(text.contains("… and 2 smaller linked files (--all shows them)"), "{text}");
}

#[test]
fn linked_files_without_recorded_command_lines_differ_in_their_properties() {
    let program = |flags: &str| {
        let lab = Lab::new();
        lab.write("p.c", PROGRAM);
        lab.run("gcc", &format!("{flags} p.c -o server"));
        audit(&lab, &[])
    };
    let (here, there) = (program("-no-pie"), program("-pie"));
    let text = shown(&[differing_properties(&here, &there)]);
    assert_narrow(&text);
    for words in ["  + kind", "  - kind", "position-independent"] {
        assert!(text.contains(words), "`{words}` is missing in\n{text}");
    }
    assert_eq!(shown(&[differing_properties(&here, &here)]), "");
}

#[test]
fn audit_round_trips_through_json() {
    let audit = audit(&lab(), &["optimization=O3"]);
    let text = serde_json::to_string(&audit).unwrap();
    assert_eq!(serde_json::from_str::<Audit>(&text).unwrap(), audit);
}

#[test]
fn added_and_removed_flags_are_counted_per_file() {
    let (here, baseline) = (Lab::new(), Lab::new());
    for name in ["x/a.o", "x/b.o"] {
        baseline.object("gcc", "-g -O2 -fstack-protector-strong", name);
        here.object("gcc", "-g -O3", name);
    }
    for lab in [&here, &baseline] {
        lab.object("gcc", "-g -O2", "same.o");
    }
    here.object("gcc", "-g -O2", "new.o");
    let difference = difference(&here.audit(&[]), &baseline.audit(&[]));
    assert_eq!((difference.compared, difference.same), (3, 1));
    let change = |flag: &str, files| Change { flag: flag.to_owned(), files };
    assert_eq!(difference.added, [change("-O3", 2)]);
    assert_eq!(difference.removed, [change("-O2", 2), change("-fstack-protector-strong", 2)]);
    assert_eq!(difference.only_here, ["new.o"]);
    assert_eq!(difference.files.len(), 2);
    assert_eq!(difference.files[0].file, "x/a.o");
}

#[test]
fn macros_of_the_compile_databases_are_differences_except_paths() {
    let lab = |macros: &str| {
        let lab = Lab::new();
        lab.object("gcc", "-g -O2", "a.o");
        let directory = lab.path().display().to_string();
        let command = format!("gcc -g -O2 {macros} -DHOME={directory}/x -c a.c -o a.o");
        let entry =
            serde_json::json!({ "directory": directory, "file": "a.c", "command": command });
        let commands = serde_json::json!([entry]).to_string();
        let database = lab.write("compile_commands.json", &commands);
        build(lab.path(), &[], Some(&database), &expected(&[])).unwrap()
    };
    let difference = difference(&lab("-DNDEBUG"), &lab("-D_FORTIFY_SOURCE=2"));
    let file = &difference.files[0];
    assert_eq!(file.added, ["-DNDEBUG"]);
    assert_eq!(file.removed, ["-D_FORTIFY_SOURCE=2"]);
}

#[test]
fn last_of_contradicting_flags_counts() {
    let lab = |flags: &str| {
        let lab = Lab::new();
        lab.object("gcc", &format!("-g {flags}"), "a.o");
        lab.audit(&[])
    };
    let twice = difference(&lab("-O2 -O3 -fno-plt -fplt"), &lab("-O3 -fplt"));
    assert_eq!((twice.compared, twice.same), (1, 1), "{twice:?}");
    let order = difference(&lab("-O2 -O3"), &lab("-O3 -O2"));
    let file = &order.files[0];
    assert_eq!([&file.added[..], &file.removed[..]], [["-O3"], ["-O2"]]);
}

#[test]
fn sources_in_different_directories_are_matched_by_relative_path() {
    let (here, baseline) = (Lab::new(), Lab::new());
    for (lab, level) in [(&here, "-O3"), (&baseline, "-O2")] {
        for name in ["s/one.c", "s/two.c"] {
            lab.write(name, "int f(void) { return 1; }\n");
        }
        let sources = lab.path().join("s");
        for name in ["one", "two"] {
            let source = sources.join(format!("{name}.c"));
            lab.run("gcc", &format!("-g {level} -c {} -o {name}.{level}.o", source.display()));
        }
    }
    let difference = difference(&here.audit(&[]), &baseline.audit(&[]));
    assert_eq!(difference.compared, 2, "{difference:?}");
    let names: Vec<&str> = difference.files.iter().map(|file| file.file.as_str()).collect();
    assert_eq!(names, ["one.c", "two.c"]);
}

#[test]
fn file_without_recorded_source_is_matched_by_object() {
    let (here, baseline) = (Lab::new(), Lab::new());
    baseline.object("gcc", "-g -O2", "x/a.o");
    here.object("gcc", "-frecord-gcc-switches -O3 -flto", "x/a.o");
    let difference = difference(&here.audit(&[]), &baseline.audit(&[]));
    assert_eq!(difference.compared, 1, "{difference:?}");
    assert!(difference.only_here.is_empty() && difference.only_in_baseline.is_empty());
    assert!(difference.files[0].added.contains(&"-O3".to_owned()), "{difference:?}");
}

#[test]
fn flags_implied_by_native_are_one_difference() {
    let (here, baseline) = (Lab::new(), Lab::new());
    baseline.object("gcc", "-g -O2", "a.o");
    here.object("gcc", "-g -O2 -march=native", "a.o");
    let difference = difference(&here.audit(&[]), &baseline.audit(&[]));
    let added = &difference.files[0].added;
    assert!(added.len() <= 3, "{added:?}");
    let parts = added.iter().filter(|flag| flag.ends_with(" flags that native stands for)"));
    assert_eq!(parts.count(), 1, "{added:?}");
}
