//! Consistent execution counts of blocks and edges, inferred from incomplete counts.
//!
//! Counts from samples are inconsistent: the executions that enter a block differ from those that
//! leave it. The consistent counts with the smallest changes are a minimum-cost flow, with a cost per
//! unit added to a count or removed from it (as in "Profile inference revisited", 2021).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::code::{Edge, EdgeKind};

/// More than any actual count.
const UNLIMITED: u64 = 1 << 60;
/// Cost of one unit more than counted.
const MORE: i64 = 10;
/// Cost of one unit where nothing was counted.
const MORE_THAN_NOTHING: i64 = 11;
/// Cost of one unit less than counted. Higher, because a sample is stronger evidence than its
/// absence.
const LESS: i64 = 20;
/// Additional cost of one unit on a taken branch, so that fall-through is preferred among equals.
const TAKEN: i64 = 1;
/// Cost of entering or leaving the function at a block where only exceptions or calls that do not
/// return can do so.
const UNUSUAL_ENTRY_OR_EXIT: i64 = 50;
/// Maximum number of rounds; the result of the last one is used.
const MAX_ROUNDS: usize = 2000;

#[derive(Debug)]
pub(crate) struct KnownCounts<'a> {
    /// Executions of each block; `None`: unknown.
    pub(crate) blocks: &'a [Option<u64>],
    pub(crate) edges: &'a [Edge],
    /// Executions of each edge; `None`: unknown.
    pub(crate) taken: &'a [Option<u64>],
    /// Whether control can leave the function at the end of each block.
    pub(crate) leaves: &'a [bool],
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Flow {
    pub(crate) blocks: Vec<u64>,
    pub(crate) edges: Vec<u64>,
}

/// Infers consistent counts. Block 0 is the entry.
pub(crate) fn infer(counts: &KnownCounts) -> Flow {
    let blocks = counts.blocks.len();
    let into = |block: usize| 2 * block;
    let out_of = |block: usize| 2 * block + 1;
    let (outside, source, sink) = (2 * blocks, 2 * blocks + 1, 2 * blocks + 2);
    let mut network = Network::new(2 * blocks + 3);
    // Counts are an existing flow; the network carries the changes to it.
    let counted = |network: &mut Network, from, to, count: Option<u64>, cost: i64| match count {
        None => (network.add(from, to, UNLIMITED, cost), None, 0),
        Some(0) => (network.add(from, to, UNLIMITED, MORE_THAN_NOTHING + cost), None, 0),
        Some(count) => {
            network.add(source, to, count, 0);
            network.add(from, sink, count, 0);
            let less = network.add(to, from, count, LESS);
            (network.add(from, to, UNLIMITED, MORE + cost), Some(less), count)
        }
    };
    let mut of_blocks = Vec::with_capacity(blocks);
    for (block, &count) in counts.blocks.iter().enumerate() {
        of_blocks.push(counted(&mut network, into(block), out_of(block), count, 0));
    }
    let mut of_edges = Vec::with_capacity(counts.edges.len());
    let mut entered = vec![false; blocks];
    let mut left = counts.leaves.to_vec();
    for (edge, &count) in counts.edges.iter().zip(counts.taken) {
        let cost = if edge.kind == EdgeKind::FallThrough { 0 } else { TAKEN };
        let (from, to) = (out_of(edge.from), into(edge.to));
        of_edges.push(counted(&mut network, from, to, count, cost));
        entered[edge.to] = true;
        left[edge.from] = true;
    }
    for block in 0..blocks {
        if block == 0 || !entered[block] {
            let cost = if block == 0 { 0 } else { UNUSUAL_ENTRY_OR_EXIT };
            network.add(outside, into(block), UNLIMITED, cost);
        }
        if counts.leaves[block] || !left[block] {
            let cost = if counts.leaves[block] { 0 } else { UNUSUAL_ENTRY_OR_EXIT };
            network.add(out_of(block), outside, UNLIMITED, cost);
        }
    }
    network.run(source, sink);
    let total = |&(more, less, count): &(usize, Option<usize>, u64)| {
        (count + network.flow(more)).saturating_sub(less.map_or(0, |less| network.flow(less)))
    };
    let mut flow = Flow {
        blocks: of_blocks.iter().map(total).collect(),
        edges: of_edges.iter().map(total).collect(),
    };
    flow.connect(counts.edges);
    flow
}

impl Flow {
    /// Raises the counts of blocks to known minimums, which the cheapest flow may have dropped, and
    /// connects them to the entry.
    pub(crate) fn raise(&mut self, least: &[u64], edges: &[Edge]) {
        for (count, least) in self.blocks.iter_mut().zip(least) {
            *count = (*count).max(*least);
        }
        self.connect(edges);
    }

    /// Connects every executed block to the entry: an isolated loop is consistent, too.
    fn connect(&mut self, edges: &[Edge]) {
        let blocks = self.blocks.len();
        let mut outgoing = vec![Vec::new(); blocks];
        for (index, edge) in edges.iter().enumerate() {
            outgoing[edge.from].push(index);
        }
        let mut reached = vec![false; blocks];
        let mut pending = vec![0];
        reached[0] = true;
        loop {
            while let Some(block) = pending.pop() {
                for &index in &outgoing[block] {
                    let to = edges[index].to;
                    if self.edges[index] > 0 && !reached[to] {
                        reached[to] = true;
                        pending.push(to);
                    }
                }
            }
            // The shortest path from a reached block to an executed one that is not reached.
            let mut predecessor = vec![None; blocks];
            let mut seen = reached.clone();
            let mut queue: VecDeque<usize> = (0..blocks).filter(|&block| reached[block]).collect();
            let mut found = None;
            while let Some(block) = queue.pop_front() {
                if !reached[block] && self.blocks[block] > 0 {
                    found = Some(block);
                    break;
                }
                for &index in &outgoing[block] {
                    let to = edges[index].to;
                    if !seen[to] {
                        seen[to] = true;
                        predecessor[to] = Some(index);
                        queue.push_back(to);
                    }
                }
            }
            let Some(mut block) = found else { return };
            while let Some(index) = predecessor[block] {
                self.edges[index] = self.edges[index].max(1);
                self.blocks[block] = self.blocks[block].max(1);
                block = edges[index].from;
                pending.push(block);
            }
            self.blocks[0] = self.blocks[0].max(1);
        }
    }
}

/// A flow network with capacities and costs.
struct Network {
    arcs: Vec<Arc>,
    from: Vec<Vec<usize>>,
}

/// An arc. The arc after one with an even index is its reverse.
struct Arc {
    to: usize,
    capacity: u64,
    cost: i64,
}

impl Network {
    fn new(nodes: usize) -> Self {
        Self { arcs: Vec::new(), from: vec![Vec::new(); nodes] }
    }

    fn add(&mut self, from: usize, to: usize, capacity: u64, cost: i64) -> usize {
        let index = self.arcs.len();
        self.arcs.push(Arc { to, capacity, cost });
        self.arcs.push(Arc { to: from, capacity: 0, cost: -cost });
        self.from[from].push(index);
        self.from[to].push(index + 1);
        index
    }

    fn flow(&self, arc: usize) -> u64 {
        self.arcs[arc + 1].capacity
    }

    /// Finds the maximum flow of minimum cost.
    fn run(&mut self, source: usize, sink: usize) {
        let nodes = self.from.len();
        let mut potential = vec![0_i64; nodes];
        for _ in 0..MAX_ROUNDS {
            let distance = self.distances(source, &potential);
            let Some(to_sink) = distance[sink] else { return };
            for (potential, distance) in potential.iter_mut().zip(&distance) {
                *potential += distance.unwrap_or(to_sink).min(to_sink);
            }
            let mut next = vec![0; nodes];
            while self.push(source, sink, &potential, &mut next) > 0 {}
        }
    }

    /// Costs of the cheapest paths from the source. No reduced cost may be negative.
    fn distances(&self, source: usize, potential: &[i64]) -> Vec<Option<i64>> {
        let mut distance = vec![None; self.from.len()];
        let mut heap = BinaryHeap::from([(Reverse(0), source)]);
        distance[source] = Some(0);
        while let Some((Reverse(so_far), node)) = heap.pop() {
            if distance[node].is_some_and(|known| known < so_far) {
                continue;
            }
            for &index in &self.from[node] {
                let arc = &self.arcs[index];
                let cost = so_far + arc.cost + potential[node] - potential[arc.to];
                if arc.capacity > 0 && distance[arc.to].is_none_or(|known| cost < known) {
                    distance[arc.to] = Some(cost);
                    heap.push((Reverse(cost), arc.to));
                }
            }
        }
        distance
    }

    /// Sends flow along one path of reduced cost 0. Returns the amount. `next`: the first arc of each
    /// node that may still lead to the sink.
    fn push(&mut self, source: usize, sink: usize, potential: &[i64], next: &mut [usize]) -> u64 {
        let mut path: Vec<usize> = Vec::new();
        let mut on_path = vec![false; self.from.len()];
        let mut node = source;
        on_path[source] = true;
        while node != sink {
            let step = loop {
                let Some(&index) = self.from[node].get(next[node]) else { break None };
                let arc = &self.arcs[index];
                let free = arc.cost + potential[node] - potential[arc.to] == 0;
                if arc.capacity > 0 && free && !on_path[arc.to] {
                    break Some(index);
                }
                next[node] += 1;
            };
            match step {
                Some(index) => {
                    node = self.arcs[index].to;
                    on_path[node] = true;
                    path.push(index);
                }
                None => {
                    let Some(index) = path.pop() else { return 0 };
                    on_path[node] = false;
                    node = self.arcs[index ^ 1].to;
                    next[node] += 1;
                }
            }
        }
        let amount = path.iter().map(|&index| self.arcs[index].capacity).min().unwrap_or(0);
        for index in path {
            self.arcs[index].capacity -= amount;
            self.arcs[index ^ 1].capacity += amount;
        }
        amount
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(from: usize, to: usize, kind: EdgeKind) -> Edge {
        Edge { from, to, kind }
    }

    /// A loop: 0 → 1 → 2 → 1 or 3, with a side exit 1 → 3.
    fn looped() -> Vec<Edge> {
        use EdgeKind::{Branch, FallThrough};
        vec![
            edge(0, 1, FallThrough),
            edge(1, 2, FallThrough),
            edge(1, 3, Branch),
            edge(2, 1, Branch),
            edge(2, 3, FallThrough),
        ]
    }

    fn assert_consistent(flow: &Flow, edges: &[Edge]) {
        for block in 1..flow.blocks.len() {
            let into: u64 = edges
                .iter()
                .zip(&flow.edges)
                .filter(|(edge, _)| edge.to == block)
                .map(|(_, &count)| count)
                .sum();
            assert_eq!(into, flow.blocks[block], "block {block} of {flow:?}");
        }
    }

    #[test]
    fn consistent_counts_are_kept() {
        let edges = looped();
        let blocks = [Some(10), Some(100), Some(95), Some(10)];
        let leaves = [false, false, false, true];
        let counts =
            KnownCounts { blocks: &blocks, edges: &edges, taken: &[None; 5], leaves: &leaves };
        let flow = infer(&counts);
        assert_consistent(&flow, &edges);
        assert_eq!(flow.blocks, [10, 100, 95, 10]);
        assert_eq!(flow.edges, [10, 95, 5, 90, 5]);
    }

    #[test]
    fn unsampled_block_on_the_only_path_gets_a_count() {
        let edges = looped();
        let blocks = [Some(0), Some(100), Some(90), Some(10)];
        let leaves = [false, false, false, true];
        let counts =
            KnownCounts { blocks: &blocks, edges: &edges, taken: &[None; 5], leaves: &leaves };
        let flow = infer(&counts);
        assert_consistent(&flow, &edges);
        assert!(flow.blocks[0] > 0 && flow.edges[0] > 0, "{flow:?}");
    }

    #[test]
    fn isolated_hot_loop_is_connected_to_the_entry() {
        use EdgeKind::{Branch, FallThrough};
        let edges = [
            edge(0, 1, FallThrough),
            edge(0, 2, Branch),
            edge(1, 2, FallThrough),
            edge(2, 2, Branch),
            edge(2, 3, FallThrough),
        ];
        let blocks = [Some(0), Some(0), Some(1000), Some(0)];
        let leaves = [false, false, false, true];
        let counts =
            KnownCounts { blocks: &blocks, edges: &edges, taken: &[None; 5], leaves: &leaves };
        let flow = infer(&counts);
        assert!(flow.blocks[0] > 0, "{flow:?}");
        assert!(flow.edges[1] > 0 || flow.edges[0] > 0, "{flow:?}");
        assert!(flow.blocks[2] >= 900, "{flow:?}");
    }

    #[test]
    fn edge_counts_are_used_if_no_block_count_is_known() {
        let edges = looped();
        let taken = [None, None, Some(3), Some(50), None];
        let leaves = [false, false, false, true];
        let counts =
            KnownCounts { blocks: &[None; 4], edges: &edges, taken: &taken, leaves: &leaves };
        let flow = infer(&counts);
        assert_consistent(&flow, &edges);
        assert_eq!((flow.edges[2], flow.edges[3]), (3, 50), "{flow:?}");
        assert!(flow.blocks[2] >= 50, "{flow:?}");
    }
}
