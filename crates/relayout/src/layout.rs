//! Which blocks of a function go where, and functions in which order.

use std::collections::{HashMap, HashSet};

use crate::call_clustering::{self, CallCount, FunctionNode};
use crate::code::InstKind;
use crate::emit::MovedFunction;
use crate::ext_tsp::{self, WeightedEdge};
use crate::flow::Flow;
use crate::graph::{EdgeKind, Graph};
use crate::{Module, Options};

/// The hot and the cold blocks of a function, each in their new order.
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
    // What the patch replaces must be in the copy, executed or not.
    let patched = graph.instruction_at(patch).map_or(0, |inst| graph.block_of(inst));
    let is_hot = |block: usize| block == 0 || block == patched || flow.blocks[block] > 0;
    let hot: Vec<usize> = all.clone().filter(|&block| is_hot(block)).collect();
    let cold =
        if options.copy_cold { all.filter(|&block| !is_hot(block)).collect() } else { vec![] };
    let place: HashMap<usize, usize> =
        hot.iter().enumerate().map(|(place, &block)| (block, place)).collect();
    let sizes: Vec<u64> = hot.iter().map(|&block| graph.size(block).max(1)).collect();
    let counts: Vec<u64> = hot.iter().map(|&block| flow.blocks[block]).collect();
    let ways: Vec<WeightedEdge> = graph
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
    let order = ext_tsp::order(&sizes, &counts, &ways);
    (order.into_iter().map(|place| hot[place]).collect(), cold)
}

/// Entered from before so seldom, beside its repetitions, that padding in front costs nothing.
const REPEATED: u64 = 8;

/// The blocks that begin loops in this order, and are far more often jumped back to than fallen
/// into.
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
        // The first one begins where the function does.
        let fallen = fallen.get(block).copied().unwrap_or(0);
        *count > 0 && place[block] > 0 && *count >= REPEATED * fallen
    });
    back.into_keys().collect()
}

/// Puts functions into their new order.
pub(crate) fn order_functions(module: &Module, moved: &mut [MovedFunction], options: &Options) {
    moved.sort_by_key(|moved| moved.start);
    if !options.reorder_functions {
        return;
    }
    let index: HashMap<u64, usize> =
        moved.iter().enumerate().map(|(index, moved)| (moved.start, index)).collect();
    let nodes: Vec<FunctionNode> = moved
        .iter()
        .map(|moved| FunctionNode {
            weight: moved.samples,
            size: moved.hot.iter().map(|&block| moved.graph.size(block)).sum(),
        })
        .collect();
    let mut calls: HashMap<(usize, usize), u64> = HashMap::new();
    for (caller, moved) in moved.iter().enumerate() {
        for &block in &moved.hot {
            for inst in moved.graph.code(block) {
                let (InstKind::Call(target) | InstKind::Jump(target)) = inst.kind else { continue };
                if let Some(&callee) = index.get(&target) {
                    *calls.entry((caller, callee)).or_default() += moved.flow.blocks[block];
                }
            }
        }
        // Calls through pointers are known from call chains only.
        for &(target, count) in &moved.chained {
            let callee = module.function_at(target).and_then(|callee| index.get(&callee.start));
            if let Some(&callee) = callee {
                *calls.entry((caller, callee)).or_default() += count;
            }
        }
    }
    let mut calls: Vec<CallCount> = calls
        .into_iter()
        .map(|((caller, callee), count)| CallCount { caller, callee, count })
        .collect();
    calls.sort_unstable_by_key(|calls| (calls.caller, calls.callee));
    let order = call_clustering::order(&nodes, &calls);
    let mut place = vec![0; order.len()];
    for (position, &function) in order.iter().enumerate() {
        place[function] = position;
    }
    let mut places: HashMap<u64, usize> = HashMap::new();
    for (function, moved) in moved.iter().enumerate() {
        places.insert(moved.start, place[function]);
    }
    moved.sort_by_key(|moved| places[&moved.start]);
}
