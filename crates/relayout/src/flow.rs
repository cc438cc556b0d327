//! How often each block and each edge is executed, inferred from incomplete counts.
//!
//! Counts from samples do not add up: what enters a block is not what leaves it. The flow that
//! does add up and changes the counts least is found as a minimum-cost flow, where adding to a
//! count and taking from it have a price per unit (as in "Profile inference revisited", 2021).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::graph::{Edge, EdgeKind};

/// More than any real count.
const UNLIMITED: u64 = 1 << 60;
/// Price of one unit more than was counted.
const MORE: i64 = 10;
/// Price of one unit where nothing was counted.
const MORE_THAN_NOTHING: i64 = 11;
/// Price of one unit less than was counted. Higher: a sample is evidence, a missing one less so.
const LESS: i64 = 20;
/// Price of a unit on a taken branch, so that of equal ways the straight one is chosen.
const TAKEN: i64 = 1;
/// Price of entering or leaving where only exceptions and calls that do not return do.
const ODD_WAY: i64 = 50;
/// Rounds after which the search ends with what it has.
const MAX_ROUNDS: usize = 2000;

/// What is known about a function's execution.
#[derive(Debug)]
pub(crate) struct KnownCounts<'a> {
    /// Executions of each block; `None`: nothing is known.
    pub(crate) blocks: &'a [Option<u64>],
    /// Ways between blocks.
    pub(crate) edges: &'a [Edge],
    /// Executions of each edge; `None`: nothing is known.
    pub(crate) taken: &'a [Option<u64>],
    /// Blocks that control leaves the function from.
    pub(crate) leaves: &'a [bool],
}

/// Executions that add up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Flow {
    pub(crate) blocks: Vec<u64>,
    pub(crate) edges: Vec<u64>,
}

/// Infers executions. Block 0 is the entry.
pub(crate) fn infer(counts: &KnownCounts) -> Flow {
    let blocks = counts.blocks.len();
    let into = |block: usize| 2 * block;
    let out_of = |block: usize| 2 * block + 1;
    let (outside, source, sink) = (2 * blocks, 2 * blocks + 1, 2 * blocks + 2);
    let mut network = Network::new(2 * blocks + 3);
    // A count is a flow that is there already; the network carries what must be changed.
    let counted = |network: &mut Network, from, to, count: Option<u64>, price: i64| match count {
        None => (network.add(from, to, UNLIMITED, price), None, 0),
        Some(0) => (network.add(from, to, UNLIMITED, MORE_THAN_NOTHING + price), None, 0),
        Some(count) => {
            network.add(source, to, count, 0);
            network.add(from, sink, count, 0);
            let less = network.add(to, from, count, LESS);
            (network.add(from, to, UNLIMITED, MORE + price), Some(less), count)
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
        let price = if edge.kind == EdgeKind::FallThrough { 0 } else { TAKEN };
        let (from, to) = (out_of(edge.from), into(edge.to));
        of_edges.push(counted(&mut network, from, to, count, price));
        entered[edge.to] = true;
        left[edge.from] = true;
    }
    for block in 0..blocks {
        if block == 0 || !entered[block] {
            let price = if block == 0 { 0 } else { ODD_WAY };
            network.add(outside, into(block), UNLIMITED, price);
        }
        if counts.leaves[block] || !left[block] {
            let price = if counts.leaves[block] { 0 } else { ODD_WAY };
            network.add(out_of(block), outside, UNLIMITED, price);
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
    flow.join(counts.edges);
    flow
}

impl Flow {
    /// Gives every executed block a way from the entry: a loop alone would add up too.
    fn join(&mut self, edges: &[Edge]) {
        let blocks = self.blocks.len();
        let mut ways = vec![Vec::new(); blocks];
        for (index, edge) in edges.iter().enumerate() {
            ways[edge.from].push(index);
        }
        let mut reached = vec![false; blocks];
        let mut pending = vec![0];
        reached[0] = true;
        loop {
            while let Some(block) = pending.pop() {
                for &index in &ways[block] {
                    let to = edges[index].to;
                    if self.edges[index] > 0 && !reached[to] {
                        reached[to] = true;
                        pending.push(to);
                    }
                }
            }
            // The shortest way from what is reached to something executed that is not.
            let mut came_by = vec![None; blocks];
            let mut seen = reached.clone();
            let mut queue: VecDeque<usize> = (0..blocks).filter(|&block| reached[block]).collect();
            let mut found = None;
            while let Some(block) = queue.pop_front() {
                if !reached[block] && self.blocks[block] > 0 {
                    found = Some(block);
                    break;
                }
                for &index in &ways[block] {
                    let to = edges[index].to;
                    if !seen[to] {
                        seen[to] = true;
                        came_by[to] = Some(index);
                        queue.push_back(to);
                    }
                }
            }
            let Some(mut block) = found else { return };
            while let Some(index) = came_by[block] {
                self.edges[index] = self.edges[index].max(1);
                self.blocks[block] = self.blocks[block].max(1);
                block = edges[index].from;
                pending.push(block);
            }
            self.blocks[0] = self.blocks[0].max(1);
        }
    }
}

/// A network with capacities and prices.
struct Network {
    arcs: Vec<Arc>,
    from: Vec<Vec<usize>>,
}

/// An arc; the one after an even one is its reverse.
struct Arc {
    to: usize,
    room: u64,
    price: i64,
}

impl Network {
    fn new(nodes: usize) -> Self {
        Self { arcs: Vec::new(), from: vec![Vec::new(); nodes] }
    }

    fn add(&mut self, from: usize, to: usize, room: u64, price: i64) -> usize {
        let index = self.arcs.len();
        self.arcs.push(Arc { to, room, price });
        self.arcs.push(Arc { to: from, room: 0, price: -price });
        self.from[from].push(index);
        self.from[to].push(index + 1);
        index
    }

    /// What flows through an arc.
    fn flow(&self, arc: usize) -> u64 {
        self.arcs[arc + 1].room
    }

    /// Sends as much as can be sent, at the lowest price.
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

    /// Prices of the cheapest ways from the source, where no reduced price is negative.
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
                let price = so_far + arc.price + potential[node] - potential[arc.to];
                if arc.room > 0 && distance[arc.to].is_none_or(|known| price < known) {
                    distance[arc.to] = Some(price);
                    heap.push((Reverse(price), arc.to));
                }
            }
        }
        distance
    }

    /// Sends something along one way of reduced price 0; how much. `next`: arcs that are known to
    /// lead nowhere are skipped from then on.
    fn push(&mut self, source: usize, sink: usize, potential: &[i64], next: &mut [usize]) -> u64 {
        let mut way: Vec<usize> = Vec::new();
        let mut on_way = vec![false; self.from.len()];
        let mut node = source;
        on_way[source] = true;
        while node != sink {
            let step = loop {
                let Some(&index) = self.from[node].get(next[node]) else { break None };
                let arc = &self.arcs[index];
                let free = arc.price + potential[node] - potential[arc.to] == 0;
                if arc.room > 0 && free && !on_way[arc.to] {
                    break Some(index);
                }
                next[node] += 1;
            };
            match step {
                Some(index) => {
                    node = self.arcs[index].to;
                    on_way[node] = true;
                    way.push(index);
                }
                None => {
                    let Some(index) = way.pop() else { return 0 };
                    on_way[node] = false;
                    node = self.arcs[index ^ 1].to;
                    next[node] += 1;
                }
            }
        }
        let amount = way.iter().map(|&index| self.arcs[index].room).min().unwrap_or(0);
        for index in way {
            self.arcs[index].room -= amount;
            self.arcs[index ^ 1].room += amount;
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

    /// A loop: 0 → 1 → 2 → 1 or 3, with a side way 1 → 3.
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

    fn adds_up(flow: &Flow, edges: &[Edge]) {
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
    fn counts_that_add_up_stay() {
        let edges = looped();
        let blocks = [Some(10), Some(100), Some(95), Some(10)];
        let leaves = [false, false, false, true];
        let counts =
            KnownCounts { blocks: &blocks, edges: &edges, taken: &[None; 5], leaves: &leaves };
        let flow = infer(&counts);
        adds_up(&flow, &edges);
        assert_eq!(flow.blocks, [10, 100, 95, 10]);
        assert_eq!(flow.edges, [10, 95, 5, 90, 5]);
    }

    #[test]
    fn a_block_without_samples_on_the_only_way_gets_some() {
        let edges = looped();
        let blocks = [Some(0), Some(100), Some(90), Some(10)];
        let leaves = [false, false, false, true];
        let counts =
            KnownCounts { blocks: &blocks, edges: &edges, taken: &[None; 5], leaves: &leaves };
        let flow = infer(&counts);
        adds_up(&flow, &edges);
        assert!(flow.blocks[0] > 0 && flow.edges[0] > 0, "{flow:?}");
    }

    #[test]
    fn a_hot_loop_alone_is_joined_to_the_entry() {
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
    fn known_edges_decide_when_no_block_is_known() {
        let edges = looped();
        let taken = [None, None, Some(3), Some(50), None];
        let leaves = [false, false, false, true];
        let counts =
            KnownCounts { blocks: &[None; 4], edges: &edges, taken: &taken, leaves: &leaves };
        let flow = infer(&counts);
        adds_up(&flow, &edges);
        assert_eq!((flow.edges[2], flow.edges[3]), (3, 50), "{flow:?}");
        assert!(flow.blocks[2] >= 50, "{flow:?}");
    }
}
