//! Programs, libraries and archives, stripped and not.

use std::fs;
use std::path::{Path, PathBuf};

use dbdyno_audit::{
    Audit, BinaryKind, Check, Expected, Extension, FunctionsFrom, Optimization, Relro, binary,
};

use crate::lab::{Lab, PROGRAM, build, expected, object, violations};

fn program(lab: &Lab, compiler: &str, flags: &str) -> PathBuf {
    lab.write("p.c", PROGRAM);
    lab.run(compiler, &format!("p.c -o p {flags}"));
    lab.path().join("p")
}

#[track_caller]
fn audit(path: &Path, expectations: &[&str]) -> Audit {
    binary(path, None, &expected(expectations)).unwrap()
}

#[test]
fn program_with_debug_information_has_a_unit_per_source() {
    let lab = Lab::new();
    lab.write("q.c", "int q(void) { return 2; }\n");
    lab.run("gcc", "-g -O1 -c q.c -o q.o");
    lab.write("p.c", PROGRAM);
    lab.run("gcc", "-g -O2 -c p.c -o p.o");
    lab.run("gcc", "p.o q.o -o p");
    let found = audit(&lab.path().join("p"), &["optimization=O2"]);
    assert_eq!(violations(&found), [(Check::OptimizationLevel, "q.c".to_owned())]);
    assert_eq!(object(&found, "p.c").effective.optimization, Some(Optimization::O2));
}

#[test]
fn command_lines_are_read_without_debug_information() {
    for (compiler, record) in [("gcc", "-frecord-gcc-switches"), ("clang", "-frecord-command-line")]
    {
        let lab = Lab::new();
        let path = program(&lab, compiler, &format!("-O3 {record}"));
        let found = audit(&path, &["optimization=O2"]);
        assert!(found.binaries[0].records.command_lines, "{compiler}");
        assert_eq!(violations(&found)[0].0, Check::OptimizationLevel, "{compiler}");
    }
}

#[test]
fn program_that_matches_flags_has_no_violations() {
    let plain = "-fno-stack-protector -U_FORTIFY_SOURCE -fcf-protection=none -DNDEBUG";
    for (compiler, record) in [
        ("gcc", "-g"),
        ("gcc", "-frecord-gcc-switches"),
        ("gcc", "-flto -frecord-gcc-switches"),
        ("clang", "-frecord-command-line"),
    ] {
        let lab = Lab::new();
        let path = program(&lab, compiler, &format!("-O3 {record} {plain}"));
        let lto = if record.contains("-flto") { "-flto" } else { "-fno-lto" };
        let expected = |level: &str| Expected::of_flags(&[level, lto, "-DNDEBUG"]);
        let right = binary(&path, None, &expected("-O3")).unwrap();
        assert!(!right.has_violations(), "{compiler} {record}: {:?}", right.findings);
        let wrong = binary(&path, None, &expected("-O2")).unwrap();
        assert!(wrong.has_violations(), "{compiler} {record}");
    }
}

#[test]
fn protections_are_read_from_stripped_program() {
    let lab = Lab::new();
    let hard = "-O2 -s -pie -fPIE -Wl,-z,relro,-z,now -fstack-protector-all -fcf-protection";
    let path = program(&lab, "gcc", hard);
    let found = audit(&path, &["stack-protector=off", "fortify=off"]);
    let binary = &found.binaries[0];
    assert_eq!(binary.kind, BinaryKind::PieProgram);
    assert_eq!(binary.protections.relro, Relro::Full);
    assert_eq!(binary.protections.executable_stack, Some(false));
    assert!(binary.protections.stack_protector);
    assert!(!binary.records.symbols);
    assert_eq!(violations(&found)[0].0, Check::HardeningUnexpected);

    let soft = "-O2 -s -no-pie -Wl,-z,norelro -fno-stack-protector";
    let binary = &audit(&program(&lab, "gcc", soft), &[]).binaries[0];
    assert_eq!(binary.kind, BinaryKind::Program);
    assert_eq!(binary.protections.relro, Relro::None);
    assert!(!binary.protections.stack_protector);
}

#[test]
fn stripped_size_is_unchanged_by_strip() {
    let lab = Lab::new();
    let path = program(&lab, "gcc", "-O2 -g");
    let whole = audit(&path, &[]).binaries[0].sizes;
    lab.run("strip", "p");
    let stripped = audit(&path, &[]).binaries[0].sizes;
    assert_eq!(whole.text, stripped.text);
    assert!(whole.file > stripped.file);
    assert_eq!(whole.stripped, stripped.stripped);
}

/// A library with many functions that use extensions if allowed to.
fn many(lab: &Lab, flags: &str) -> PathBuf {
    let mut text = "unsigned long other(unsigned long a);\n".to_owned();
    for i in 0..300 {
        text.push_str(&format!(
            "unsigned long f{i}(unsigned long *a, unsigned long b) {{\n\
             for (int i = 0; i < 64; i++) a[i] = (a[i] << (b & 63)) & ~b;\n\
             return other(a[{i} & 63]) + (a[1] << (a[2] & 63)); }}\n"
        ));
    }
    lab.write("many.c", &text);
    lab.run("gcc", &format!("-O3 -fPIC -shared -s many.c -o many.so {flags}"));
    lab.path().join("many.so")
}

#[test]
fn instruction_set_is_detected_in_stripped_code() {
    let lab = Lab::new();
    let path = many(&lab, "-march=haswell");
    let leaked = audit(&path, &["march=baseline"]);
    assert_eq!(violations(&leaked), [(Check::MarchLeaked, "many.so".to_owned())]);
    let code = leaked.binaries[0].code.as_ref().unwrap();
    assert_eq!(code.found, FunctionsFrom::Unwinding);
    assert!(code.functions >= 300);
    assert!(code.extensions[&Extension::Avx2].functions >= 300, "{:?}", code.extensions);
    assert!(code.extensions[&Extension::Bmi].functions > 0);
    assert!(!audit(&path, &["march=native"]).has_violations());

    let path = many(&lab, "");
    assert!(!audit(&path, &["march=baseline"]).has_violations());
    let missing = audit(&path, &["march=native"]);
    assert_eq!(violations(&missing), [(Check::MarchMissing, "many.so".to_owned())]);
}

#[test]
fn frame_pointers_are_detected_in_stripped_code() {
    let lab = Lab::new();
    let with = audit(&many(&lab, "-fno-omit-frame-pointer"), &["frame-pointers=off"]);
    assert_eq!(violations(&with), [(Check::FramePointers, "many.so".to_owned())]);
    let without = audit(&many(&lab, ""), &["frame-pointers=off"]);
    assert!(!without.has_violations(), "{:?}", without.findings);
}

#[test]
fn functions_with_hardware_transactions_are_listed() {
    let lab = Lab::new();
    lab.write(
        "t.c",
        "int other(int x) { return x + 1; }\n\
         int elided(int *x) {\n\
           unsigned status = ~0u;\n\
           __asm__ volatile (\"xbegin 1f\\n1:\" : \"+a\"(status) :: \"memory\");\n\
           if (status == ~0u) { *x += 1; __asm__ volatile (\"xend\" ::: \"memory\"); }\n\
           return *x; }\n",
    );
    lab.run("gcc", "-O2 -fPIC -shared t.c -o t.so");
    let found = audit(&lab.path().join("t.so"), &[]);
    let names: Vec<String> =
        found.transactional().map(|(_, function)| function.readable()).collect();
    assert_eq!(names, ["elided"]);
    lab.run("strip", "t.so");
    let stripped = audit(&lab.path().join("t.so"), &[]);
    let (_, function) = stripped.transactional().next().unwrap();
    // It is exported, so even the stripped library has its name.
    assert_eq!(function.name.as_deref(), Some("elided"));
    assert!(function.size > 10);
}

#[test]
fn packaged_server_is_audited() {
    let path = Path::new("/usr/sbin/mariadbd");
    assert!(path.exists(), "mariadb-server is not installed: scripts/setup.sh test");
    let found = audit(path, &["march=baseline"]);
    assert!(!found.has_violations(), "{:?}", found.findings);
    let binary = &found.binaries[0];
    let code = binary.code.as_ref().unwrap();
    assert!(code.functions > 10_000, "{}", code.functions);
    assert!(binary.build_id.is_some());
    // Its checksum functions are selected at run time.
    let avx512 = code.extensions.get(&Extension::Avx512).map_or(0, |used| used.functions);
    assert!(avx512 < 100, "{avx512}");
    if cfg!(target_arch = "x86_64") {
        assert!(!code.transactional.is_empty(), "InnoDB has transactional locks");
    }
}

#[test]
fn build_audit_includes_linked_files_and_objects() {
    let lab = Lab::new();
    lab.write("src/p.c", PROGRAM);
    lab.run("gcc", "-g -O2 -c src/p.c -o src/p.o");
    lab.run("gcc", "src/p.o -o p");
    let linked = [lab.path().join("p")];
    let found = build(lab.path(), &linked, None, &expected(&[])).unwrap();
    assert_eq!(found.objects.len(), 1);
    assert_eq!(found.objects[0].component, "src");
    assert_eq!(found.binaries.len(), 1);
    assert_eq!(found.binaries[0].path, Path::new("p"));
}

#[test]
fn debug_file_of_another_build_is_not_used() {
    let lab = Lab::new();
    for (level, name) in [("-O3", "right"), ("-O0", "stale")] {
        program(&lab, "gcc", &format!("-g {level} -Wl,--build-id=none"));
        lab.run("objcopy", &format!("--only-keep-debug p {name}"));
    }
    program(&lab, "gcc", "-s -O3 -Wl,--build-id=none");
    fs::copy(lab.path().join("right"), lab.path().join("p.debug")).unwrap();
    lab.run("objcopy", "--add-gnu-debuglink=p.debug p");
    let level = || {
        let audit = audit(&lab.path().join("p"), &[]);
        (audit.binaries[0].records.debug, audit.objects[0].effective.optimization)
    };
    assert_eq!(level(), (true, Some(Optimization::O3)));
    fs::copy(lab.path().join("stale"), lab.path().join("p.debug")).unwrap();
    assert_eq!(level(), (false, None));
}

/// The C library in it has a stack protector.
#[test]
fn stack_protector_of_a_static_program_is_unknown() {
    let lab = Lab::new();
    let path = program(&lab, "gcc", "-O2 -s -static -fstack-protector-all");
    for expectation in ["stack-protector=off", "stack-protector=on"] {
        let found = audit(&path, &[expectation]);
        assert_eq!(violations(&found), [(Check::Unproven, "all".to_owned())], "{expectation}");
    }
}

#[test]
fn every_linked_file_without_link_time_code_is_reported() {
    let lab = Lab::new();
    lab.write("q.c", "int q(void) { return 2; }\n");
    lab.run("gcc", "-g -O2 -flto -ffat-lto-objects -fPIC -c q.c -o q.o");
    let linked = ["a.so", "b.so"].map(|name| {
        lab.run("gcc", &format!("-g -O2 -fno-lto -fno-use-linker-plugin -shared q.o -o {name}"));
        lab.path().join(name)
    });
    let found = build(lab.path(), &linked, None, &expected(&["lto=on"])).unwrap();
    let names: Vec<String> = violations(&found).into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["a.so", "b.so"]);
}

#[test]
fn archive_members_are_read_and_named() {
    let lab = Lab::new();
    lab.object("gcc", "-g -O3", "one.o");
    lab.object("gcc", "-g -O1", "a-member-with-a-very-long-name.o");
    lab.run("ar", "rcs libx.a one.o a-member-with-a-very-long-name.o");
    let archive = lab.path().join("libx.a");
    let audit = binary(&archive, None, &expected(&["optimization=O3"])).unwrap();
    assert_eq!(audit.objects.len(), 2);
    let wrong = "libx.a(a-member-with-a-very-long-name.o)";
    assert_eq!(violations(&audit), [(Check::OptimizationLevel, wrong.to_owned())]);
    assert_eq!(object(&audit, "libx.a(one.o)").effective.optimization, Some(Optimization::O3));
}

#[test]
fn archive_member_that_is_also_an_object_counts_once() {
    let lab = Lab::new();
    lab.object("gcc", "-g -O3", "one.o");
    lab.object("gcc", "-g -O2 -fPIC", "two.o");
    lab.run("ar", "rcs libx.a one.o two.o");
    fs::remove_file(lab.path().join("two.o")).unwrap();
    let audit = lab.audit(&[]);
    let names: Vec<String> = audit.objects.iter().map(|object| object.name()).collect();
    assert_eq!(names, ["libx.a(two.o)", "one.o"]);
}

#[test]
fn thin_archive_members_are_not_counted_twice() {
    let lab = Lab::new();
    lab.object("gcc", "-g -O3", "one.o");
    lab.run("ar", "rcsT libx.a one.o");
    assert_eq!(lab.audit(&[]).objects.len(), 1);
}

#[test]
fn thin_archive_is_read_through_its_files() {
    let lab = Lab::new();
    lab.object("gcc", "-g -O2", "objects/one.o");
    fs::create_dir(lab.path().join("lib")).unwrap();
    lab.run("ar", "rcsT lib/libx.a objects/one.o");
    let library = lab.path().join("lib/libx.a");
    let audit = |what: &str| binary(&library, None, &expected(&[what])).unwrap();
    assert_eq!(audit("optimization=O2").findings, []);
    assert_eq!(violations(&audit("optimization=O0"))[0].0, Check::OptimizationLevel);
    let of_directory =
        |what: &str| build(&lab.path().join("lib"), &[], None, &expected(&[what])).unwrap();
    assert_eq!(violations(&of_directory("optimization=O0"))[0].0, Check::OptimizationLevel);
    fs::remove_file(lab.path().join("objects/one.o")).unwrap();
    for gone in [audit("optimization=O2"), of_directory("optimization=O2")] {
        assert_eq!(violations(&gone), [(Check::Unproven, "all".to_owned())]);
        assert!(gone.unreadable[0].reason.contains("does not exist"), "{:?}", gone.unreadable);
    }
}

#[test]
fn no_objects_are_never_what_was_expected() {
    let lab = Lab::new();
    lab.run("ar", "rcs empty.a");
    lab.write("b.s", ".globl f\nf: ret\n");
    lab.run("gcc", "-c b.s -o b.o");
    for file in ["empty.a", "b.o"] {
        let path = lab.path().join(file);
        let audit = |expectations: &[&str]| binary(&path, None, &expected(expectations)).unwrap();
        assert_eq!(violations(&audit(&["optimization=O2"])), [(Check::Unproven, "all".to_owned())]);
        assert_eq!(audit(&[]).findings, []);
    }
}

#[test]
fn archive_member_with_the_name_and_size_of_another_object_is_kept() {
    let lab = Lab::new();
    lab.write("a.c", "int f(int x) { return x + 1; }\n");
    let size = |object: &str| fs::metadata(lab.path().join(object)).unwrap().len();
    lab.object("gcc", "-g -O2", "one.o");
    lab.run("ar", "rcs libx.a one.o");
    let of_member = size("one.o");
    lab.object("gcc", "-g -O3", "one.o");
    assert_eq!(size("one.o"), of_member);
    let audit = lab.audit(&["optimization=O3"]);
    let wrong = "libx.a(one.o)";
    assert_eq!(violations(&audit), [(Check::OptimizationLevel, wrong.to_owned())]);
}

/// Paths of more than 4096 bytes cannot be opened.
#[test]
fn directory_that_cannot_be_read_is_listed() {
    let lab = Lab::new();
    lab.object("gcc", "-g -O3", "one.o");
    // It creates them one by one, from inside of each.
    lab.run("mkdir", &format!("-p {}", vec!["d".repeat(200); 25].join("/")));
    let audit = lab.audit(&[]);
    assert_eq!(audit.objects.len(), 1);
    assert_eq!(audit.unreadable.len(), 1, "{:?}", audit.unreadable);
    assert!(audit.unreadable[0].reason.contains("name too long"), "{:?}", audit.unreadable);
}
