//! Counters in copies.

use std::collections::HashMap;

use dbdyno_relayout::{
    AddressSpace, Module, Options, RegionRequest, Relayout, Samples, optimize, optimize_proven,
    verify,
};

use crate::support::{Random, Victim, call, case, compile, source};

/// An address space without a process: code after the module, counters before the code.
#[derive(Default)]
struct CountingSpace {
    counters: HashMap<usize, u64>,
}

impl AddressSpace for CountingSpace {
    fn reserve(&mut self, request: &RegionRequest) -> Option<u64> {
        let base = (request.latest - (64 << 20)) & !0xfff;
        self.counters.insert(request.module, (base - request.counters) & !0xfff);
        Some(base)
    }

    fn counters(&self, module: usize) -> Option<u64> {
        self.counters.get(&module).copied()
    }

    fn read_slot(&self, _address: u64) -> Option<u64> {
        None
    }
}

fn counting() -> Options {
    Options { coverage: 1.0, max_bytes: u64::MAX, count: true, ..Options::default() }
}

fn sample_every(module: &Module, step: usize) -> Samples {
    let mut samples = Samples::default();
    for function in module.functions().iter().step_by(step) {
        samples.add_hit(function.start, 1);
    }
    samples
}

fn prove(path: &str, bias: u64, step: usize) {
    let file = std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let module = Module::parse(path, &file, bias).unwrap();
    let samples = sample_every(&module, step);
    let mut space = CountingSpace::default();
    let relayout = optimize_proven(&[&module], &samples, &counting(), &mut space).unwrap();
    let statistics = &relayout.statistics;
    assert_eq!(Vec::<String>::new(), statistics.unproven, "{path}");
    assert!(relayout.counters.len() as u64 > statistics.functions_moved, "{path}");
    assert!(statistics.uncountable.len() as u64 * 5 < statistics.functions_moved, "{path}");
}

#[test]
fn counting_copies_of_libc_are_equivalent() {
    prove("/lib/x86_64-linux-gnu/libc.so.6", 0x7f12_3456_7000, 1);
}

#[test]
fn counting_copies_of_mariadbd_are_equivalent() {
    prove("/usr/sbin/mariadbd", 0x5555_5555_4000, if cfg!(debug_assertions) { 20 } else { 1 });
}

/// Loops whose blocks have executions that are easy to know.
const LOOPS: &str = "
    #include <stdint.h>
    typedef uint64_t u64;
    u64 case_collatz(u64 a, u64 b, unsigned char *p) {
        u64 n = a % 1000 + 1, odd = 0, even = 0;
        while (n != 1) {
            if (n & 1) { n = n * 3 + 1; p[1] ^= n; odd++; }
            else { n >>= 1; p[2] += n; even++; }
        }
        return odd * 1000 + even;
    }
    u64 case_other(u64 a, u64 b, unsigned char *p) { return a > b ? p[0] : p[1] + a; }
";

#[test]
fn counters_have_the_executions_of_blocks() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("loops.c");
    std::fs::write(&text, LOOPS).unwrap();
    for (compiler, level) in [("gcc", "-O0"), ("gcc", "-O2"), ("clang", "-O1")] {
        let out = directory.path().join(format!("loops-{compiler}{level}.so"));
        compile(compiler, &text, &[level], &out);
        let victim = Victim::load(&out);
        let installed = victim.install(&victim.sample_all(), &counting());
        let address = victim.cases.iter().find(|(name, _)| name == "case_collatz").unwrap().1;
        let copy = installed.copy(address).unwrap();
        let (mut calls, mut odd, mut even) = (0, 0, 0);
        for seed in 0..50 {
            let (result, _) = call(copy, seed);
            assert_eq!(result, call(case(address), seed).0);
            (calls, odd, even) = (calls + 1, odd + result / 1000, even + result % 1000);
        }
        let size = victim.module.function_at(address).unwrap().size();
        let found: Vec<u64> = installed
            .counts()
            .into_iter()
            .filter(|(block, _)| (address..address + size).contains(block))
            .map(|(_, count)| count)
            .collect();
        assert!(!found.is_empty() && odd > 0 && calls < odd && odd < even);
        // Blocks of the loop, of either case, before and after it, as compilers combine them; an even
        // number always follows an odd one.
        let possible = [0, calls, odd, even, even - odd, odd + even];
        let near = |count: u64| possible.iter().any(|it| it.abs_diff(count) <= calls);
        assert!(found.iter().all(|count| near(*count)), "{compiler}: {found:?} {possible:?}");
        assert!(found.iter().any(|count| *count > calls), "{compiler}: {found:?}");
    }
}

#[test]
fn counting_copies_return_the_same_results() {
    let directory = tempfile::tempdir().unwrap();
    for (name, compiler, level) in
        [("shapes.c", "gcc", "-O2"), ("shapes.c", "clang", "-O3"), ("throws.cc", "g++", "-O2")]
    {
        let out = directory.path().join(format!("{name}-{compiler}{level}.so"));
        compile(compiler, &source(name), &[level], &out);
        let _guard = crate::execution::exclusive();
        let victim = Victim::load(&out);
        let installed = victim.install(&victim.sample_all(), &counting());
        for (name, address) in &victim.cases {
            if name == "case_thrower" || name == "case_deep" {
                continue;
            }
            let Some(copy) = installed.copy(*address) else { continue };
            for seed in 0..50 {
                assert_eq!(call(copy, seed), call(case(*address), seed), "{name}, call {seed}");
            }
        }
        assert!(installed.counts().iter().any(|(_, count)| *count > 0));
    }
}

/// The same library at these addresses.
fn libraries<const N: usize>(addresses: [u64; N]) -> [Module; N] {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("shapes.so");
    compile("gcc", &source("shapes.c"), &["-O2"], &out);
    let file = std::fs::read(&out).unwrap();
    addresses.map(|address| Module::parse("shapes", &file, address).unwrap())
}

#[test]
fn layout_of_two_modules_has_the_new_code_of_both() {
    let modules = libraries([0x7f00_0000_0000, 0x7e00_0000_0000]);
    let both = modules.each_ref();
    let mut samples = Samples::default();
    for function in modules.iter().flat_map(Module::functions) {
        samples.add_hit(function.start, 1);
    }
    let mut space = CountingSpace::default();
    let relayout = optimize(&both, &samples, &counting(), &mut space).unwrap();
    verify(&both, &relayout).unwrap();
    // New code is within 2 GB of its module.
    let of_each = |addresses: Vec<u64>| {
        [0x7f, 0x7e].map(|top| addresses.iter().filter(|at| **at >> 40 == top).count())
    };
    assert_eq!(of_each(relayout.regions.iter().map(|it| it.address).collect()), [2, 2]);
    assert_eq!(of_each(relayout.frames.iter().map(|it| it.address).collect()), [1, 1]);
    let entries: Vec<u64> = relayout.entries.iter().map(|it| it.address).collect();
    let symbols: Vec<u64> = relayout.symbols.iter().map(|it| it.address).collect();
    let counters: Vec<u64> = relayout.counters.iter().map(|it| it.address).collect();
    assert!(entries.is_sorted() && symbols.is_sorted());
    for addresses in [entries, symbols, counters] {
        let [one, other] = of_each(addresses);
        assert!(one > 0 && one == other, "{one} and {other}");
    }
    let statistics = &relayout.statistics;
    let sizes = relayout.symbols.iter().map(|it| it.size);
    assert_eq!(statistics.hot_bytes + statistics.cold_bytes, sizes.sum::<u64>());
}

fn counted_library() -> (Module, Relayout) {
    let [module] = libraries([0x7f00_0000_0000]);
    let samples = sample_every(&module, 1);
    let mut space = CountingSpace::default();
    // Without padding, in which changed bits may have no effect.
    let options = Options { align_loops: false, ..counting() };
    let relayout = optimize(&[&module], &samples, &options, &mut space).unwrap();
    verify(&[&module], &relayout).unwrap();
    (module, relayout)
}

#[test]
fn verify_detects_changed_bits_among_counters() {
    let (module, relayout) = counted_library();
    let mut random = Random(11);
    let (mut tried, mut missed) = (0, Vec::new());
    for symbol in &relayout.symbols {
        for _ in 0..15 {
            let at = symbol.address + random.below(symbol.size);
            let bit = random.below(8);
            let mut changed = relayout.clone();
            let region = changed.regions.iter_mut().find(|it| it.range().contains(&at)).unwrap();
            region.bytes[(at - region.address) as usize] ^= 1 << bit;
            tried += 1;
            if verify(&[&module], &changed).is_ok() {
                missed.push((at, bit));
            }
        }
    }
    // The distance may become that of another counter; and nothing may continue at a counter, if the block
    // is only reached through the original code.
    let is_harmless = |at: u64| {
        let Some(start) = counter_around(&relayout, at) else { return false };
        let mut changed = relayout.clone();
        let region = changed.regions.iter_mut().find(|it| it.range().contains(&at)).unwrap();
        let offset = (start - region.address) as usize;
        region.bytes[offset..offset + 6].fill(0xcc);
        at >= start + 2 || verify(&[&module], &changed).is_ok()
    };
    let other: Vec<_> = missed.iter().filter(|(at, _)| !is_harmless(*at)).collect();
    assert!(tried > 60 && other.is_empty(), "{other:x?} of {tried}");
}

/// The start of the counter that an address is in.
fn counter_around(relayout: &Relayout, at: u64) -> Option<u64> {
    let region = relayout.regions.iter().find(|it| it.range().contains(&at)).unwrap();
    (0..6).map(|back| at - back).find(|start| {
        let offset = start.checked_sub(region.address).map(|offset| offset as usize);
        offset.is_some_and(|at| region.bytes.get(at..at + 2) == Some(&[0xff, 0x05]))
    })
}

#[test]
fn counter_inside_the_program_or_where_flags_are_used_is_refused() {
    let (module, relayout) = counted_library();
    let mut inside = relayout.clone();
    inside.counters.iter_mut().for_each(|it| it.address = module.extent().start);
    assert!(verify(&[&module], &inside).is_err());
    let mut unknown = relayout.clone();
    unknown.counters.clear();
    assert!(verify(&[&module], &unknown).is_err());

    // `cmp` and a conditional jump, with a counter in between.
    let mut checked = 0;
    for (original, copy) in relayout.map.pairs() {
        let Some(code) = module.bytes(original, 6) else { continue };
        // test r32, r32; jcc near or short
        if code[0] != 0x85 || code[1] < 0xc0 || code[2] & 0xf0 != 0x70 {
            continue;
        }
        let mut changed = relayout.clone();
        let region = changed.regions.iter_mut().find(|it| it.range().contains(&copy)).unwrap();
        let start = (copy - region.address) as usize + 2;
        let counter = relayout.counters[0].address;
        let distance = counter.wrapping_sub(copy + 8) as u32;
        region.bytes[start..start + 2].copy_from_slice(&[0xff, 0x05]);
        region.bytes[start + 2..start + 6].copy_from_slice(&distance.to_le_bytes());
        assert!(verify(&[&module], &changed).is_err(), "{original:x}");
        checked += 1;
    }
    assert!(checked > 0);
}
