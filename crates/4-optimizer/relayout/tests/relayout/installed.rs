//! Copies of all functions of installed binaries are proven equivalent.

use dbdyno_relayout::{Module, Options, RejectReason, Relayout, Samples, optimize, verify};

use crate::support::Nowhere;

/// One sample at the start of every `step`-th function.
fn sample_every(module: &Module, step: usize) -> Samples {
    let mut samples = Samples::default();
    for function in module.functions().iter().step_by(step) {
        samples.add_hit(function.start, 1);
    }
    samples
}

fn optimize_file(path: &str, bias: u64, step: usize, options: &Options) -> Relayout {
    let file = std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let module = Module::parse(path, &file, bias).unwrap();
    let samples = sample_every(&module, step);
    let relayout = optimize(&[&module], &samples, options, &mut Nowhere).unwrap();
    if let Err(difference) = verify(&[&module], &relayout) {
        panic!("{path}: {difference}");
    }
    relayout
}

/// Whether a file is a program that is not position-independent.
fn is_at_fixed_address(path: &str) -> bool {
    let file = std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    // e_type is ET_EXEC.
    file.get(16..18) == Some(&[2, 0][..])
}

fn no_limits() -> Options {
    Options { coverage: 1.0, max_bytes: u64::MAX, ..Options::default() }
}

#[test]
fn copies_of_libc_are_equivalent() {
    let path = "/lib/x86_64-linux-gnu/libc.so.6";
    let relayout = optimize_file(path, 0x7f12_3456_7000, 1, &no_limits());
    let statistics = relayout.statistics;
    assert!(statistics.functions_moved * 100 > statistics.functions_seen * 75, "{statistics:?}");
}

#[test]
fn copies_of_mariadbd_are_equivalent() {
    let path = "/usr/sbin/mariadbd";
    let step = if cfg!(debug_assertions) { 20 } else { 1 };
    let relayout = optimize_file(path, 0x5555_5555_4000, step, &no_limits());
    let statistics = relayout.statistics;
    let too_small = statistics.rejected.get(&RejectReason::TooSmall).copied().unwrap_or(0);
    let large_enough = statistics.functions_seen - too_small;
    assert!(statistics.functions_moved * 100 > large_enough * 98, "{statistics:?}");
}

/// `DBDYNO_PROVE` is a list of programs and libraries, separated by colons, that are checked, too.
#[test]
fn copies_of_all_functions_of_named_files_are_equivalent() {
    let files = std::env::var_os("DBDYNO_PROVE").unwrap_or_else(|| "/bin/bash".into());
    for path in std::env::split_paths(&files) {
        let path = path.to_str().unwrap();
        let bias = if is_at_fixed_address(path) { 0 } else { 0x5555_5555_4000 };
        let statistics = optimize_file(path, bias, 1, &no_limits()).statistics;
        eprintln!("{path}: {statistics:#?}");
        assert!(statistics.functions_moved > 0, "{path}");
    }
}
