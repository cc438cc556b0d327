//! Objects with recorded command lines, and objects without.

use dbdyno_audit::{
    Check, Evidence, Family, Fortify, LtoForm, Optimization, Profile, Severity, StackProtector,
    binary,
};

use crate::lab::{Lab, expected, found, object, violations};

#[test]
fn gcc_flags_are_read_from_debug_information_and_sections() {
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
fn clang_flags_are_read_if_recorded() {
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
fn wrong_and_missing_optimization_are_distinguished() {
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
    // Ignored by name, they are still listed.
    let allowed =
        lab.audit(&["optimization=O3", "ignore=unoptimized", "ignore=optimization-level"]);
    assert!(!allowed.has_violations());
    assert_eq!(found(&allowed, Severity::Note).len(), 2);
}

#[test]
fn inconsistent_object_is_warned_about_without_expectations() {
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
fn leaked_and_missing_march_are_reported() {
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
fn extension_flag_of_one_file_is_a_note() {
    let lab = Lab::new();
    lab.object("gcc", "-g -O2 -msse4.2", "crc.o");
    let audit = lab.audit(&["march=baseline"]);
    assert!(!audit.has_violations());
    assert_eq!(found(&audit, Severity::Note), [(Check::ExtensionFlags, "crc.o".to_owned())]);
}

#[test]
fn unexpected_and_missing_hardening_are_reported() {
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
fn enabled_assertions_are_detected_by_called_functions() {
    let lab = Lab::new();
    lab.object("gcc", "-g -O2", "on.o");
    lab.object("gcc", "-g -O2 -DNDEBUG", "off.o");
    let audit = lab.audit(&["assertions=off"]);
    assert_eq!(violations(&audit), [(Check::AssertionsOn, "on.o".to_owned())]);
}

#[test]
fn postgresql_assertions_are_distinguished_from_exceptions() {
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
fn instrumented_objects_are_detected_without_recorded_flags() {
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

/// Abseil's log writes the counts of instrumented code, if there is some, before it aborts.
#[test]
fn code_that_only_writes_counts_is_not_instrumented() {
    let lab = Lab::new();
    let text = "void __gcov_dump(void) __attribute__((weak));\n\
                void fail(void) { if (__gcov_dump) __gcov_dump(); __builtin_abort(); }";
    lab.write("log.c", text);
    lab.run("gcc", "-O2 -frecord-gcc-switches -c log.c -o log.o");
    let audit = lab.audit(&["profile=none"]);
    assert_ne!(object(&audit, "log.o").effective.profile, Some(Profile::Generate));
    assert!(!audit.has_violations());
    assert_eq!(found(&audit, Severity::Warning), []);
}

#[test]
fn expectation_without_evidence_is_a_violation() {
    let lab = Lab::new();
    lab.object("gcc", "-O3", "silent.o");
    let silent = lab.audit(&["optimization=O3"]);
    assert_eq!(violations(&silent), [(Check::Unproven, "all".to_owned())]);
    // With evidence for some objects, the others are a warning.
    lab.object("gcc", "-O3 -g", "flags.o");
    let some = lab.audit(&["optimization=O3"]);
    assert!(!some.has_violations());
    assert_eq!(found(&some, Severity::Warning), [(Check::Unproven, "all".to_owned())]);
}

#[test]
fn assembled_file_is_not_checked() {
    let lab = Lab::new();
    lab.write("s.S", ".text\n.globl f\nf: ret\n");
    lab.run("gcc", "-g -c s.S -o s.o");
    lab.object("gcc", "-g -O3", "a.o");
    let audit = lab.audit(&["optimization=O3", "lto=none"]);
    assert!(!audit.has_violations(), "{:?}", audit.findings);
    assert!(!object(&audit, "s.o").is_checked());
}

#[test]
fn unexpected_compiler_is_reported() {
    let lab = Lab::new();
    lab.object("gcc", "-g", "gcc.o");
    lab.object("clang", "-g", "clang.o");
    let audit = lab.audit(&["compiler=clang"]);
    assert_eq!(violations(&audit), [(Check::Compiler, "gcc.o".to_owned())]);
}

#[test]
fn fortify_levels_are_compared_if_recorded() {
    let lab = Lab::new();
    lab.object("clang", "-O2 -g -grecord-command-line -D_FORTIFY_SOURCE=1", "clang.o");
    lab.object("gcc", "-O2 -g -D_FORTIFY_SOURCE=1", "gcc.o");
    let audit = lab.audit(&["fortify=3"]);
    assert_eq!(violations(&audit), [(Check::HardeningMissing, "clang.o".to_owned())]);
    assert!(!lab.audit(&["fortify=1"]).has_violations());
    assert!(!lab.audit(&["fortify=on"]).has_violations());
}

#[test]
fn expected_calls_without_evidence_are_a_violation() {
    let lab = Lab::new();
    lab.object("gcc", "-g -O2 -DNDEBUG -U_FORTIFY_SOURCE", "neither.o");
    for expectation in ["fortify=on", "assertions=on"] {
        let audit = lab.audit(&[expectation]);
        assert_eq!(violations(&audit), [(Check::Unproven, "all".to_owned())], "{expectation}");
    }
    // Many objects have no such calls.
    lab.object("gcc", "-g -O2 -D_FORTIFY_SOURCE=2", "both.o");
    let audit = lab.audit(&["fortify=on", "assertions=on"]);
    assert_eq!(audit.findings, []);
}

#[test]
fn expected_hardening_without_recorded_flags_is_a_violation() {
    let lab = Lab::new();
    lab.object("clang", "-O2", "silent.o");
    for expectation in ["stack-clash=on", "control-flow=on"] {
        let audit = lab.audit(&[expectation]);
        assert_eq!(violations(&audit), [(Check::Unproven, "all".to_owned())], "{expectation}");
    }
}

#[test]
fn split_debug_information_is_not_an_object() {
    let lab = Lab::new();
    lab.object("gcc", "-O3 -g -gsplit-dwarf -frecord-gcc-switches", "a.o");
    assert!(lab.path().join("a.dwo").exists());
    let audit = lab.audit(&["optimization=O3", "compiler=gcc"]);
    assert_eq!(audit.objects.len(), 1);
    assert_eq!(audit.findings, []);
}

#[test]
fn flags_in_split_debug_information_are_read_and_missing_files_are_named() {
    for (compiler, flags) in
        [("gcc", "-g"), ("gcc", "-gdwarf-4"), ("clang", "-g -grecord-command-line")]
    {
        let lab = Lab::new();
        let object = lab.object(compiler, &format!("-O3 {flags} -gsplit-dwarf"), "a.o");
        let audit = |what: &str| binary(&object, None, &expected(&[what])).unwrap();
        assert_eq!(audit("optimization=O3").findings, [], "{compiler} {flags}");
        assert_eq!(violations(&audit("optimization=O0"))[0].0, Check::OptimizationLevel);
        std::fs::remove_file(lab.path().join("a.dwo")).unwrap();
        let audit = audit("optimization=O3");
        assert_eq!(violations(&audit), [(Check::Unproven, "all".to_owned())]);
        assert!(audit.unreadable[0].reason.contains("a.dwo, which cannot be read"), "{audit:?}");
    }
}
