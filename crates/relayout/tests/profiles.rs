//! Profiles that are kept, used elsewhere, and given to BOLT.
#![allow(clippy::unwrap_used, reason = "as in tests, for their helpers")]

mod support;

use dbdyno_relayout::{BoltProfile, Branch, BranchCount, Executions, Module, Profile, Samples};
use support::{compile, source};

fn victim(bias: u64) -> Module {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("shapes.so");
    compile("gcc", &source("shapes.c"), &["-O2", "-Wl,--build-id=0x1234"], &out);
    Module::parse("shapes", &std::fs::read(&out).unwrap(), bias).unwrap()
}

fn start(module: &Module, name: &str) -> u64 {
    let mut functions = module.functions().iter();
    functions.find(|function| module.symbol_at(function.start) == Some(name)).unwrap().start
}

#[test]
fn a_profile_fits_the_same_file_elsewhere() {
    let here = victim(0x1000_0000);
    let there = victim(0x7f00_0000_0000);
    let mut samples = Samples::default();
    let at = start(&here, "case_loops") + 9;
    samples.add_hit(at, 3);
    samples.add_hit(0x10, 5);
    let branch = Branch { from: at, to: at + 20 };
    samples.add_branch(branch, BranchCount { taken: 7, mispredicted: 2 });
    samples.add_chain(&[at, start(&here, "case_switch") + 5, 0x10], 4);
    let text = serde_json::to_string(&samples.to_profile(&[&here])).unwrap();
    let profile: Profile = serde_json::from_str(&text).unwrap();
    let (led, unused) = profile.to_samples(&[&there]);
    assert!(unused.is_empty());
    let moved = start(&there, "case_loops") + 9;
    assert_eq!(led.hits().get(&moved), Some(&3));
    assert_eq!(led.total(), 3);
    let branch = Branch { from: moved, to: moved + 20 };
    assert_eq!(led.branches()[&branch], BranchCount { taken: 7, mispredicted: 2 });
    let call = Branch { from: start(&there, "case_switch") + 5, to: moved };
    assert_eq!(led.calls().get(&call), Some(&4));
}

#[test]
fn samples_of_a_copy_are_led_back_with_their_branches_and_calls() {
    let mut samples = Samples::default();
    samples.add_hit(0x10, 1);
    samples.add_hit(0x9010, 2);
    let count = BranchCount { taken: 3, mispredicted: 1 };
    samples.add_branch(Branch { from: 0x9010, to: 0x20 }, count);
    samples.add_chain(&[0x9010, 0x9030, 0x40], 5);
    let led = samples.to_originals(|at| if at > 0x9000 { at - 0x9000 } else { at });
    assert_eq!((led.hits().len(), led.hits()[&0x10]), (1, 3));
    assert_eq!(led.branches()[&Branch { from: 0x10, to: 0x20 }], count);
    assert_eq!(led.calls()[&Branch { from: 0x30, to: 0x10 }], 5);
    assert_eq!(led.calls()[&Branch { from: 0x40, to: 0x30 }], 5);
}

#[test]
fn bolt_gets_symbols_and_offsets() {
    let module = victim(0x1000_0000);
    let mut samples = Samples::default();
    let global = start(&module, "case_loops");
    let local = start(&module, "by_value");
    samples.add_hit(global + 0x1a, 3);
    samples.add_hit(local, 2);
    samples.add_hit(module.extent().start, 9);
    let profile = BoltProfile::new(&module, &samples);
    assert_eq!(profile.text, "no_lbr cycles\n1 by_value/1 0 2\n1 case_loops 1a 3\n");
    assert_eq!((profile.written, profile.without_symbol), (5, 9));
    let branch = Branch { from: global + 4, to: local };
    samples.add_branch(branch, BranchCount { taken: 8, mispredicted: 1 });
    samples.add_branch(Branch { from: 0x10, to: global }, BranchCount::default());
    let profile = BoltProfile::new(&module, &samples);
    assert_eq!(
        profile.text,
        "0 [unknown] 0 1 case_loops 0 0 0\n1 case_loops 4 1 by_value/1 0 1 8\n"
    );
}

#[test]
fn samples_tell_of_every_block_on_the_way() {
    let module = victim(0x1000_0000);
    let function = |name: &str| {
        let start = start(&module, name);
        module.functions().iter().find(|function| function.start == start).unwrap()
    };
    let caller = function("case_switch");
    let mut samples = Samples::default();
    // Every byte of it has a sample, whether an instruction begins there or not.
    for at in caller.range() {
        samples.add_hit(at, 4);
    }
    samples.add_hit(module.extent().start, 9);
    let executions = Executions::of(&module, &samples);
    assert_eq!(executions.samples, 4 * caller.size());
    let ranges = &executions.ranges;
    assert!(ranges.iter().all(|one| one.first <= one.last && one.count > 0), "{ranges:x?}");
    assert!(ranges.iter().all(|one| caller.range().contains(&one.last)), "{ranges:x?}");
    assert!(ranges.is_sorted_by(|a, b| a.last < b.first), "{ranges:x?}");
    // What is entered leads to all that was met.
    let entry = ranges[0];
    assert_eq!(entry.first, caller.start);
    let most = ranges.iter().map(|one| one.count).max().unwrap();
    assert_eq!(entry.count, most, "{ranges:x?}");
    // It calls strlen and some of its own kind, each less often than it is entered.
    assert!(executions.calls.len() >= 2, "{:x?}", executions.calls);
    for (call, count) in &executions.calls {
        assert!(caller.range().contains(&call.from) && (1..=entry.count).contains(count));
        assert!(module.contains(call.to));
    }
    assert_eq!(Executions::of(&module, &Samples::default()), Executions::default());
}
