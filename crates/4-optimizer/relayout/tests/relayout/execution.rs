//! Copies and originals are executed in this process and compared.

use std::sync::Mutex;

use crate::support::{self, Random, Victim, call, case, compile, source};
use dbdyno_relayout::{FunctionOrder, Module, Options, Samples, optimize, verify};

/// Test libraries have global state (a jump buffer), so tests run one at a time.
static EXCLUSIVE: Mutex<()> = Mutex::new(());

/// Waits for the other tests that call functions of test libraries.
pub fn exclusive() -> std::sync::MutexGuard<'static, ()> {
    EXCLUSIVE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

const CALLS: u64 = 100;

/// Samples at random instructions of all functions.
fn random_samples(victim: &Victim, seed: u64) -> Samples {
    let mut random = Random(seed);
    let mut samples = victim.sample_all();
    // A plain copy lists the addresses of all instructions.
    let plain = Options { reorder_blocks: false, coverage: 1.0, ..Options::default() };
    let installed = victim.install(&victim.sample_all(), &plain);
    for (original, _) in installed.relayout.map.pairs() {
        if random.below(4) == 0 {
            samples.add_hit(original, random.below(1000) + 1);
        }
    }
    samples
}

fn options() -> Vec<Options> {
    let all = Options { coverage: 1.0, ..Options::default() };
    vec![
        all.clone().in_original_order(),
        Options { function_order: FunctionOrder::Address, align_loops: false, ..all.clone() },
        Options { copy_cold: false, jump_tables: false, bypass_plt: false, ..all.clone() },
        all,
    ]
}

/// Compares copies with originals, then runs the originals with patched entries, then with the
/// patches undone.
fn check(victim: &Victim) {
    for (round, options) in options().iter().enumerate() {
        let samples = match round {
            0 => victim.sample_all(),
            _ => random_samples(victim, round as u64),
        };
        let installed = victim.install(&samples, options);
        let expected: Vec<_> = victim
            .cases
            .iter()
            .filter(|(name, _)| name != "case_thrower" && name != "case_deep")
            .map(|(name, address)| {
                let results: Vec<_> = (0..CALLS).map(|seed| call(case(*address), seed)).collect();
                (name, *address, results)
            })
            .collect();
        assert!(expected.len() > 2, "only {} cases", expected.len());
        let mut copied = 0;
        for (name, address, results) in &expected {
            let Some(copy) = installed.copy(*address) else { continue };
            copied += 1;
            for (seed, result) in (0..CALLS).zip(results) {
                assert_eq!(call(copy, seed), *result, "copy of {name}, call {seed}");
            }
        }
        assert!(copied * 10 >= expected.len() * 8, "{:?}", installed.relayout.statistics);
        for on in [true, false] {
            installed.set_patched(on);
            for (name, address, results) in &expected {
                for (seed, result) in (0..CALLS).zip(results) {
                    let got = call(case(*address), seed);
                    assert_eq!(got, *result, "{name}, call {seed}, patched {on}");
                }
            }
        }
    }
}

fn check_source(name: &str, builds: &[(&str, &[&str])]) {
    let directory = tempfile::tempdir().unwrap();
    for (index, (compiler, arguments)) in builds.iter().enumerate() {
        let out = directory.path().join(format!("{name}-{compiler}-{index}.so"));
        compile(compiler, &source(name), arguments, &out);
        let guard = exclusive();
        check(&Victim::load(&out));
        drop(guard);
    }
}

#[test]
fn copies_of_c_functions_return_the_same_results() {
    check_source(
        "shapes.c",
        &[
            ("gcc", &["-O0"]),
            ("clang", &["-O1"]),
            ("gcc", &["-O2", "-fcf-protection=full"]),
            ("clang", &["-O3", "-s"]),
            ("gcc", &["-O3", "-Wl,-z,now"]),
            ("gcc", &["-Os", "-fno-plt"]),
        ],
    );
}

#[test]
fn exceptions_pass_through_copies() {
    check_source(
        "throws.cc",
        &[
            ("g++", &["-O0"]),
            ("clang++", &["-O1"]),
            ("g++", &["-O2", "-fno-dwarf2-cfi-asm"]),
            ("g++", &["-O2", "-fcf-protection=full"]),
            ("clang++", &["-O3", "-s", "-Wl,-z,now"]),
        ],
    );
}

#[test]
fn copies_of_random_functions_return_the_same_results() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("random.c");
    for (seed, compiler, level) in
        [(1, "gcc", "-O1"), (2, "gcc", "-O2"), (3, "clang", "-O2"), (4, "gcc", "-O3")]
    {
        std::fs::write(&source, support::random_program(seed, 40)).unwrap();
        let out = directory.path().join(format!("random-{seed}.so"));
        compile(compiler, &source, &[level], &out);
        let guard = exclusive();
        check(&Victim::load(&out));
        drop(guard);
    }
}

/// Every changed bit of a copy must be detected, or the proof proves nothing.
#[test]
fn verify_detects_changed_bits() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("throws.so");
    compile("g++", &source("throws.cc"), &["-O2"], &out);
    let file = std::fs::read(&out).unwrap();
    let module = Module::parse("throws", &file, 0x7f00_0000_0000).unwrap();
    let mut samples = Samples::default();
    for function in module.functions() {
        samples.add_hit(function.start, 5);
    }
    let mut nowhere = support::Nowhere;
    let options = Options { coverage: 1.0, ..Options::default() };
    let relayout = optimize(&[&module], &samples, &options, &mut nowhere).unwrap();
    verify(&[&module], &relayout).unwrap();
    let mut random = Random(7);
    let (mut tried, mut missed) = (0, Vec::new());
    for symbol in &relayout.symbols {
        for _ in 0..15 {
            let at = symbol.address + random.below(symbol.size);
            let bit = random.below(8);
            let mut changed = relayout.clone();
            let region =
                changed.regions.iter_mut().find(|region| region.range().contains(&at)).unwrap();
            region.bytes[(at - region.address) as usize] ^= 1 << bit;
            tried += 1;
            if verify(&[&module], &changed).is_ok() {
                missed.push((at, bit));
            }
        }
    }
    assert!(tried > 60 && missed.is_empty(), "{missed:x?} of {tried}");
    let section = &relayout.frames[0];
    let mut detected = 0;
    for _ in 0..200 {
        let at = section.address + random.below(section.size);
        let mut changed = relayout.clone();
        let region =
            changed.regions.iter_mut().find(|region| region.range().contains(&at)).unwrap();
        region.bytes[(at - region.address) as usize] ^= 1 << random.below(8);
        detected += usize::from(verify(&[&module], &changed).is_err());
    }
    // The others are in padding, or change the order of independent rules.
    assert!(detected > 140, "{detected} of 200 changes of frame descriptions detected");
}
