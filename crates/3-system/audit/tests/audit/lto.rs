//! Objects of link-time optimization.

use dbdyno_audit::{Check, Evidence, LtoForm, Optimization, Severity, binary};

use crate::lab::{Lab, PROGRAM, build, expected, found, object, violations};

#[test]
fn gcc_slim_and_fat_objects_are_distinguished() {
    let lab = Lab::new();
    lab.object("gcc", "-O2 -flto", "slim.o");
    lab.object("gcc", "-O2 -flto -ffat-lto-objects", "fat.o");
    lab.object("gcc", "-O3 -flto -g", "debug.o");
    lab.object("gcc", "-O2 -g", "none.o");
    let audit = lab.audit(&["lto=on"]);
    let form = |name: &str| object(&audit, name).effective.lto;
    assert_eq!(form("slim.o"), Some(LtoForm::Slim));
    assert_eq!(form("fat.o"), Some(LtoForm::Fat));
    assert_eq!(form("debug.o"), Some(LtoForm::Slim));
    assert_eq!(form("none.o"), Some(LtoForm::None));
    // Without debug information, the recorded LTO options are used.
    let slim = object(&audit, "slim.o");
    assert_eq!(slim.effective.optimization, Some(Optimization::O2));
    assert!(slim.evidence.contains(&Evidence::LtoOptions));
    assert_eq!(object(&audit, "debug.o").effective.optimization, Some(Optimization::O3));
    assert_eq!(violations(&audit), [(Check::LtoPartial, "none.o".to_owned())]);

    let slim_expected = lab.audit(&["lto=slim"]);
    assert!(violations(&slim_expected).contains(&(Check::LtoForm, "fat.o".to_owned())));
}

#[test]
fn assembled_objects_without_debug_information_are_not_checked() {
    let lab = Lab::new();
    lab.object("gcc", "-O2 -flto -fstack-protector-strong", "a.o");
    // Some sources set the name that compilers write.
    for (source, file) in [("plain.S", ""), ("named.s", ".file \"named.c\"\n")] {
        lab.write(source, &format!("{file}.text\n.globl f\nf: ret\n"));
        lab.run("gcc", &format!("-c {source} -o {source}.o"));
    }
    lab.run("ar", "rc lib.a plain.S.o");
    let database = lab.write(
        "compile_commands.json",
        &format!(
            r#"[{{"directory":"{}","file":"named.s","command":"gcc -c named.s -o named.s.o"}}]"#,
            lab.path().display()
        ),
    );
    let expected = expected(&["lto=on", "stack-protector=strong", "assertions=off"]);
    let audit = build(lab.path(), &[], Some(&database), &expected).unwrap();
    for name in ["plain.S.o", "named.s.o"] {
        let assembled = object(&audit, name);
        assert_eq!(assembled.effective.compiler.as_ref().unwrap().to_string(), "assembler");
        assert_eq!((assembled.effective.lto, &assembled.code), (None, &None), "{name}");
    }
    assert_eq!(violations(&audit), []);

    // The same name without a compile database is that of a compiled source.
    let unknown = lab.audit(&["lto=on"]);
    assert_eq!(violations(&unknown), [(Check::LtoPartial, "named.s.o".to_owned())]);
}

#[test]
fn missing_partial_and_unexpected_lto_are_reported() {
    let lab = Lab::new();
    lab.object("gcc", "-g -O2", "a.o");
    lab.object("gcc", "-g -O2", "b.o");
    let missing = lab.audit(&["lto=on"]);
    assert_eq!(
        violations(&missing),
        [(Check::LtoMissing, "a.o".to_owned()), (Check::LtoMissing, "b.o".to_owned()),]
    );
    lab.object("gcc", "-g -O2 -flto", "b.o");
    assert_eq!(violations(&lab.audit(&["lto=on"])), [(Check::LtoPartial, "a.o".to_owned())]);
    assert_eq!(violations(&lab.audit(&["lto=off"])), [(Check::LtoUnexpected, "b.o".to_owned())]);
    let odd = lab.audit(&[]);
    assert_eq!(found(&odd, Severity::Warning), [(Check::LtoPartial, "a.o".to_owned())]);
}

#[test]
fn clang_bitcode_is_read_with_and_without_recorded_command_line() {
    let lab = Lab::new();
    lab.object("clang", "-O2 -flto -march=haswell -fno-omit-frame-pointer", "full.o");
    lab.object("clang", "-O3 -flto=thin", "thin.o");
    lab.object("clang", "-flto", "unoptimized.o");
    lab.object("clang", "-O3 -flto -g -grecord-command-line -DNDEBUG", "debug.o");
    lab.object("clang", "-O1 -flto -frecord-command-line", "switches.o");
    let audit = lab.audit(&[]);
    let full = &object(&audit, "full.o").effective;
    assert_eq!(full.lto, Some(LtoForm::Slim));
    assert_eq!(full.march.as_deref(), Some("haswell"));
    assert_eq!(full.optimization, None);
    assert_eq!(full.frame_pointers, Some(true));
    assert!(full.compiler.as_ref().unwrap().to_string().starts_with("clang "));
    let thin = &object(&audit, "thin.o").effective;
    assert_eq!(thin.lto, Some(LtoForm::Thin));
    assert_eq!(thin.march.as_deref(), Some("x86-64"));
    let unoptimized = &object(&audit, "unoptimized.o").effective;
    assert_eq!(unoptimized.optimization, Some(Optimization::O0));
    let debug = object(&audit, "debug.o");
    assert_eq!(debug.effective.optimization, Some(Optimization::O3));
    assert_eq!(debug.effective.assertions, Some(false));
    assert_eq!(debug.source.as_deref(), Some("a.c"));
    let switches = object(&audit, "switches.o");
    assert_eq!(switches.effective.optimization, Some(Optimization::O1));
}

#[test]
fn link_that_generated_no_code_is_reported() {
    let lab = Lab::new();
    lab.write("p.c", PROGRAM);
    lab.run("gcc", "-g -O2 -flto p.c -o with");
    lab.run("gcc", "-g -O2 -flto -ffat-lto-objects -c p.c -o p.o");
    lab.run("gcc", "-g -O2 -fno-lto -fno-use-linker-plugin p.o -o without");
    let audit = |name: &str| binary(&lab.path().join(name), None, &expected(&["lto=on"])).unwrap();
    let with = audit("with");
    assert_eq!(with.binaries[0].link_time_code, Some(true));
    assert!(!with.has_violations(), "{:?}", with.findings);
    let without = audit("without");
    assert_eq!(without.binaries[0].link_time_code, Some(false));
    assert!(violations(&without).contains(&(Check::LtoMissing, "without".to_owned())));
}

#[test]
fn link_of_a_library_without_code_has_nothing_to_generate() {
    let lab = Lab::new();
    lab.write("empty.c", "typedef int nothing;\n");
    lab.run("gcc", "-g1 -O2 -fPIC -flto -ffat-lto-objects -c empty.c -o empty.o");
    lab.run("gcc", "-g1 -O2 -flto -shared empty.o -o libempty.so");
    let audit = binary(&lab.path().join("libempty.so"), None, &expected(&["lto=fat"])).unwrap();
    assert!(audit.objects.iter().any(|object| object.flags.is_some()));
    assert_eq!(audit.binaries[0].link_time_code, None);
    assert!(!audit.has_violations(), "{:?}", audit.findings);
}

#[test]
fn bitcode_with_one_unoptimized_function_is_not_taken_as_unoptimized() {
    let lab = Lab::new();
    lab.write(
        "a.c",
        "__attribute__((optnone)) int slow(int x) { return x * 3; }\n\
         int fast(int x) { return slow(x) + 1; }\n",
    );
    lab.object("clang", "-O2 -flto", "optimized.o");
    lab.object("clang", "-O0 -flto", "unoptimized.o");
    let audit = lab.audit(&[]);
    let level = |name: &str| object(&audit, name).effective.optimization;
    assert_eq!(level("optimized.o"), None);
    assert_eq!(level("unoptimized.o"), Some(Optimization::O0));
}
