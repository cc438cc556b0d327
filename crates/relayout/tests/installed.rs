//! Every function of installed binaries: copied, decoded again, compared.
#![allow(clippy::unwrap_used, reason = "as in tests, for their helpers")]

use dbdyno_relayout::{
    AddressSpace, Module, Options, RegionRequest, RejectReason, Relayout, Samples, optimize, verify,
};

/// Room behind the module, and no knowledge of its memory.
struct Behind;

impl AddressSpace for Behind {
    fn reserve(&mut self, request: &RegionRequest) -> Option<u64> {
        Some(request.latest & !0xfff)
    }

    fn read_slot(&self, _address: u64) -> Option<u64> {
        None
    }
}

/// One sample in every `step`-th function, at its first address.
fn sample_every(module: &Module, step: usize) -> Samples {
    let mut samples = Samples::default();
    for function in module.functions().iter().step_by(step) {
        samples.add_hit(function.start, 1);
    }
    samples
}

fn relay(path: &str, bias: u64, step: usize, options: &Options) -> Relayout {
    let file = std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let module = Module::parse(path, &file, bias).unwrap();
    let samples = sample_every(&module, step);
    let relayout = optimize(&[&module], &samples, options, &mut Behind).unwrap();
    if let Err(difference) = verify(&[&module], &relayout) {
        panic!("{path}: {difference}");
    }
    relayout
}

fn everything() -> Options {
    Options { coverage: 1.0, max_bytes: u64::MAX, ..Options::default() }
}

#[test]
fn every_function_of_libc() {
    let path = "/lib/x86_64-linux-gnu/libc.so.6";
    let relayout = relay(path, 0x7f12_3456_7000, 1, &everything());
    let statistics = relayout.statistics;
    assert!(statistics.functions_moved * 100 > statistics.functions_seen * 75, "{statistics:?}");
}

#[test]
fn functions_of_mariadbd() {
    let path = "/usr/sbin/mariadbd";
    let step = if cfg!(debug_assertions) { 20 } else { 1 };
    let relayout = relay(path, 0x5555_5555_4000, step, &everything());
    let statistics = relayout.statistics;
    let too_small = statistics.rejected.get(&RejectReason::TooSmall).copied().unwrap_or(0);
    let large_enough = statistics.functions_seen - too_small;
    assert!(statistics.functions_moved * 100 > large_enough * 98, "{statistics:?}");
}
