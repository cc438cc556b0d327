//! A function to move: the order of its blocks, the order of functions, and the effect of both.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::code::{EdgeKind, Graph, InstKind};
use crate::ext_tsp::WeightedEdge;
use crate::flow::Flow;
use crate::select::MovableFunction;
use crate::{AddressMap, EntryPatch, FunctionOrder, Options, PredictedEffect, ext_tsp};

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
    let place: HashMap<usize, usize> = hot.iter().copied().zip(0..).collect();
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
    let place: HashMap<usize, usize> = order.iter().copied().zip(0..).collect();
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

fn hot_size(moved: &MovedFunction) -> u64 {
    moved.hot.iter().map(|&block| moved.movable.graph.size(block)).sum()
}

/// Sorts functions into their new order.
pub(crate) fn order_functions(moved: &mut [MovedFunction], options: &Options) {
    moved.sort_by_key(|moved| moved.movable.start);
    if options.function_order == FunctionOrder::Address {
        return;
    }
    let nodes: Vec<FunctionNode> = moved
        .iter()
        .map(|moved| FunctionNode { weight: moved.samples, size: hot_size(moved) })
        .collect();
    let order = clustered(&nodes, &calls(moved));
    let position: HashMap<u64, usize> =
        order.iter().map(|&function| moved[function].movable.start).zip(0..).collect();
    moved.sort_by_key(|moved| position[&moved.movable.start]);
}

/// A function to move, with its new block order.
#[derive(Debug)]
pub(crate) struct MovedFunction {
    /// Position among all hot functions, hottest first.
    pub(crate) rank: usize,
    pub(crate) samples: u64,
    pub(crate) movable: MovableFunction,
    /// Executions of its blocks and edges.
    pub(crate) flow: Flow,
    pub(crate) hot: Vec<usize>,
    /// The other copied blocks in their new order.
    pub(crate) cold: Vec<usize>,
    /// For each block, the index in it of the instruction before which it is counted. Empty if nothing is
    /// counted.
    pub(crate) counters: Vec<Option<usize>>,
    /// Whether the flow is from exact counts.
    pub(crate) is_counted: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Prediction {
    transfers: u64,
    fall_through_before: u64,
    fall_through_after: u64,
    lines: [BTreeSet<u64>; 2],
    pages: [BTreeSet<u64>; 2],
}

impl Prediction {
    pub(crate) fn add(&mut self, moved: &MovedFunction, map: &AddressMap) {
        let mut next_of = vec![None; moved.movable.graph.blocks.len()];
        for order in [&moved.hot, &moved.cold] {
            for pair in order.windows(2) {
                next_of[pair[0]] = Some(pair[1]);
            }
        }
        for (edge, &count) in moved.movable.graph.edges.iter().zip(&moved.flow.edges) {
            self.transfers += count;
            if edge.kind == EdgeKind::FallThrough {
                self.fall_through_before += count;
            }
            let by_table = matches!(edge.kind, EdgeKind::Table(_));
            if !by_table && next_of[edge.from] == Some(edge.to) {
                self.fall_through_after += count;
            }
        }
        for block in 0..moved.movable.graph.blocks.len() {
            if moved.flow.blocks[block] == 0 {
                continue;
            }
            for inst in moved.movable.graph.code(block) {
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

/// Maximum size of a cluster in bytes.
const MAX_CLUSTER: u64 = 1 << 20;
/// Clusters are not merged if that makes the caller's cluster less dense by this factor.
const MAX_DILUTION: f64 = 8.0;

#[derive(Debug, Clone, Copy)]
struct FunctionNode {
    pub(crate) weight: u64,
    /// Size of its hot code in bytes.
    pub(crate) size: u64,
}

#[derive(Debug, Clone, Copy)]
struct CallCount {
    pub(crate) caller: usize,
    pub(crate) callee: usize,
    pub(crate) count: u64,
}

struct Cluster {
    functions: Vec<usize>,
    weight: u64,
    size: u64,
}

impl Cluster {
    fn density(&self) -> f64 {
        self.weight as f64 / self.size.max(1) as f64
    }
}

/// The order of functions, by call-chain clustering ("Optimizing function placement for large-scale
/// data-center applications", 2017): starting with the hottest function, the cluster of each
/// function is appended to the cluster of its most frequent caller.
fn clustered(nodes: &[FunctionNode], calls: &[CallCount]) -> Vec<usize> {
    let mut callers: Vec<Vec<&CallCount>> = vec![Vec::new(); nodes.len()];
    for call in calls.iter().filter(|call| call.caller != call.callee) {
        callers[call.callee].push(call);
    }
    let mut cluster_of: Vec<usize> = (0..nodes.len()).collect();
    let mut clusters: Vec<Cluster> = nodes
        .iter()
        .enumerate()
        .map(|(index, node)| Cluster {
            functions: vec![index],
            weight: node.weight,
            size: node.size,
        })
        .collect();
    let mut by_weight: Vec<usize> = (0..nodes.len()).collect();
    by_weight.sort_by_key(|&index| (std::cmp::Reverse(nodes[index].weight), index));
    for function in by_weight {
        let best = callers[function]
            .iter()
            .max_by_key(|call| (call.count, std::cmp::Reverse(call.caller)));
        let Some(best) = best else { continue };
        let (into, from) = (cluster_of[best.caller], cluster_of[function]);
        if into == from || clusters[into].size + clusters[from].size > MAX_CLUSTER {
            continue;
        }
        let (caller, callee) = (&clusters[into], &clusters[from]);
        let joined =
            (caller.weight + callee.weight) as f64 / (caller.size + callee.size).max(1) as f64;
        if caller.density() > joined * MAX_DILUTION {
            continue;
        }
        let functions = std::mem::take(&mut clusters[from].functions);
        for &moved in &functions {
            cluster_of[moved] = into;
        }
        clusters[into].functions.extend(functions);
        clusters[into].weight += std::mem::take(&mut clusters[from].weight);
        clusters[into].size += std::mem::take(&mut clusters[from].size);
    }
    clusters.retain(|cluster| !cluster.functions.is_empty());
    clusters.sort_by(|a, b| {
        b.density().total_cmp(&a.density()).then_with(|| a.functions.cmp(&b.functions))
    });
    clusters.into_iter().flat_map(|cluster| cluster.functions).collect()
}

/// The calls between these functions that were executed, by caller and callee.
fn calls(moved: &[MovedFunction]) -> Vec<CallCount> {
    let index: HashMap<u64, usize> =
        moved.iter().map(|moved| moved.movable.start).zip(0..).collect();
    let mut calls: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for (caller, moved) in moved.iter().enumerate() {
        for block in 0..moved.movable.graph.blocks.len() {
            for inst in moved.movable.graph.code(block) {
                let (InstKind::Call(target) | InstKind::Jump(target)) = inst.kind else { continue };
                let is_inside =
                    matches!(inst.kind, InstKind::Jump(_)) && target == moved.movable.start;
                if let Some(&callee) = index.get(&target).filter(|_| !is_inside) {
                    *calls.entry((caller, callee)).or_default() += moved.flow.blocks[block];
                }
            }
        }
    }
    let calls = calls.into_iter().filter(|(_, count)| *count > 0);
    calls.map(|((caller, callee), count)| CallCount { caller, callee, count }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callee_follows_its_most_frequent_caller() {
        let nodes = [10, 100, 50, 1].map(|weight| FunctionNode { weight, size: 100 });
        let calls = [
            CallCount { caller: 0, callee: 2, count: 90 },
            CallCount { caller: 1, callee: 2, count: 10 },
            CallCount { caller: 3, callee: 1, count: 1 },
        ];
        let order = clustered(&nodes, &calls);
        let position = |function| order.iter().position(|&other| other == function).unwrap();
        assert_eq!(position(2), position(0) + 1);
        assert_eq!(order.len(), 4);
    }

    #[test]
    fn dense_cluster_is_not_diluted() {
        let nodes =
            [FunctionNode { weight: 1000, size: 10 }, FunctionNode { weight: 10, size: 100_000 }];
        let calls = [CallCount { caller: 0, callee: 1, count: 5 }];
        assert_eq!(clustered(&nodes, &calls), [0, 1]);
    }
}
