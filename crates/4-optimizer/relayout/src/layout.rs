//! A function to move: the order of its blocks, the order of functions, and the effect of both.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::call_clustering::{FunctionNode, calls};
use crate::ext_tsp::WeightedEdge;
use crate::flow::Flow;
use crate::frame::Frame;
use crate::graph::{EdgeKind, Graph};
use crate::{
    AddressMap, EntryPatch, FunctionOrder, Options, PredictedEffect, call_clustering, ext_tsp,
};

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

/// A function to move, with its new block order.
#[derive(Debug)]
pub(crate) struct MovedFunction {
    /// Position among all hot functions, hottest first.
    pub(crate) rank: usize,
    pub(crate) samples: u64,
    pub(crate) start: u64,
    /// Address of the jump to the copy.
    pub(crate) patch: u64,
    /// Whether code of the module loads its address.
    pub(crate) address_taken: bool,
    pub(crate) graph: Graph,
    pub(crate) frame: Frame,
    /// Executions of its blocks and edges.
    pub(crate) flow: Flow,
    /// Hot blocks in their new order.
    pub(crate) hot: Vec<usize>,
    /// The other copied blocks in their new order.
    pub(crate) cold: Vec<usize>,
    /// Indices of the jump tables to copy.
    pub(crate) tables: Vec<usize>,
    /// For each block, the index in it of the instruction before which it is counted. Empty if nothing is
    /// counted.
    pub(crate) counters: Vec<Option<usize>>,
    /// Whether the flow is from exact counts.
    pub(crate) is_counted: bool,
}

/// Sums over functions.
#[derive(Debug, Default)]
pub(crate) struct Prediction {
    transfers: u64,
    fall_through_before: u64,
    fall_through_after: u64,
    lines: [BTreeSet<u64>; 2],
    pages: [BTreeSet<u64>; 2],
}

impl Prediction {
    /// Adds a moved function.
    pub(crate) fn add(&mut self, moved: &MovedFunction, map: &AddressMap) {
        let mut next_of = vec![None; moved.graph.blocks.len()];
        for order in [&moved.hot, &moved.cold] {
            for pair in order.windows(2) {
                next_of[pair[0]] = Some(pair[1]);
            }
        }
        for (edge, &count) in moved.graph.edges.iter().zip(&moved.flow.edges) {
            self.transfers += count;
            if edge.kind == EdgeKind::FallThrough {
                self.fall_through_before += count;
            }
            let by_table = matches!(edge.kind, EdgeKind::Table(_));
            if !by_table && next_of[edge.from] == Some(edge.to) {
                self.fall_through_after += count;
            }
        }
        for block in 0..moved.graph.blocks.len() {
            if moved.flow.blocks[block] == 0 {
                continue;
            }
            for inst in moved.graph.code(block) {
                self.touch(0, inst.address);
                if let Some(copy) = map.to_copy(inst.address) {
                    self.touch(1, copy);
                }
            }
        }
    }

    fn touch(&mut self, side: usize, address: u64) {
        self.lines[side].insert(address / 64);
        self.pages[side].insert(address / 4096);
    }

    /// The prediction for all functions together.
    pub(crate) fn effect(&self) -> PredictedEffect {
        let share = |part: u64| (self.transfers > 0).then(|| part as f64 / self.transfers as f64);
        PredictedEffect {
            fall_through_before: share(self.fall_through_before),
            fall_through_after: share(self.fall_through_after),
            lines_before: self.lines[0].len() as u64,
            lines_after: self.lines[1].len() as u64,
            pages_before: self.pages[0].len() as u64,
            pages_after: self.pages[1].len() as u64,
        }
    }
}
