//! Objects in which the compiler wrote down what it did.

use dbdyno_audit::{
    Check, Evidence, Family, Fortify, LtoForm, Optimization, Profile, Severity, StackProtector,
};

use crate::lab::{Lab, found, object, violations};

#[test]
fn gcc_records_its_flags_in_debug_information_and_beside_it() {
    let lab = Lab::new();
    lab.object("gcc", "-g -O3 -O2 -fPIC -fno-omit-frame-pointer", "debug.o");
    lab.object("gcc", "-O1 -frecord-gcc-switches", "switches.o");
    lab.object("gcc", "-g -gdwarf-4 -gz -Os", "compressed.o");
    let audit = lab.audit(&[]);
    let debug = object(&audit, "debug.o");
    assert_eq!(debug.effective.optimization, Some(Optimization::O2));
    assert_eq!(debug.effective.compiler.as_ref().unwrap().family, Family::Gcc);
    assert_eq!(debug.effective.debug, Some(true));
    assert_eq!(debug.effective.frame_pointers, Some(true));
    assert_eq!(debug.effective.lto, Some(LtoForm::None));
    assert!(debug.effective.language.as_ref().unwrap().starts_with('C'));
    assert!(debug.evidence.contains(&Evidence::Debug));
    assert_eq!(debug.source.as_deref(), Some("a.c"));
    let switches = object(&audit, "switches.o");
    assert_eq!(switches.effective.optimization, Some(Optimization::O1));
    assert_eq!(switches.effective.debug, Some(false));
    assert!(switches.evidence.contains(&Evidence::CommandLine));
    let compressed = object(&audit, "compressed.o");
    assert_eq!(compressed.effective.optimization, Some(Optimization::Os));
}

#[test]
fn clang_records_its_flags_only_when_told() {
    let lab = Lab::new();
    lab.object("clang", "-g -grecord-command-line -O3 -DNDEBUG", "debug.o");
    lab.object("clang", "-frecord-command-line -O2 -fstack-protector-strong", "switches.o");
    lab.object("clang", "-g -O3", "nothing.o");
    let audit = lab.audit(&[]);
    let debug = object(&audit, "debug.o");
    assert_eq!(debug.effective.optimization, Some(Optimization::O3));
    assert_eq!(debug.effective.compiler.as_ref().unwrap().family, Family::Clang);
    assert_eq!(debug.effective.assertions, Some(false));
    assert_eq!(debug.effective.march.as_deref(), Some("x86-64"));
    let switches = object(&audit, "switches.o");
    assert_eq!(switches.effective.optimization, Some(Optimization::O2));
    assert_eq!(switches.effective.stack_protector, Some(StackProtector::Strong));
    assert_eq!(switches.effective.assertions, Some(true));
    assert_eq!(switches.effective.compiler.as_ref().unwrap().family, Family::Clang);
    let nothing = object(&audit, "nothing.o");
    assert_eq!(nothing.flags, None);
    assert_eq!(nothing.effective.optimization, None);
    assert_eq!(nothing.effective.compiler.as_ref().unwrap().family, Family::Clang);
    assert!(nothing.code.is_some());
}

#[test]
fn a_wrong_level_and_none_are_told_apart() {
    let lab = Lab::new();
    lab.object("gcc", "-g -O3", "right.o");
    lab.object("gcc", "-g -O3 -O2", "wrong.o");
    lab.object("gcc", "-g", "none.o");
    let audit = lab.audit(&["optimization=O3"]);
    assert_eq!(
        violations(&audit),
        [
            (Check::Unoptimized, "none.o".to_owned()),
            (Check::OptimizationLevel, "wrong.o".to_owned()),
        ]
    );
    assert!(audit.has_violations());
    // Allowed by name, they stay visible.
    let allowed = lab.audit(&["optimization=O3", "allow=unoptimized", "allow=optimization-level"]);
    assert!(!allowed.has_violations());
    assert_eq!(found(&allowed, Severity::Note).len(), 2);
}

#[test]
fn what_is_unlike_the_others_is_odd_even_if_nobody_said_anything() {
    let lab = Lab::new();
    for name in ["a.o", "b.o", "c.o"] {
        lab.object("gcc", "-g -O2", name);
    }
    lab.object("gcc", "-g", "odd.o");
    let audit = lab.audit(&[]);
    assert!(!audit.has_violations());
    assert_eq!(found(&audit, Severity::Warning), [(Check::Unoptimized, "odd.o".to_owned())]);
}

#[test]
fn an_instruction_set_that_leaked_or_did_not_arrive_is_found() {
    for (compiler, record) in [("gcc", "-g"), ("clang", "-g -grecord-command-line")] {
        let lab = Lab::new();
        lab.object(compiler, &format!("{record} -O2"), "plain.o");
        lab.object(compiler, &format!("{record} -O2 -march=native"), "native.o");
        lab.object(compiler, &format!("{record} -O2 -march=haswell"), "haswell.o");
        let baseline = lab.audit(&["march=baseline"]);
        assert_eq!(
            violations(&baseline),
            [
                (Check::MarchLeaked, "haswell.o".to_owned()),
                (Check::MarchLeaked, "native.o".to_owned()),
            ],
            "{compiler}"
        );
        let native = lab.audit(&["march=native"]);
        let missing = [(Check::MarchMissing, "plain.o".to_owned())];
        assert_eq!(violations(&native), missing, "{compiler}");
        let haswell = object(&native, "haswell.o");
        assert_eq!(haswell.effective.march.as_deref(), Some("haswell"));
    }
}

#[test]
fn an_extension_for_one_file_is_only_noted() {
    let lab = Lab::new();
    lab.object("gcc", "-g -O2 -msse4.2", "crc.o");
    let audit = lab.audit(&["march=baseline"]);
    assert!(!audit.has_violations());
    assert_eq!(found(&audit, Severity::Note), [(Check::ExtensionFlags, "crc.o".to_owned())]);
}

#[test]
fn hardening_that_arrived_unasked_or_not_at_all_is_found() {
    let lab = Lab::new();
    lab.object("gcc", "-g -O2 -fno-stack-protector", "plain.o");
    lab.object("gcc", "-g -O2 -fstack-protector-strong -DNDEBUG", "protected.o");
    lab.object("gcc", "-g -O2 -D_FORTIFY_SOURCE=2 -fno-stack-protector", "fortified.o");
    lab.object("gcc", "-g -O2 -fstack-clash-protection -fcf-protection", "packaged.o");
    let audit = lab.audit(&["hardening=off"]);
    assert_eq!(
        violations(&audit),
        [
            (Check::HardeningUnexpected, "fortified.o".to_owned()),
            (Check::HardeningUnexpected, "packaged.o".to_owned()),
            (Check::HardeningUnexpected, "packaged.o".to_owned()),
            (Check::HardeningUnexpected, "protected.o".to_owned()),
        ]
    );
    assert_eq!(object(&audit, "fortified.o").effective.fortify, Some(Fortify::On));
    let expected = lab.audit(&["stack-protector=strong"]);
    let missing: Vec<String> = violations(&expected).into_iter().map(|(_, name)| name).collect();
    assert_eq!(missing, ["fortified.o", "packaged.o", "plain.o"]);
}

#[test]
fn assertions_left_on_are_found_by_what_they_call() {
    let lab = Lab::new();
    lab.object("gcc", "-g -O2", "on.o");
    lab.object("gcc", "-g -O2 -DNDEBUG", "off.o");
    let audit = lab.audit(&["assertions=off"]);
    assert_eq!(violations(&audit), [(Check::AssertionsOn, "on.o".to_owned())]);
}

#[test]
fn postgresqls_assertions_are_told_from_its_exceptions() {
    let lab = Lab::new();
    let calls = "extern void ExceptionalCondition(void);\n";
    lab.write(
        "checks.c",
        &format!("{calls}void check(int x) {{ if (!x) ExceptionalCondition(); }}"),
    );
    lab.write("throws.c", &format!("{calls}void pg_re_throw(void) {{ ExceptionalCondition(); }}"));
    lab.run("gcc", "-g -O2 -c checks.c -o checks.o");
    lab.run("gcc", "-g -O2 -c throws.c -o throws.o");
    let audit = lab.audit(&["assertions=off"]);
    assert_eq!(violations(&audit), [(Check::AssertionsOn, "checks.o".to_owned())]);
}

#[test]
fn instrumented_objects_are_found_without_any_record() {
    let lab = Lab::new();
    lab.object("gcc", "-O2 -fprofile-generate", "gcc.o");
    lab.object("clang", "-O2 -fprofile-generate", "clang.o");
    lab.object("gcc", "-g -O2 -fprofile-use -Wno-missing-profile", "use.o");
    let audit = lab.audit(&[]);
    for name in ["gcc.o", "clang.o"] {
        assert_eq!(object(&audit, name).effective.profile, Some(Profile::Generate), "{name}");
    }
    assert_eq!(object(&audit, "use.o").effective.profile, Some(Profile::Use));
    assert_eq!(
        found(&audit, Severity::Warning),
        [(Check::Instrumented, "clang.o".to_owned()), (Check::Instrumented, "gcc.o".to_owned()),]
    );
}

#[test]
fn a_claim_that_nothing_proves_is_an_offence() {
    let lab = Lab::new();
    lab.object("gcc", "-O3", "silent.o");
    let silent = lab.audit(&["optimization=O3"]);
    assert_eq!(violations(&silent), [(Check::Unproven, "all".to_owned())]);
    // With some that prove it, the others are a warning.
    lab.object("gcc", "-O3 -g", "told.o");
    let some = lab.audit(&["optimization=O3"]);
    assert!(!some.has_violations());
    assert_eq!(found(&some, Severity::Warning), [(Check::Unproven, "all".to_owned())]);
}

#[test]
fn an_assembled_file_has_nothing_to_check() {
    let lab = Lab::new();
    lab.write("s.S", ".text\n.globl f\nf: ret\n");
    lab.run("gcc", "-g -c s.S -o s.o");
    lab.object("gcc", "-g -O3", "a.o");
    let audit = lab.audit(&["optimization=O3", "lto=none"]);
    assert!(!audit.has_violations(), "{:?}", audit.findings);
    assert!(!object(&audit, "s.o").is_checked());
}

#[test]
fn another_compiler_is_found() {
    let lab = Lab::new();
    lab.object("gcc", "-g", "gcc.o");
    lab.object("clang", "-g", "clang.o");
    let audit = lab.audit(&["compiler=clang"]);
    assert_eq!(violations(&audit), [(Check::Compiler, "gcc.o".to_owned())]);
}
