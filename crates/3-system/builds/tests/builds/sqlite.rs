//! SQLite builds with the installed compilers. Compiling takes seconds even without optimization,
//! so each compiler does it once; tests that need no real compiler are in `cache.rs`.

use std::fs;
use std::path::Path;

use dbdyno_builds::{
    Build, BuildError, Builder, Compiler, CompilerKind, Request, Source, Variant,
    installed_compilers,
};
use object::read::{Object, ObjectSection, ObjectSymbol};

use crate::common::cache_in;

fn request(compiler: &Compiler, variant: &str, extra_flags: &[&str]) -> Request {
    Request {
        extra_flags: extra_flags.iter().map(|flag| (*flag).to_owned()).collect(),
        ..Request::new(
            Source::bundled_sqlite(),
            Variant::by_name(variant).unwrap(),
            compiler.clone(),
        )
    }
}

fn build(cache: &Path, request: Request) -> Result<Build, BuildError> {
    Builder::new(cache_in(cache, "")).build(&[request], &|_| {}).remove(0)
}

/// The compiler; tests are skipped if it is not installed.
fn compiler(name: &str) -> Option<Compiler> {
    let found = Compiler::find(name);
    if found.is_err() {
        dbdyno_fuzz::skip(&format!("no {name} here"));
    }
    found.ok()
}

/// The flags as read by the flag audit.
fn recorded_flags(library: &[u8]) -> String {
    let library = object::File::parse(library).unwrap();
    let section = library.section_by_name(".GCC.command.line").unwrap();
    String::from_utf8_lossy(section.data().unwrap()).into_owned()
}

fn compiles_to_a_library(compiler: &Compiler) {
    let cache = tempfile::tempdir().unwrap();
    let made = build(cache.path(), request(compiler, "o0", &[])).unwrap();
    assert_eq!(made.source_version, Source::bundled_sqlite().version());
    assert_eq!(made.compiler.version, compiler.version);
    assert!(made.flags.contains(&"-O0".to_owned()));
    assert!(made.text_size < made.executable_size);
    assert!(made.executable_size < made.stripped_size);
    assert!(made.stripped_size < made.file_size);

    let content = fs::read(&made.artifact).unwrap();
    let library = object::File::parse(&*content).unwrap();
    let exports: Vec<&str> =
        library.dynamic_symbols().filter(|s| s.is_definition()).flat_map(|s| s.name()).collect();
    for name in ["sqlite3_open_v2", "sqlite3_prepare_v2", "sqlite3_step", "sqlite3_libversion"] {
        assert!(exports.contains(&name), "{name}");
    }
    let recorded = recorded_flags(&content);
    assert!(recorded.contains("-O0"), "{recorded}");

    let json = fs::read_to_string(made.artifact.with_file_name("build.json")).unwrap();
    assert_eq!(serde_json::from_str::<Build>(&json).unwrap(), made);
    let again = build(cache.path(), request(compiler, "o0", &[])).unwrap();
    assert_eq!(again, made);
}

#[test]
fn gcc_builds_library() {
    if let Some(gcc) = compiler("gcc") {
        assert_eq!(gcc.kind, CompilerKind::Gcc);
        compiles_to_a_library(&gcc);
    }
}

#[test]
fn clang_builds_library() {
    if let Some(clang) = compiler("clang") {
        assert_eq!(clang.kind, CompilerKind::Clang);
        compiles_to_a_library(&clang);
    }
}

#[test]
fn gcc_lto_library_records_ltrans() {
    let Some(gcc) = compiler("gcc") else { return };
    if let Err(reason) = gcc.lto_linker() {
        return dbdyno_fuzz::skip(&reason.to_string());
    }
    let cache = tempfile::tempdir().unwrap();
    let made = build(cache.path(), request(&gcc, "o0", &["-flto"])).unwrap();
    let recorded = recorded_flags(&fs::read(&made.artifact).unwrap());
    assert!(recorded.contains("-fltrans"), "{recorded}");
}

#[test]
fn failing_flag_is_reported_with_compiler_message() {
    let cache = tempfile::tempdir().unwrap();
    for compiler in ["gcc", "clang"].into_iter().filter_map(compiler) {
        let flags = ["-include", "/nonexistent dir/dbdyno.h"];
        let error = build(cache.path(), request(&compiler, "o0", &flags)).unwrap_err();
        let BuildError::Failed(failure) = &error else { panic!("{error}") };
        assert!(failure.command.contains(" -include '/nonexistent dir/dbdyno.h' -c "), "{error}");
        assert!(failure.message.contains("dbdyno.h"), "{error}");
        assert!(
            failure.message.to_lowercase().contains("file not found")
                || failure.message.contains("No such file"),
            "{error}"
        );
        assert!(failure.log.is_file(), "{error}");
    }
}

#[test]
fn missing_compiler_error_lists_installed_ones() {
    let error = Compiler::find("gcc-1.0-missing").unwrap_err();
    let installed = format!("on the PATH: {};", installed_compilers().join(", "));
    assert!(error.to_string().contains(&installed), "{error}");
}

#[test]
fn lto_linker_works_or_error_has_advice() {
    for compiler in ["gcc", "clang"].into_iter().filter_map(compiler) {
        match compiler.lto_linker() {
            Ok(flags) => assert!(flags.is_empty() || flags == ["-fuse-ld=lld"], "{flags:?}"),
            Err(error) => assert!(error.to_string().contains("\ntry "), "{error}"),
        }
    }
}
