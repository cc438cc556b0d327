//! A layout of only those functions whose copies are proven equivalent.

use std::collections::HashMap;

use crate::verify::{Difference, differences};
use crate::{
    AddressSpace, LayoutError, Module, Options, RegionRequest, Relayout, Samples, optimize,
};

/// Maximum number of layouts. Each one is without the functions that differed in those before.
const ATTEMPTS: usize = 5;

/// As [`optimize`], followed by the proof of [`verify`](crate::verify). Functions for which it fails
/// are left where they are, as [`RejectReason::Unproven`](crate::RejectReason::Unproven), with the difference in
/// [`Statistics::unproven`](crate::Statistics::unproven).
///
/// # Errors
/// As [`optimize`]; or differences remain without the functions that differ, or are in no function.
pub fn optimize_proven(
    modules: &[&Module],
    samples: &Samples,
    options: &Options,
    address_space: &mut dyn AddressSpace,
) -> Result<Relayout, LayoutError> {
    optimize_checked(modules, samples, options, address_space, differences)
}

fn optimize_checked(
    modules: &[&Module],
    samples: &Samples,
    options: &Options,
    address_space: &mut dyn AddressSpace,
    differences: impl Fn(&[&Module], &Relayout) -> Vec<Difference>,
) -> Result<Relayout, LayoutError> {
    let mut options = options.clone();
    let mut space = ReusedSpace { space: address_space, given: HashMap::new() };
    let mut unproven = Vec::new();
    for remaining in (0..ATTEMPTS).rev() {
        let mut relayout = optimize(modules, samples, &options, &mut space)?;
        let mut found = differences(modules, &relayout);
        if found.is_empty() {
            relayout.statistics.unproven = unproven;
            return Ok(relayout);
        }
        match found.iter().map(|difference| difference.start).collect::<Option<Vec<u64>>>() {
            Some(starts) if remaining > 0 => options.unproven.extend(starts),
            _ => return Err(LayoutError::NotEquivalent(Box::new(found.swap_remove(0)))),
        }
        unproven.extend(found.iter().map(Difference::to_string));
    }
    unreachable!("the last attempt returns")
}

/// An address space in which the memory of an earlier attempt is used again.
struct ReusedSpace<'a> {
    space: &'a mut dyn AddressSpace,
    /// The request and the address of the memory for each module.
    given: HashMap<usize, (RegionRequest, u64)>,
}

impl AddressSpace for ReusedSpace<'_> {
    fn reserve(&mut self, request: &RegionRequest) -> Option<u64> {
        if let Some((given, address)) = self.given.get(&request.module)
            && given.size >= request.size
            && given.counters >= request.counters
            && (request.earliest..=request.latest).contains(address)
        {
            return Some(*address);
        }
        let address = self.space.reserve(request)?;
        self.given.insert(request.module, (request.clone(), address));
        Some(address)
    }

    fn counters(&self, module: usize) -> Option<u64> {
        self.space.counters(module)
    }

    fn read_slot(&self, address: u64) -> Option<u64> {
        self.space.read_slot(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DifferenceKind, RejectReason};

    /// Free memory at the highest possible address, and how often it was reserved.
    struct Counted(u64);

    impl AddressSpace for Counted {
        fn reserve(&mut self, request: &RegionRequest) -> Option<u64> {
            self.0 += 1;
            Some(request.latest & !0xfff)
        }

        fn read_slot(&self, _address: u64) -> Option<u64> {
            None
        }
    }

    fn libc() -> Module {
        let file = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6").unwrap();
        Module::parse("libc.so.6", &file, 0x7f12_3456_7000).unwrap()
    }

    fn samples(module: &Module) -> Samples {
        let mut samples = Samples::default();
        for function in module.functions().iter().take(500) {
            samples.add_hit(function.start, 1);
        }
        samples
    }

    fn difference(function: u64, start: Option<u64>) -> Difference {
        let (original, copy) = (function, 0);
        let kind = DifferenceKind::Other("invented");
        Difference { function: format!("f{function:x}"), start, original, copy, kind }
    }

    #[test]
    fn unproven_functions_are_left_alone() {
        let module = libc();
        let samples = samples(&module);
        let moved = |relayout: &Relayout| -> Vec<u64> {
            relayout.entries.iter().map(|entry| entry.function).collect()
        };
        let all = optimize_proven(&[&module], &samples, &Options::default(), &mut Counted(0));
        let all = moved(&all.unwrap());
        let bad = [all[3], all[7]];

        let mut space = Counted(0);
        // One difference for each attempt, as if the second had hidden behind the first.
        let check = |_: &[&Module], relayout: &Relayout| -> Vec<Difference> {
            let entries = moved(relayout);
            let found = bad.iter().find(|start| entries.contains(start));
            found.map(|&start| difference(start, Some(start))).into_iter().collect()
        };
        let relayout =
            optimize_checked(&[&module], &samples, &Options::default(), &mut space, check).unwrap();

        let expected: Vec<u64> = all.iter().copied().filter(|start| !bad.contains(start)).collect();
        assert_eq!(expected, moved(&relayout));
        assert_eq!(Some(&2), relayout.statistics.rejected.get(&RejectReason::Unproven));
        assert_eq!(2, relayout.statistics.unproven.len());
        assert!(relayout.statistics.unproven[0].ends_with("invented"));
        assert_eq!(1, space.0, "memory is reserved once");
    }

    #[test]
    fn differences_that_remain_are_an_error() {
        let module = libc();
        let samples = samples(&module);
        let start = module.functions()[0].start;
        for start in [None, Some(start)] {
            let result = optimize_checked(
                &[&module],
                &samples,
                &Options::default(),
                &mut Counted(0),
                |_, _| vec![difference(0x40, start)],
            );
            let error = result.unwrap_err().to_string();
            assert!(error.contains("the new code is not equivalent: f40"), "{error}");
        }
    }
}
