//! Malformed files: an error, never a panic.

use std::fs;
use std::path::Path;

use dbdyno_audit::{Expected, binary};
use dbdyno_fuzz::Fuzz;

use crate::lab::{Lab, build};

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
    lab.object("gcc", "-g -gz=zlib", "compressed.o");
    lab.object("clang", "-O2 -flto=thin", "thin.o");
    lab.run("gcc", "-O2 -s p.c -o stripped");
    lab.object("gcc", "-g -gsplit-dwarf -O2", "split.o");
    lab.run("ar", "rcsT thin.a split.o");
    [
        "gcc.o",
        "lto.o",
        "clang.o",
        "bitcode.o",
        "lib.a",
        "program",
        "compressed.o",
        "thin.o",
        "stripped",
        "split.o",
        "thin.a",
    ]
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

/// ELF, DWARF and bitcode.
#[test]
fn damaged_files_are_read_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wrong");
    Fuzz::new(samples()).run(|content| survives(&path, content));
}

#[test]
fn implausible_compression_is_refused() {
    let lab = Lab::new();
    lab.write("bomb.s", ".section .debug_info,\"\",@progbits\n.zero 100000000\n");
    lab.run("as", "--compress-debug-sections=zlib bomb.s -o bomb.o");
    let file = lab.path().join("bomb.o");
    assert!(fs::metadata(&file).unwrap().len() < 200_000);
    let error = binary(&file, None, &Expected::default()).map(drop).unwrap_err().to_string();
    assert!(error.contains(".debug_info") && error.contains("stand for 100000000"), "{error}");
}

#[test]
fn text_that_is_repeated_too_often_is_refused() {
    let lab = Lab::new();
    // 10,000 units with the same command line of 100,000 bytes.
    let source = ".section .debug_abbrev,\"\",@progbits\n\
                  .byte 1, 0x11, 0, 0x25, 0x0e, 0, 0, 0\n\
                  .section .debug_info,\"\",@progbits\n.rept 10000\n\
                  .long 12\n.value 4\n.long 0\n.byte 8, 1\n.long 0\n.endr\n\
                  .section .debug_str,\"\",@progbits\n.fill 100000, 1, 0x61\n.byte 0\n";
    lab.write("repeat.s", source);
    lab.run("as", "repeat.s -o repeat.o");
    let file = lab.path().join("repeat.o");
    // Without the audit, which is a gigabyte if this fails.
    let error = binary(&file, None, &Expected::default()).map(drop).unwrap_err().to_string();
    assert!(error.contains("repeats text beyond"), "{error}");
}

#[test]
fn only_regular_files_are_read() {
    let lab = Lab::new();
    lab.run("mkfifo", "pipe");
    let pipe = lab.path().join("pipe");
    // Opening it would wait for a writer.
    let error = binary(&pipe, None, &Expected::default()).unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
    let object = lab.object("gcc", "-g -O2", "a.o");
    let error = binary(&object, Some(&pipe), &Expected::default()).unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
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
    assert!(error.is_damaged, "{error}");
}

#[test]
fn error_names_file_that_is_not_compiled() {
    let lab = Lab::new();
    let error = |path: &Path| binary(path, None, &Expected::default()).unwrap_err().to_string();
    assert!(error(&lab.path().join("a.c")).contains("a.c is not an ELF file"));
    assert!(error(&lab.path().join("missing")).contains("No such file"));
    let error = build(lab.path(), &[], None, &Expected::default()).unwrap_err();
    assert!(error.to_string().contains("no objects, archives or programs"), "{error}");
}
