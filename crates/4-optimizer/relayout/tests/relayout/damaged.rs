//! Damaged and unsupported files cause errors, never a panic.

use std::cell::Cell;

use dbdyno_fuzz::Fuzz;

use crate::support::{Nowhere, Random, compile, source};
use dbdyno_relayout::{
    BoltProfile, BranchCount, Executions, Module, ModuleError, ModuleProfile, Options, Profile,
    Samples, optimize, verify,
};

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

/// ELF, unwind information and machine code.
#[test]
fn damaged_files_are_read_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let build = |compiler, name: &str, arguments: &[&str]| {
        let out = directory.path().join("victim.so");
        compile(compiler, &source(name), arguments, &out);
        std::fs::read(&out).unwrap()
    };
    let samples = vec![
        build("g++", "throws.cc", &["-O2"]),
        build("gcc", "shapes.c", &["-O1", "-s"]),
        build("clang", "shapes.c", &["-O2", "-g"]),
    ];
    let parsed = Cell::new(0);
    Fuzz::new(samples).run(|file| {
        let Ok(module) = Module::parse("damaged", file, 0x7f00_0000_0000) else { return };
        parsed.set(parsed.get() + 1);
        let mut random = Random(11);
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
    });
    assert!(parsed.get() > 50, "only {} damaged files could be read", parsed.get());
}

/// Profiles are files that others may have made: any number of samples at any offset.
#[test]
fn damaged_profiles_are_used_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("shapes.so");
    compile("gcc", &source("shapes.c"), &["-O2"], &out);
    let module = Module::parse("shapes", &std::fs::read(&out).unwrap(), 0x7f00_0000_0000).unwrap();
    let samples: Vec<u64> = (1..)
        .zip(module.functions())
        .flat_map(|(number, function)| {
            let start = module.to_offset(function.start);
            [start + 7, number, start, 3 * number, number]
        })
        .collect();
    let bytes = samples.iter().flat_map(|number| number.to_le_bytes()).collect();
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let [used, refused] = [Cell::new(0), Cell::new(0)];
    Fuzz::new(vec![bytes]).run(|bytes| {
        let mut samples = Profile::default();
        let mut of_module = ModuleProfile {
            name: module.name().to_owned(),
            build_id: module.build_id().map(str::to_owned),
            ..ModuleProfile::default()
        };
        for sample in bytes.chunks_exact(40) {
            let [at, hits, to, taken, mispredicted] =
                [0, 8, 16, 24, 32].map(|at| number(&sample[at..at + 8]));
            of_module.hits.insert(at, hits);
            of_module.branches.push((at, to, BranchCount { taken, mispredicted }));
            of_module.fall_throughs.push((at, at.wrapping_add(mispredicted), taken));
        }
        samples.modules.push(of_module);
        let text = serde_json::to_vec(&samples).unwrap();
        let Ok(profile) = serde_json::from_slice::<Profile>(&text) else {
            return refused.set(refused.get() + 1);
        };
        let (samples, unused) = profile.to_samples(&[&module]);
        assert!(unused.is_empty());
        used.set(used.get() + 1);
        let _ = (samples.total(), Executions::of(&module, &samples));
        let _ = BoltProfile::new(&module, &samples);
        if let Ok(relayout) = optimize(&[&module], &samples, &Options::default(), &mut Nowhere) {
            verify(&[&module], &relayout).unwrap();
        }
    });
    assert!(used.get() > 50 && refused.get() > 10, "{used:?} used, {refused:?} refused");
}

/// A few bytes of program headers can refer to the same large part of a file many times.
#[test]
fn overlapping_segments_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("shapes.so");
    compile("gcc", &source("shapes.c"), &["-O1"], &out);
    let mut file = std::fs::read(&out).unwrap();
    let end = file.len();
    let number = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
    let first = number(32) as usize;
    let header = file[first..first + 56].to_vec();
    for _ in 0..1000 {
        let mut whole = header.clone();
        // PT_LOAD, readable and executable, from the start of the file.
        whole[0..8].copy_from_slice(&[1, 0, 0, 0, 5, 0, 0, 0]);
        whole[8..32].fill(0);
        whole[32..40].copy_from_slice(&(end as u64).to_le_bytes());
        whole[40..48].copy_from_slice(&(end as u64).to_le_bytes());
        file.extend(whole);
    }
    file[32..40].copy_from_slice(&(end as u64).to_le_bytes());
    file[56..58].copy_from_slice(&1000_u16.to_le_bytes());
    let error = Module::parse("overlapping", &file, 0).unwrap_err().to_string();
    assert!(error.contains("overlapping segments"), "{error}");
}
