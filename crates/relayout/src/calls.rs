//! Direct calls and tail calls between moved functions.

use std::collections::{BTreeMap, HashMap};

use crate::call_clustering::CallCount;
use crate::code::InstKind;
use crate::moved_function::MovedFunction;

/// The calls between these functions that were executed, by caller and callee.
pub(crate) fn calls(moved: &[MovedFunction]) -> Vec<CallCount> {
    let index: HashMap<u64, usize> =
        moved.iter().enumerate().map(|(index, moved)| (moved.start, index)).collect();
    let mut calls: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for (caller, moved) in moved.iter().enumerate() {
        for block in 0..moved.graph.blocks.len() {
            for inst in moved.graph.code(block) {
                let (InstKind::Call(target) | InstKind::Jump(target)) = inst.kind else { continue };
                let is_inside = matches!(inst.kind, InstKind::Jump(_)) && target == moved.start;
                if let Some(&callee) = index.get(&target).filter(|_| !is_inside) {
                    *calls.entry((caller, callee)).or_default() += moved.flow.blocks[block];
                }
            }
        }
    }
    let calls = calls.into_iter().filter(|(_, count)| *count > 0);
    calls.map(|((caller, callee), count)| CallCount { caller, callee, count }).collect()
}

/// Whether something leads to the copy of each function: the jump in its original, if it `is_entered`, or a
/// copy that calls it and is reached itself.
pub(crate) fn reached(is_entered: &[bool], calls: &[CallCount]) -> Vec<bool> {
    let mut reached = is_entered.to_vec();
    // Terminates, because functions are only added.
    loop {
        let mut has_grown = false;
        for call in calls {
            if reached[call.caller] && !reached[call.callee] {
                reached[call.callee] = true;
                has_grown = true;
            }
        }
        if !has_grown {
            return reached;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_reached_through_copies_that_are_reached() {
        let call = |caller, callee| CallCount { caller, callee, count: 1 };
        // 0 calls 2, which calls 1; 3 and 4 only call each other.
        let calls = [call(0, 2), call(2, 1), call(3, 4), call(4, 3)];
        let entered = [true, false, false, false, false];
        assert_eq!(reached(&entered, &calls), [true, true, true, false, false]);
        assert_eq!(reached(&entered, &[]), entered);
    }
}
