//! Damaged and unsupported files cause errors, never a panic.

use crate::support::{Nowhere, Random, compile, source};
use dbdyno_relayout::{Module, ModuleError, Options, Samples, optimize, verify};

#[test]
fn unsupported_files_are_rejected_with_a_reason() {
    let text = Module::parse("notes", b"hello", 0).unwrap_err();
    assert!(text.to_string().starts_with("notes: cannot be read as an ELF file"), "{text}");
    let mut header = vec![0; 64];
    header[..7].copy_from_slice(b"\x7fELF\x01\x01\x01");
    let narrow = Module::parse("old", &header, 0).unwrap_err();
    assert!(narrow.to_string().contains("a 32-bit ELF file"), "{narrow}");
    header[4] = 2;
    header[18] = 0xb7;
    let other = Module::parse("arm", &header, 0).unwrap_err();
    assert!(matches!(other, ModuleError::Unsupported { .. }), "{other}");
}

#[test]
fn damaged_files_never_cause_a_panic() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("throws.so");
    compile("g++", &source("throws.cc"), &["-O2"], &out);
    let file = std::fs::read(&out).unwrap();
    let mut random = Random(11);
    let mut parsed = 0;
    for _ in 0..400 {
        let mut damaged = file.clone();
        for _ in 0..=random.below(20) {
            let at = random.below(damaged.len() as u64) as usize;
            damaged[at] = random.next() as u8;
        }
        if random.below(8) == 0 {
            damaged.truncate(random.below(file.len() as u64) as usize);
        }
        let Ok(module) = Module::parse("damaged", &damaged, 0x7f00_0000_0000) else { continue };
        parsed += 1;
        let mut samples = Samples::default();
        for function in module.functions() {
            samples.add_hit(function.start, 1 + random.below(9));
        }
        let options = Options { coverage: 1.0, ..Options::default() };
        if let Ok(relayout) = optimize(&[&module], &samples, &options, &mut Nowhere) {
            // Damaged code is still copied faithfully.
            if let Err(difference) = verify(&[&module], &relayout) {
                panic!("{difference}");
            }
        }
    }
    assert!(parsed > 100, "only {parsed} damaged files could be read");
}
