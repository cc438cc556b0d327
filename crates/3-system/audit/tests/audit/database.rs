//! Comparison with a compile database.

use dbdyno_audit::{Check, Expected, ExpectedMarch, Fortify};

use crate::lab::{Lab, build, expected, object, violations};

fn entry(lab: &Lab, flags: &str, object: &str) -> String {
    let directory = lab.path().display();
    format!(
        r#"{{"directory":"{directory}","file":"a.c","command":"cc {flags} -c a.c -o {object}"}}"#
    )
}

#[test]
fn flags_changed_by_wrapper_are_reported() {
    let lab = Lab::new();
    lab.object("gcc", "-g -O2", "as-asked.o");
    lab.object("gcc", "-g -O1 -march=haswell -fstack-protector-strong", "changed.o");
    lab.object("gcc", "-g -O2 -march=native", "native.o");
    let entries = [
        entry(&lab, "-g -O2", "as-asked.o"),
        entry(&lab, "-g -O2", "changed.o"),
        entry(&lab, "-g -O2 -march=native", "native.o"),
    ];
    let database = lab.write("compile_commands.json", &format!("[{}]", entries.join(",")));
    let audit = build(lab.path(), &[], Some(&database), &expected(&[])).unwrap();
    assert_eq!(audit.compile_commands, Some(3));
    let differing: Vec<(String, String)> = audit
        .findings
        .iter()
        .filter(|finding| finding.check == Check::CompileDatabaseMismatch)
        .map(|finding| (finding.recorded.clone(), finding.expected.clone().unwrap()))
        .collect();
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(
        differing,
        [
            pair("-O1", "-O2"),
            pair("-march=haswell", "no -march"),
            pair("stack protector strong", "stack protector off"),
        ]
    );
    assert!(violations(&audit).iter().all(|(_, name)| name == "changed.o"));
}

#[test]
fn defaults_of_the_compiler_are_not_reported() {
    let lab = Lab::new();
    let configured = "-march=x86-64-v2 -fstack-protector-strong";
    lab.object("gcc", &format!("-g -O2 {configured}"), "a.o");
    lab.object("gcc", &format!("-g -O2 {configured}"), "b.o");
    let entries = [entry(&lab, "-g -O2", "a.o"), entry(&lab, "-g -O2", "b.o")];
    let database = lab.write("compile_commands.json", &format!("[{}]", entries.join(",")));
    let differing = |march: ExpectedMarch| {
        let expected = Expected { march: Some(march), ..Expected::default() };
        let audit = build(lab.path(), &[], Some(&database), &expected).unwrap();
        audit.findings.iter().map(|finding| finding.check).collect::<Vec<_>>()
    };
    assert_eq!(differing(ExpectedMarch::default_of(Some("x86-64-v2".to_owned()))), []);
    assert_eq!(differing(ExpectedMarch::default_of(None)), [Check::MarchLeaked; 2]);
}

#[test]
fn database_provides_macros_that_gcc_does_not_record() {
    let lab = Lab::new();
    lab.write("a.c", "int f(void) { return 1; }\n");
    lab.object("gcc", "-g -O2 -DNDEBUG -D_FORTIFY_SOURCE=3", "a.o");
    let text = format!("[{}]", entry(&lab, "-g -O2 -DNDEBUG -D_FORTIFY_SOURCE=3", "a.o"));
    let database = lab.write("compile_commands.json", &text);
    let audit = build(lab.path(), &[], Some(&database), &expected(&["fortify=off"])).unwrap();
    let effective = &object(&audit, "a.o").effective;
    assert_eq!(effective.assertions, Some(false));
    assert_eq!(effective.fortify, Some(Fortify::Level(3)));
    assert_eq!(violations(&audit), [(Check::HardeningUnexpected, "a.o".to_owned())]);
}

#[test]
fn malformed_database_error_names_file() {
    let lab = Lab::new();
    lab.object("gcc", "-g", "a.o");
    let database = lab.write("db.json", "[{");
    let error = build(lab.path(), &[], Some(&database), &expected(&[])).unwrap_err();
    assert!(error.to_string().contains("db.json is not a compile database"), "{error}");
}

#[test]
fn macros_are_read_in_every_spelling() {
    let lab = Lab::new();
    lab.write("a.c", "int f(void) { return 1; }\n");
    let flags = "-g -O2 -D NDEBUG -Wp,-U_FORTIFY_SOURCE -Wp,-D_FORTIFY_SOURCE=2";
    lab.object("gcc", flags, "a.o");
    let database = lab.write("compile_commands.json", &format!("[{}]", entry(&lab, flags, "a.o")));
    let expected = expected(&["assertions=off", "fortify=2"]);
    let audit = build(lab.path(), &[], Some(&database), &expected).unwrap();
    assert_eq!(audit.findings, []);
    let effective = &object(&audit, "a.o").effective;
    assert_eq!((effective.assertions, effective.fortify), (Some(false), Some(Fortify::Level(2))));
}

#[test]
fn flags_in_response_files_are_requested() {
    let lab = Lab::new();
    lab.write("flags.rsp", "-g\n-O2 \"-DNAME=a b\"\n");
    lab.object("gcc", "@flags.rsp", "a.o");
    let entries = entry(&lab, "@flags.rsp @missing.rsp", "a.o");
    let database = lab.write("compile_commands.json", &format!("[{entries}]"));
    let audit = build(lab.path(), &[], Some(&database), &expected(&[])).unwrap();
    assert_eq!(audit.findings, []);
    let requested = object(&audit, "a.o").requested.unwrap();
    assert_eq!(audit.flag_sets[requested].flags, ["-g", "-O2", "-DNAME=a b"]);
}
