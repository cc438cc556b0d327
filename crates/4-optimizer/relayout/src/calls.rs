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
