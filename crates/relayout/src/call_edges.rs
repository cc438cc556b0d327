//! Calls between moved functions that their instructions do not show: by pointers, virtual tables and linkage
//! stubs.
//!
//! How often a function is entered is known, and how many of these entries are direct calls and jumps. The rest
//! is divided among its other callers, in proportion to the samples of the function in which they were found.

use std::collections::{BTreeMap, HashMap};

use crate::call_clustering::CallCount;
use crate::callers::Caller;
use crate::code::{Inst, InstKind};
use crate::entry_cost::{calls, entries};
use crate::moved_function::MovedFunction;
use crate::{Branch, BranchCount};

/// Samples of a function with the same caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CallerSamples {
    callee: usize,
    /// `None`: code that is not moved.
    caller: Option<usize>,
    samples: u64,
}

/// Callers of functions in samples: by stacks, or by branch records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampledCalls<'a> {
    pub(crate) callers: &'a HashMap<Caller, u64>,
    pub(crate) branches: &'a HashMap<Branch, BranchCount>,
}

/// Calls between functions of a module, which are sorted by address, that are not direct.
pub(crate) fn indirect_calls(moved: &[MovedFunction], sampled: SampledCalls<'_>) -> Vec<CallCount> {
    let mut rest: Vec<u64> = moved.iter().map(entries).collect();
    for ((_, callee), count) in calls(moved) {
        rest[callee] = rest[callee].saturating_sub(count);
    }
    let starting_at = |at: u64| moved.binary_search_by_key(&at, |moved| moved.start).ok();
    let by_stack = sampled.callers.iter().filter_map(|(caller, &samples)| {
        let callee = starting_at(caller.function)?;
        let site = caller.return_address.and_then(|at| Site::returning_to(moved, at));
        Some((callee, site, samples))
    });
    let by_branch = sampled.branches.iter().filter_map(|(branch, count)| {
        Some((starting_at(branch.to)?, Site::at(moved, branch.from), count.taken))
    });
    let found = by_stack.chain(by_branch).filter_map(|(callee, site, samples)| {
        let caller = match site {
            None => None,
            Some(site) => match site.kind {
                InstKind::Call(target) | InstKind::Jump(target) => match starting_at(target) {
                    // Among the direct calls, of this function or of one that jumps to it.
                    Some(other) if other == callee || !jumps_indirectly(&moved[other]) => {
                        return None;
                    }
                    Some(other) => Some(other),
                    None => Some(site.function),
                },
                InstKind::IndirectCall | InstKind::IndirectJump => Some(site.function),
                // A loop of the function, or a branch to another one.
                InstKind::Branch(..) if site.function == callee => return None,
                InstKind::Branch(..) => Some(site.function),
                InstKind::Plain | InstKind::Nop | InstKind::Return => None,
            },
        };
        Some(CallerSamples { callee, caller, samples })
    });
    divide(&rest, &found.collect::<Vec<_>>())
}

/// An instruction that calls or jumps.
struct Site {
    /// Index of its function.
    function: usize,
    kind: InstKind,
}

impl Site {
    /// The instruction that starts at an address. `None`: it is not in a moved function.
    fn at(moved: &[MovedFunction], address: u64) -> Option<Self> {
        Self::find(moved, address, |inst| inst.address == address)
    }

    /// The call that returns to an address. `None`: it is not in a moved function.
    fn returning_to(moved: &[MovedFunction], address: u64) -> Option<Self> {
        let is_call = |kind| matches!(kind, InstKind::Call(_) | InstKind::IndirectCall);
        Self::find(moved, address.checked_sub(1)?, |inst| {
            inst.end() == address && is_call(inst.kind)
        })
    }

    /// The instruction that contains an address, if it is the right one.
    fn find(
        moved: &[MovedFunction],
        address: u64,
        is_right: impl Fn(&Inst) -> bool,
    ) -> Option<Self> {
        let function = moved.partition_point(|moved| moved.start <= address).checked_sub(1)?;
        let code = &moved[function].graph.instructions;
        let inst = code.partition_point(|inst| inst.address <= address).checked_sub(1)?;
        let inst = code.get(inst).filter(|inst| is_right(inst))?;
        Some(Self { function, kind: inst.kind })
    }
}

/// Whether a function ends with a call by pointer, whose return address is that of the function.
fn jumps_indirectly(moved: &MovedFunction) -> bool {
    let graph = &moved.graph;
    let is_switch = |index: usize| graph.tables.iter().any(|table| table.jump == index);
    let mut code = graph.instructions.iter().enumerate();
    code.any(|(index, inst)| inst.kind == InstKind::IndirectJump && !is_switch(index))
}

/// Divides the remaining entries of each function among its callers.
fn divide(rest: &[u64], sampled: &[CallerSamples]) -> Vec<CallCount> {
    let mut all = vec![0_u64; rest.len()];
    let mut edges: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for one in sampled {
        all[one.callee] = all[one.callee].saturating_add(one.samples);
        if let Some(caller) = one.caller {
            let sum = edges.entry((caller, one.callee)).or_default();
            *sum = sum.saturating_add(one.samples);
        }
    }
    let weighted = edges.into_iter().map(|((caller, callee), samples)| {
        let count = u128::from(rest[callee]) * u128::from(samples);
        let count = (count / u128::from(all[callee].max(1))) as u64;
        CallCount { caller, callee, count }
    });
    weighted.filter(|call| call.count > 0).collect()
}

#[cfg(test)]
mod tests {
    use rand_core::{Rng, SeedableRng};
    use rand_xoshiro::SplitMix64;

    use super::*;

    fn divided(rest: &[u64], sampled: &[(usize, Option<usize>, u64)]) -> Vec<(usize, usize, u64)> {
        let sampled: Vec<CallerSamples> = sampled
            .iter()
            .map(|&(callee, caller, samples)| CallerSamples { callee, caller, samples })
            .collect();
        let calls = divide(rest, &sampled).into_iter();
        calls.map(|call| (call.caller, call.callee, call.count)).collect()
    }

    #[test]
    fn entries_are_divided_in_proportion_to_the_samples_of_callers() {
        let sampled = [(2, Some(0), 20), (2, Some(1), 10), (2, Some(0), 10)];
        assert_eq!(divided(&[0, 0, 400], &sampled), [(0, 2, 300), (1, 2, 100)]);
        // Code that is not moved has its share.
        let sampled = [(2, Some(0), 3), (2, None, 1)];
        assert_eq!(divided(&[0, 0, 400], &sampled), [(0, 2, 300)]);
    }

    #[test]
    fn function_with_direct_calls_only_has_no_other_callers() {
        assert_eq!(divided(&[0, 0, 0], &[(2, Some(0), 5)]), []);
        assert_eq!(divided(&[0, 0, 9], &[]), []);
    }

    #[test]
    fn no_more_calls_than_entries_are_divided() {
        let mut random = SplitMix64::seed_from_u64(3);
        let mut below = |limit: u64| random.next_u64() % limit;
        for _ in 0..500 {
            let functions = 1 + below(6) as usize;
            let rest: Vec<u64> = (0..functions).map(|_| u64::MAX >> below(64)).collect();
            let sampled: Vec<_> = (0..below(20))
                .map(|_| {
                    let callee = below(functions as u64) as usize;
                    let caller = Some(below(functions as u64 + 1) as usize);
                    (callee, caller.filter(|it| *it < functions), u64::MAX >> (8 + below(56)))
                })
                .collect();
            let calls = divided(&rest, &sampled);
            for callee in 0..functions {
                let of = calls.iter().filter(|call| call.1 == callee);
                let sum: u128 = of.map(|call| u128::from(call.2)).sum();
                assert!(sum <= rest[callee].into(), "{rest:?} {sampled:?} {calls:?}");
                let all = sampled.iter().filter(|it| it.0 == callee);
                let is_known = all.clone().count() > 0 && all.clone().all(|it| it.1.is_some());
                // Rounded down, once per caller.
                assert!(!is_known || sum + functions as u128 >= rest[callee].into());
            }
        }
    }
}
