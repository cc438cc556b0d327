//! Functions without space for a jump to their copies.

use std::sync::MutexGuard;

use crate::execution::exclusive;
use crate::support::{InstalledLayout, Victim, call, case, compile, source};
use dbdyno_relayout::{Options, RejectReason, Samples};

/// A small function and one that calls it.
struct Small {
    victim: Victim,
    small: u64,
    caller: u64,
    _exclusive: MutexGuard<'static, ()>,
}

impl Small {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("shapes.so");
        compile("gcc", &source("shapes.c"), &["-O2"], &out);
        let exclusive = exclusive();
        let victim = Victim::load(&out);
        let start = |name: &str| {
            let mut functions = victim.module.functions().iter();
            functions.find(|it| victim.module.symbol_at(it.start) == Some(name)).unwrap().start
        };
        let (small, caller) = (start("small"), start("case_calls_small"));
        Self { small, caller, victim, _exclusive: exclusive }
    }

    /// A layout with samples in these functions and in one that does not call the small one.
    fn install(&self, functions: &[u64], options: &Options) -> InstalledLayout {
        let other = self.victim.cases.iter().find(|(name, _)| name == "case_loops").unwrap().1;
        let mut samples = Samples::default();
        for function in functions.iter().chain([&other]) {
            // In all blocks: a call that was not executed does not count.
            let function = self.victim.module.function_at(*function).unwrap();
            function.range().for_each(|address| samples.add_hit(address, 5));
        }
        self.victim.install(&samples, &Options { coverage: 1.0, ..options.clone() })
    }
}

#[test]
fn copy_of_a_small_function_is_called_by_copies_only() {
    let test = Small::new();
    let expected: Vec<_> = (0..50).map(|seed| call(case(test.caller), seed)).collect();
    let installed = test.install(&[test.small, test.caller], &Options::default());
    let relayout = &installed.relayout;
    let statistics = &relayout.statistics;
    assert_eq!((statistics.functions_moved, statistics.functions_without_jump), (3, 1));
    let mut entered = relayout.entries.iter().map(|entry| entry.function);
    assert!(entered.all(|function| function != test.small));
    let copy = relayout.map.to_copy(test.small).unwrap();
    let calls = relayout.map.pairs().filter_map(|(_, at)| call_target(&installed, at));
    assert_eq!(calls.filter(|target| *target == copy).count(), 1);
    for patched in [false, true] {
        installed.set_patched(patched);
        for (seed, expected) in (0..).zip(&expected) {
            assert_eq!(call(case(test.caller), seed), *expected, "patched {patched}");
        }
    }
    installed.set_patched(false);
}

/// The target of a direct call in the copy.
fn call_target(installed: &InstalledLayout, at: u64) -> Option<u64> {
    let region = installed.relayout.regions.iter().find(|it| it.range().contains(&at))?;
    let bytes = region.bytes.get((at - region.address) as usize..)?;
    let distance = bytes.strip_prefix(&[0xe8])?.get(..4)?.try_into().map(i32::from_le_bytes);
    (at + 5).checked_add_signed(distance.ok()?.into())
}

#[test]
fn small_function_that_no_copy_calls_is_not_moved() {
    let test = Small::new();
    let without = Options { without_jump: false, ..Options::default() };
    for (functions, options) in
        [(&[test.small][..], &Options::default()), (&[test.small, test.caller], &without)]
    {
        let installed = test.install(functions, options);
        let statistics = &installed.relayout.statistics;
        assert_eq!(statistics.functions_without_jump, 0);
        assert_eq!(statistics.rejected.get(&RejectReason::TooSmall), Some(&1));
        assert_eq!(statistics.rejected_samples.get(&RejectReason::TooSmall), Some(&25));
        assert_eq!(installed.relayout.map.to_copy(test.small), None);
    }
}
