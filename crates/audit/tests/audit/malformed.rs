//! Malformed files: an error, never a panic.

use std::fs;
use std::path::Path;

use dbdyno_audit::{AuditError, Expected, binary, build};
use proptest::prelude::*;

use crate::lab::Lab;

/// One file of each supported kind.
fn samples() -> Vec<Vec<u8>> {
    let lab = Lab::new();
    lab.object("gcc", "-g -O2", "gcc.o");
    lab.object("gcc", "-g -O2 -flto -frecord-gcc-switches", "lto.o");
    lab.object("clang", "-g -grecord-command-line -O2", "clang.o");
    lab.object("clang", "-O2 -flto -g", "bitcode.o");
    lab.run("ar", "rcs lib.a gcc.o clang.o");
    lab.write("p.c", "int main(void) { return 0; }\n");
    lab.run("gcc", "-g p.c -o program");
    ["gcc.o", "lto.o", "clang.o", "bitcode.o", "lib.a", "program"]
        .iter()
        .map(|name| fs::read(lab.path().join(name)).unwrap())
        .collect()
}

/// Audits the content; an error is accepted, a panic or an endless loop is not.
fn survives(path: &Path, content: &[u8]) {
    fs::write(path, content).unwrap();
    let _ = binary(path, None, &Expected::default());
}

#[test]
fn truncated_files_do_not_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut");
    for sample in samples() {
        for part in 0..64 {
            survives(&path, &sample[..sample.len() * part / 64]);
        }
        for length in 0..80 {
            survives(&path, &sample[..length.min(sample.len())]);
        }
    }
}

#[test]
fn corrupted_files_do_not_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wrong");
    let samples = samples();
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) };
    proptest!(config, |(which in 0..samples.len(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40))| {
        let mut content = samples[which].clone();
        for (place, value) in changes {
            let place = place.index(content.len());
            content[place] = value;
        }
        survives(&path, &content);
    });
}

#[test]
fn broken_object_is_listed_and_others_are_read() {
    let lab = Lab::new();
    lab.object("gcc", "-g -O2", "good.o");
    let whole = fs::read(lab.path().join("good.o")).unwrap();
    fs::write(lab.path().join("broken.o"), &whole[..100]).unwrap();
    fs::write(lab.path().join("empty.o"), "").unwrap();
    let audit = build(lab.path(), &[], None, &Expected::default()).unwrap();
    assert_eq!(audit.objects.len(), 1);
    assert_eq!(audit.unreadable.len(), 1);
    assert_eq!(audit.unreadable[0].path, Path::new("broken.o"));
    let error = binary(&lab.path().join("broken.o"), None, &Expected::default()).unwrap_err();
    assert!(matches!(error, AuditError::Broken { .. }), "{error}");
}

#[test]
fn error_names_file_that_is_not_compiled() {
    let lab = Lab::new();
    let error = |path: &Path| binary(path, None, &Expected::default()).unwrap_err().to_string();
    assert!(error(&lab.path().join("a.c")).contains("a.c is no ELF program"));
    assert!(error(&lab.path().join("missing")).contains("No such file"));
    let error = build(lab.path(), &[], None, &Expected::default()).unwrap_err();
    assert!(matches!(error, AuditError::Nothing(_)), "{error}");
}
