//! The order of the blocks of a function, and of functions.

use std::collections::{HashMap, HashSet};

use crate::call_clustering::{self, FunctionNode};
use crate::calls::calls;
use crate::ext_tsp::{self, WeightedEdge};
use crate::flow::Flow;
use crate::graph::{EdgeKind, Graph};
use crate::moved_function::MovedFunction;
use crate::{EntryPatch, FunctionOrder, Options};

/// The hot and the cold blocks of a function, each in its new order.
pub(crate) fn arrange(
    graph: &Graph,
    flow: &Flow,
    patch: u64,
    options: &Options,
) -> (Vec<usize>, Vec<usize>) {
    let all = 0..graph.blocks.len();
    if !options.reorder_blocks {
        return (all.collect(), Vec::new());
    }
    // The instructions that the jump to the copy replaces must be in the copy.
    let is_patched = |block: usize| {
        let start = graph.start(block);
        start < patch + EntryPatch::SIZE && patch < start + graph.size(block)
    };
    let is_hot = |block: usize| block == 0 || is_patched(block) || flow.blocks[block] > 0;
    let hot: Vec<usize> = all.clone().filter(|&block| is_hot(block)).collect();
    let cold =
        if options.copy_cold { all.filter(|&block| !is_hot(block)).collect() } else { vec![] };
    let place: HashMap<usize, usize> =
        hot.iter().enumerate().map(|(place, &block)| (block, place)).collect();
    let sizes: Vec<u64> = hot.iter().map(|&block| graph.size(block).max(1)).collect();
    let counts: Vec<u64> = hot.iter().map(|&block| flow.blocks[block]).collect();
    let edges: Vec<WeightedEdge> = graph
        .edges
        .iter()
        .zip(&flow.edges)
        .filter(|&(_, &count)| count > 0)
        .filter_map(|(edge, &count)| {
            let can_fall_through = !matches!(edge.kind, EdgeKind::Table(_));
            let (&from, &to) = (place.get(&edge.from)?, place.get(&edge.to)?);
            Some(WeightedEdge { from, to, count, can_fall_through })
        })
        .collect();
    let order = ext_tsp::order(&sizes, &counts, &edges);
    (order.into_iter().map(|place| hot[place]).collect(), cold)
}

/// A loop is aligned if it is repeated at least this often per entry by fall-through, which executes
/// the padding.
const REPEATED: u64 = 8;

/// The first blocks of loops in this order that are repeated far more often than entered by
/// fall-through.
pub(crate) fn loops(graph: &Graph, flow: &Flow, order: &[usize]) -> HashSet<usize> {
    let place: HashMap<usize, usize> =
        order.iter().enumerate().map(|(place, &block)| (block, place)).collect();
    let mut back: HashMap<usize, u64> = HashMap::new();
    let mut fallen: HashMap<usize, u64> = HashMap::new();
    for (edge, &count) in graph.edges.iter().zip(&flow.edges) {
        let (Some(&from), Some(&to)) = (place.get(&edge.from), place.get(&edge.to)) else {
            continue;
        };
        let is_table = matches!(edge.kind, EdgeKind::Table(_));
        if from >= to && !is_table {
            *back.entry(edge.to).or_default() += count;
        } else if from + 1 == to && !is_table {
            *fallen.entry(edge.to).or_default() += count;
        }
    }
    back.retain(|block, count| {
        // The first block starts with the function, which is aligned.
        let fallen = fallen.get(block).copied().unwrap_or(0);
        *count > 0 && place[block] > 0 && *count >= REPEATED * fallen
    });
    back.into_keys().collect()
}

/// Size of the hot blocks in bytes.
fn hot_size(moved: &MovedFunction) -> u64 {
    moved.hot.iter().map(|&block| moved.graph.size(block)).sum()
}

/// Sorts functions into their new order.
pub(crate) fn order_functions(moved: &mut [MovedFunction], options: &Options) {
    moved.sort_by_key(|moved| moved.start);
    if options.function_order == FunctionOrder::Address {
        return;
    }
    let nodes: Vec<FunctionNode> = moved
        .iter()
        .map(|moved| FunctionNode { weight: moved.samples, size: hot_size(moved) })
        .collect();
    let order = call_clustering::order(&nodes, &calls(moved));
    let position: HashMap<u64, usize> = order
        .iter()
        .enumerate()
        .map(|(position, &function)| (moved[function].start, position))
        .collect();
    moved.sort_by_key(|moved| position[&moved.start]);
}
