//! Profiles: stored, used for other processes, and exported to BOLT.

use crate::support::{compile, source};
use dbdyno_relayout::{BoltProfile, Branch, BranchCount, Executions, Module, Profile, Samples};

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
fn profile_is_valid_for_the_same_file_at_another_address() {
    let here = victim(0x1000_0000);
    let there = victim(0x7f00_0000_0000);
    let mut samples = Samples::default();
    let at = start(&here, "case_loops") + 9;
    samples.add_hit(at, 3);
    samples.add_hit(0x10, 5);
    let branch = Branch { from: at, to: at + 20 };
    samples.add_branch(branch, BranchCount { taken: 7, mispredicted: 2 });
    let text = serde_json::to_string(&samples.to_profile(&[&here])).unwrap();
    let profile: Profile = serde_json::from_str(&text).unwrap();
    let (mapped, unused) = profile.to_samples(&[&there]);
    assert!(unused.is_empty());
    let moved = start(&there, "case_loops") + 9;
    assert_eq!(mapped.hits().get(&moved), Some(&3));
    assert_eq!(mapped.total(), 3);
    let branch = Branch { from: moved, to: moved + 20 };
    assert_eq!(mapped.branches()[&branch], BranchCount { taken: 7, mispredicted: 2 });
}

#[test]
fn samples_of_a_copy_are_mapped_to_the_original_with_their_branches() {
    let mut samples = Samples::default();
    samples.add_hit(0x10, 1);
    samples.add_hit(0x9010, 2);
    let count = BranchCount { taken: 3, mispredicted: 1 };
    samples.add_branch(Branch { from: 0x9010, to: 0x20 }, count);
    let mapped = samples.to_originals(|at| if at > 0x9000 { at - 0x9000 } else { at });
    assert_eq!((mapped.hits().len(), mapped.hits()[&0x10]), (1, 3));
    assert_eq!(mapped.branches()[&Branch { from: 0x10, to: 0x20 }], count);
}

#[test]
fn bolt_profile_has_symbols_and_offsets() {
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
fn executions_include_every_block_on_the_path() {
    let module = victim(0x1000_0000);
    let function = |name: &str| {
        let start = start(&module, name);
        module.functions().iter().find(|function| function.start == start).unwrap()
    };
    let caller = function("case_switch");
    let mut samples = Samples::default();
    // Every byte has samples, whether an instruction starts there or not.
    for at in caller.range() {
        samples.add_hit(at, 4);
    }
    samples.add_hit(module.extent().start, 9);
    let executions = Executions::of(&module, &samples);
    assert_eq!(executions.samples, 4 * caller.size());
    let ranges = &executions.ranges;
    assert!(ranges.iter().all(|(it, count)| it.first <= it.last && *count > 0), "{ranges:x?}");
    assert!(ranges.iter().all(|(it, _)| caller.range().contains(&it.last)), "{ranges:x?}");
    assert!(ranges.is_sorted_by(|(a, _), (b, _)| a.last < b.first), "{ranges:x?}");
    // The entry is executed as often as any sampled block.
    let (entry, entered) = ranges[0];
    assert_eq!(entry.first, caller.start);
    let most = ranges.iter().map(|(_, count)| *count).max().unwrap();
    assert_eq!(entered, most, "{ranges:x?}");
    // It calls strlen and functions of this file, each less often than it is entered.
    assert!(executions.calls.len() >= 2, "{:x?}", executions.calls);
    for (call, count) in &executions.calls {
        assert!(caller.range().contains(&call.from) && (1..=entered).contains(count));
        assert!(module.contains(call.to));
    }
    assert_eq!(Executions::of(&module, &Samples::default()), Executions::default());
}
