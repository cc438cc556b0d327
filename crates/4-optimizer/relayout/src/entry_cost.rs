//! Which functions gain more from their new layout than the jumps to their copies cost.
//!
//! A call of a moved function costs a jump, and the cache line it is in, unless the caller was moved, too
//! and calls the copy directly. Gain and cost are estimated from the profile, in the same unit: taken
//! branches and touched cache lines.

use std::collections::BTreeMap;

use crate::call_clustering::CallCount;
use crate::calls::calls;
use crate::graph::EdgeKind;
use crate::moved_function::MovedFunction;

/// Size of a cache line in bytes.
const LINE: u64 = 64;
/// Cost of touching a cache line, in taken branches: an access to the second-level cache takes some 12
/// cycles, and about every tenth to fifth line comes from there.
const LINE_COST: f64 = 1.0;

/// Whether to move each function of a module.
pub(crate) fn gaining(moved: &[MovedFunction]) -> Vec<bool> {
    let gains: Vec<f64> = moved.iter().map(gain).collect();
    let entries: Vec<u64> = moved.iter().map(entries).collect();
    keep(&gains, &entries, &calls(moved))
}

/// The functions to move, given their gains and the executions of their entries. Functions that stay where
/// they are call the others through their entries, so this is repeated until nothing changes.
fn keep(gains: &[f64], entries: &[u64], calls: &[CallCount]) -> Vec<bool> {
    let mut kept = vec![true; gains.len()];
    // Terminates, because functions are only removed.
    loop {
        let mut direct = vec![0; gains.len()];
        for call in calls.iter().filter(|call| kept[call.caller]) {
            direct[call.callee] += call.count;
        }
        let pays = |index: usize| {
            let by_jump = entries[index].saturating_sub(direct[index]);
            by_jump == 0 || gains[index] > by_jump as f64 * (1.0 + LINE_COST)
        };
        let now: Vec<bool> = (0..gains.len()).map(|index| kept[index] && pays(index)).collect();
        if now == kept {
            return kept;
        }
        kept = now;
    }
}

/// Executions of the entry.
fn entries(moved: &MovedFunction) -> u64 {
    let edges = moved.graph.edges.iter().zip(&moved.flow.edges);
    let repeated: u64 = edges.filter(|(edge, _)| edge.to == 0).map(|(_, count)| count).sum();
    moved.flow.blocks.first().copied().unwrap_or(0).saturating_sub(repeated)
}

/// Taken branches and touched cache lines that the new layout saves; negative if it adds some.
fn gain(moved: &MovedFunction) -> f64 {
    let mut next = vec![None; moved.graph.blocks.len()];
    for order in [&moved.hot, &moved.cold] {
        for pair in order.windows(2) {
            next[pair[0]] = Some(pair[1]);
        }
    }
    let mut taken = 0.0;
    for (edge, &count) in moved.graph.edges.iter().zip(&moved.flow.edges) {
        let fell_through = edge.kind == EdgeKind::FallThrough;
        let by_table = matches!(edge.kind, EdgeKind::Table(_));
        let falls_through = !by_table && next[edge.from] == Some(edge.to);
        taken +=
            (f64::from(u8::from(falls_through)) - f64::from(u8::from(fell_through))) * count as f64;
    }
    let before = (0..moved.graph.blocks.len()).map(|block| (block, moved.graph.start(block)));
    // The copy starts with a cache line.
    let mut end = 0;
    let after = moved.hot.iter().chain(&moved.cold).map(|&block| {
        let start = end;
        end += moved.graph.size(block);
        (block, start)
    });
    taken + LINE_COST * (lines(moved, before) - lines(moved, after))
}

/// Touches of cache lines by blocks at these addresses: each line as often as its most frequent block.
fn lines(moved: &MovedFunction, blocks: impl Iterator<Item = (usize, u64)>) -> f64 {
    let mut touches: BTreeMap<u64, u64> = BTreeMap::new();
    for (block, start) in blocks {
        let count = moved.flow.blocks[block];
        let end = start + moved.graph.size(block).max(1);
        for line in start / LINE..=(end - 1) / LINE {
            let most = touches.entry(line).or_default();
            *most = (*most).max(count);
        }
    }
    touches.into_values().map(|count| count as f64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_moves_only_if_it_gains_more_than_its_entry_jumps_cost() {
        let jump = 1.0 + LINE_COST;
        let kept = keep(&[100.0 * jump + 1.0, 100.0 * jump, -5.0], &[100, 100, 0], &[]);
        assert_eq!(kept, [true, false, true]);
    }

    #[test]
    fn calls_of_moved_functions_cost_no_jump_and_those_of_others_do() {
        let call = |caller, callee| CallCount { caller, callee, count: 100 };
        let calls = [call(0, 1), call(1, 2)];
        // Called by a function that moves.
        assert_eq!(keep(&[1e6, 1.0, 1.0], &[100, 100, 100], &calls), [true; 3]);
        // The first one stays, so each one that is called by it stays.
        assert_eq!(keep(&[0.0, 1.0, 1.0], &[100, 100, 100], &calls), [false; 3]);
        assert_eq!(keep(&[0.0, 1e6, 1.0], &[100, 100, 100], &calls), [false, true, true]);
    }
}
