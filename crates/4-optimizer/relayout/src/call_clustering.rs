//! The order of functions, by call-chain clustering ("Optimizing function placement for large-scale
//! data-center applications", 2017): starting with the hottest function, the cluster of each
//! function is appended to the cluster of its most frequent caller.

use std::collections::{BTreeMap, HashMap};

use crate::code::InstKind;
use crate::layout::MovedFunction;

/// Maximum size of a cluster in bytes.
const MAX_CLUSTER: u64 = 1 << 20;
/// Clusters are not merged if that makes the caller's cluster less dense by this factor.
const MAX_DILUTION: f64 = 8.0;

/// A function to order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FunctionNode {
    /// Samples in it.
    pub(crate) weight: u64,
    /// Size of its hot code in bytes.
    pub(crate) size: u64,
}

/// Calls from one function to another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallCount {
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

/// The order of the functions.
pub(crate) fn order(nodes: &[FunctionNode], calls: &[CallCount]) -> Vec<usize> {
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
        let order = order(&nodes, &calls);
        let position = |function| order.iter().position(|&other| other == function).unwrap();
        assert_eq!(position(2), position(0) + 1);
        assert_eq!(order.len(), 4);
    }

    #[test]
    fn dense_cluster_is_not_diluted() {
        let nodes =
            [FunctionNode { weight: 1000, size: 10 }, FunctionNode { weight: 10, size: 100_000 }];
        let calls = [CallCount { caller: 0, callee: 1, count: 5 }];
        assert_eq!(order(&nodes, &calls), [0, 1]);
    }
}
