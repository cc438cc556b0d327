//! Execution counts of a function's blocks, estimated from samples.

use std::ops::Range;

use crate::code::InstKind;
use crate::flow::{Flow, KnownCounts, infer};
use crate::graph::{EdgeKind, Graph};
use crate::{Branch, BranchCount, Samples};

/// Executions that one sample in a block of one instruction stands for. Larger than 1, so that
/// division by the number of instructions keeps precision.
pub(crate) const SCALE: u64 = 64;

/// Samples sorted by address.
pub(crate) struct SortedSamples {
    hits: Vec<(u64, u64)>,
    branches: Vec<(Branch, BranchCount)>,
}

impl SortedSamples {
    pub(crate) fn new(samples: &Samples) -> Self {
        let mut hits: Vec<_> = samples.hits().iter().map(|(&at, &count)| (at, count)).collect();
        hits.sort_unstable();
        let mut branches: Vec<_> =
            samples.branches().iter().map(|(&branch, &count)| (branch, count)).collect();
        branches.sort_unstable_by_key(|&(branch, _)| branch);
        Self { hits, branches }
    }

    /// Samples in a range: addresses and counts.
    pub(crate) fn hits_in(&self, range: Range<u64>) -> &[(u64, u64)] {
        within(&self.hits, range, |hit| hit.0)
    }

    fn branches(&self, graph: &Graph) -> &[(Branch, BranchCount)] {
        within(&self.branches, graph.extent(), |(branch, _)| branch.from)
    }

    /// Estimates the executions of a function's blocks and edges.
    pub(crate) fn block_counts(&self, graph: &Graph) -> Flow {
        let branches = self.branches(graph);
        let (blocks, taken) = if branches.is_empty() {
            (by_hits(graph, self.hits_in(graph.extent())), vec![None; graph.edges.len()])
        } else {
            (vec![None; graph.blocks.len()], by_branches(graph, branches))
        };
        let leaves: Vec<bool> = (0..graph.blocks.len()).map(|block| leaves(graph, block)).collect();
        infer(&KnownCounts { blocks: &blocks, edges: &graph.edges, taken: &taken, leaves: &leaves })
    }
}

/// Observations of each block: samples in it, and recorded branches to its start.
pub(crate) fn observations(sorted: &SortedSamples, graph: &Graph) -> Vec<u64> {
    let mut seen = time_in_blocks(graph, sorted.hits_in(graph.extent()));
    for (branch, count) in sorted.branches(graph) {
        if let Some(inst) = graph.instruction_at(branch.to) {
            seen[graph.block_of(inst)] += count.taken;
        }
    }
    seen
}

/// The items with addresses in a range, from a list sorted by address.
pub(crate) fn within<T>(sorted: &[T], range: Range<u64>, address: impl Fn(&T) -> u64) -> &[T] {
    let first = sorted.partition_point(|item| address(item) < range.start);
    let last = sorted.partition_point(|item| address(item) < range.end);
    &sorted[first..last.max(first)]
}

/// Number of samples in each block.
fn time_in_blocks(graph: &Graph, hits: &[(u64, u64)]) -> Vec<u64> {
    let mut time = vec![0; graph.blocks.len()];
    for &(address, count) in hits {
        let next = graph.instructions.partition_point(|inst| inst.address <= address);
        time[graph.block_of(next.max(1) - 1)] += count;
    }
    time
}

/// Counts from samples: time in a block is proportional to its executions times its instructions.
fn by_hits(graph: &Graph, hits: &[(u64, u64)]) -> Vec<Option<u64>> {
    let time = time_in_blocks(graph, hits);
    time.iter()
        .enumerate()
        .map(|(block, &time)| {
            let work = graph.code(block).iter().filter(|inst| inst.kind != InstKind::Nop).count();
            let executions = (time * SCALE).div_ceil(work.max(1) as u64);
            Some(executions)
        })
        .collect()
}

/// Counts from branch records, which count taken edges but not fall-throughs.
fn by_branches(graph: &Graph, branches: &[(Branch, BranchCount)]) -> Vec<Option<u64>> {
    graph
        .edges
        .iter()
        .map(|edge| {
            if edge.kind == EdgeKind::FallThrough {
                return None;
            }
            let from = graph.code(edge.from).last()?.address;
            let branch = Branch { from, to: graph.start(edge.to) };
            let found = branches.binary_search_by_key(&branch, |&(branch, _)| branch);
            Some(found.map_or(0, |index| branches[index].1.taken))
        })
        .collect()
}

/// Whether control can leave the function at the end of a block.
fn leaves(graph: &Graph, block: usize) -> bool {
    let Some(last) = graph.code(block).last() else { return true };
    let inside = |target: u64| graph.extent().contains(&target);
    match last.kind {
        InstKind::Return | InstKind::IndirectJump => true,
        InstKind::Jump(target) | InstKind::Branch(_, target) if !inside(target) => true,
        InstKind::Jump(_) => false,
        _ => !inside(last.end()),
    }
}
