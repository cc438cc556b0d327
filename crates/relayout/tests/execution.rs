//! Copies are executed beside their originals, in this process.

mod support;

use std::sync::Mutex;

use dbdyno_relayout::{Options, Samples};
use support::{Random, Victim, call, case, compile, source};

/// Victims have state of their own (a jump buffer): one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

const CALLS: u64 = 300;

/// Samples at random instructions of all functions, as if something had run.
fn random_samples(victim: &Victim, seed: u64) -> Samples {
    let mut random = Random(seed);
    let mut samples = victim.sample_all();
    // Addresses of real instructions: those of a plain copy.
    let plain = Options { reorder_blocks: false, coverage: 1.0, ..Options::default() };
    let relaid = victim.relay(&victim.sample_all(), &plain);
    for (original, _) in relaid.relayout.map.pairs() {
        if random.below(4) == 0 {
            samples.add_hit(original, random.below(1000) + 1);
        }
    }
    samples
}

fn options() -> Vec<Options> {
    let all = Options { coverage: 1.0, ..Options::default() };
    vec![
        Options { reorder_blocks: false, reorder_functions: false, ..all.clone() },
        Options { copy_cold: false, jump_tables: false, bypass_plt: false, ..all.clone() },
        all,
    ]
}

/// Compares copies with originals, then runs the originals with their entries patched, and after
/// that undone.
fn check(victim: &Victim) {
    for (round, options) in options().iter().enumerate() {
        let samples = match round {
            0 => victim.sample_all(),
            _ => random_samples(victim, round as u64),
        };
        let relaid = victim.relay(&samples, options);
        let expected: Vec<_> = victim
            .cases
            .iter()
            .filter(|(name, _)| name != "case_thrower" && name != "case_deep")
            .map(|(name, address)| {
                let answers: Vec<_> = (0..CALLS).map(|seed| call(case(*address), seed)).collect();
                (name, *address, answers)
            })
            .collect();
        assert!(expected.len() > 2, "only {} cases", expected.len());
        let mut copied = 0;
        for (name, address, answers) in &expected {
            let Some(copy) = relaid.copy(*address) else { continue };
            copied += 1;
            for (seed, answer) in (0..CALLS).zip(answers) {
                assert_eq!(call(copy, seed), *answer, "copy of {name}, call {seed}");
            }
        }
        assert!(copied * 10 >= expected.len() * 8, "{:?}", relaid.relayout.statistics);
        for on in [true, false] {
            relaid.switch(on);
            for (name, address, answers) in &expected {
                for (seed, answer) in (0..CALLS).zip(answers) {
                    let got = call(case(*address), seed);
                    assert_eq!(got, *answer, "{name}, call {seed}, switched {on}");
                }
            }
        }
    }
}

fn check_source(compilers: &[&str], name: &str, arguments: &[&[&str]]) {
    let directory = tempfile::tempdir().unwrap();
    for (index, arguments) in arguments.iter().enumerate() {
        for compiler in compilers {
            let out = directory.path().join(format!("{name}-{compiler}-{index}.so"));
            compile(compiler, &source(name), arguments, &out);
            let alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            check(&Victim::load(&out));
            drop(alone);
        }
    }
}

#[test]
fn copies_of_c_functions_give_the_same_answers() {
    check_source(
        &["gcc", "clang"],
        "shapes.c",
        &[
            &["-O0"],
            &["-O1"],
            &["-O2", "-fcf-protection=full"],
            &["-O3", "-s"],
            &["-Os", "-fno-plt"],
            &["-O2", "-Wl,-z,now"],
        ],
    );
}

#[test]
fn exceptions_pass_through_copies() {
    check_source(
        &["g++", "clang++"],
        "throws.cc",
        &[&["-O0"], &["-O1"], &["-O2", "-fcf-protection=full"], &["-O3", "-s", "-Wl,-z,now"]],
    );
}
