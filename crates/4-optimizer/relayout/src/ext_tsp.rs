//! The order of a function's hot blocks, by ext-TSP ("Improved basic block reordering", 2018).
//!
//! The objective is few taken branches and short jumps: a fall-through scores 1 per execution, a
//! short jump at most 0.1, decreasing with its length. Chains of blocks are merged greedily; a chain
//! may be split where the other is inserted.

use std::collections::{BTreeMap, BTreeSet};

/// Longest forward jump with a score, in bytes.
const FORWARD: u64 = 1024;
/// Longest backward jump with a score, in bytes.
const BACKWARD: u64 = 640;
/// Score of a jump of length 0; a fall-through has 1.
const JUMP: f64 = 0.1;
/// Chains longer than this are not split.
const MAX_SPLIT: usize = 64;
/// Smaller gains are rounding errors.
const LEAST: f64 = 1e-9;

/// A transfer of control between blocks, with its executions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WeightedEdge {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) count: u64,
    /// Whether it needs no jump if the blocks are adjacent.
    pub(crate) can_fall_through: bool,
}

/// The order of blocks 0 to `sizes.len()`, starting with block 0. `counts`: executions of each.
pub(crate) fn order(sizes: &[u64], counts: &[u64], edges: &[WeightedEdge]) -> Vec<usize> {
    if sizes.is_empty() {
        return Vec::new();
    }
    let mut chains = Chains::new(sizes, edges);
    chains.merge_all();
    chains.concatenate(counts)
}

struct Chains<'a> {
    sizes: &'a [u64],
    edges: &'a [WeightedEdge],
    /// Blocks by chain; merged chains are empty.
    chains: Vec<Vec<usize>>,
    chain_of: Vec<usize>,
    scores: Vec<f64>,
    /// Indices of the edges that start or end in each chain.
    touching: Vec<Vec<usize>>,
    /// Best merge of each pair of connected chains, lower index first.
    merges: BTreeMap<(usize, usize), Merge>,
    /// Address of each block in the order that is being scored.
    positions: Vec<u64>,
}

#[derive(Debug, Clone)]
struct Merge {
    gain: f64,
    order: Vec<usize>,
}

impl<'a> Chains<'a> {
    fn new(sizes: &'a [u64], edges: &'a [WeightedEdge]) -> Self {
        let blocks = sizes.len();
        let mut touching = vec![Vec::new(); blocks];
        for (index, edge) in edges.iter().enumerate() {
            touching[edge.from].push(index);
            if edge.to != edge.from {
                touching[edge.to].push(index);
            }
        }
        let mut chains = Self {
            sizes,
            edges,
            chains: (0..blocks).map(|block| vec![block]).collect(),
            chain_of: (0..blocks).collect(),
            scores: vec![0.0; blocks],
            touching,
            merges: BTreeMap::new(),
            positions: vec![0; blocks],
        };
        // In a chain of one block, only its edges to itself are inside.
        for chain in 0..blocks {
            let mut inside = chains.touching[chain].clone();
            inside.retain(|&edge| edges[edge].from == edges[edge].to);
            chains.scores[chain] = chains.score_placed(&inside);
        }
        for edge in edges {
            let pair = (edge.from.min(edge.to), edge.from.max(edge.to));
            if pair.0 != pair.1 && !chains.merges.contains_key(&pair) {
                let merge = chains.best_merge(pair.0, pair.1);
                chains.merges.insert(pair, merge);
            }
        }
        chains
    }

    fn merge_all(&mut self) {
        loop {
            let best = self
                .merges
                .iter()
                .filter(|(_, merge)| merge.gain > LEAST)
                .max_by(|a, b| a.1.gain.total_cmp(&b.1.gain).then(b.0.cmp(a.0)));
            let Some((&(kept, merged), _)) = best else { return };
            self.merge(kept, merged);
        }
    }

    fn merge(&mut self, kept: usize, merged: usize) {
        let Some(merge) = self.merges.remove(&(kept, merged)) else { return };
        for &block in &merge.order {
            self.chain_of[block] = kept;
        }
        self.scores[kept] += self.scores[merged] + merge.gain;
        self.chains[kept] = merge.order;
        self.chains[merged].clear();
        let mut touching = std::mem::take(&mut self.touching[merged]);
        touching.append(&mut self.touching[kept]);
        touching.sort_unstable();
        touching.dedup();
        let neighbours: BTreeSet<usize> = touching
            .iter()
            .flat_map(|&edge| [self.edges[edge].from, self.edges[edge].to])
            .map(|block| self.chain_of[block])
            .filter(|&chain| chain != kept)
            .collect();
        self.touching[kept] = touching;
        for neighbour in neighbours {
            self.merges.remove(&(merged.min(neighbour), merged.max(neighbour)));
            let pair = (kept.min(neighbour), kept.max(neighbour));
            let merge = self.best_merge(pair.0, pair.1);
            self.merges.insert(pair, merge);
        }
    }

    fn best_merge(&mut self, a: usize, b: usize) -> Merge {
        let (first, second) = (self.chains[a].clone(), self.chains[b].clone());
        let mut edges: Vec<usize> = self.touching[a].clone();
        edges.extend_from_slice(&self.touching[b]);
        edges.sort_unstable();
        edges.dedup();
        edges.retain(|&edge| {
            let chain = |block: usize| self.chain_of[block];
            let (from, to) = (chain(self.edges[edge].from), chain(self.edges[edge].to));
            (from == a || from == b) && (to == a || to == b)
        });
        let before = self.scores[a] + self.scores[b];
        let mut best = Merge { gain: 0.0, order: Vec::new() };
        for (x, y) in [(&first, &second), (&second, &first)] {
            self.try_order([x, y, &[]], &edges, before, &mut best);
            if x.len() > MAX_SPLIT {
                continue;
            }
            for at in 1..x.len() {
                let (head, tail) = x.split_at(at);
                self.try_order([head, y, tail], &edges, before, &mut best);
                self.try_order([y, tail, head], &edges, before, &mut best);
                self.try_order([tail, head, y], &edges, before, &mut best);
            }
        }
        best
    }

    fn try_order(&mut self, parts: [&[usize]; 3], edges: &[usize], before: f64, best: &mut Merge) {
        let order = || parts.iter().flat_map(|part| part.iter().copied());
        // Block 0 is always first.
        if order().skip(1).any(|block| block == 0) {
            return;
        }
        let mut at = 0;
        for block in order() {
            self.positions[block] = at;
            at += self.sizes[block];
        }
        let gain = self.score_placed(edges) - before;
        if gain > best.gain + LEAST {
            *best = Merge { gain, order: order().collect() };
        }
    }

    fn score_placed(&self, edges: &[usize]) -> f64 {
        edges
            .iter()
            .map(|&edge| {
                let edge = &self.edges[edge];
                let end = self.positions[edge.from] + self.sizes[edge.from];
                edge.count as f64 * score(end, self.positions[edge.to], edge.can_fall_through)
            })
            .sum()
    }

    /// All chains: the one with block 0 first, then by decreasing density.
    fn concatenate(self, counts: &[u64]) -> Vec<usize> {
        let mut chains: Vec<Vec<usize>> =
            self.chains.into_iter().filter(|chain| !chain.is_empty()).collect();
        let density = |chain: &Vec<usize>| {
            let count: f64 =
                chain.iter().map(|&block| counts[block] as f64 * self.sizes[block] as f64).sum();
            let size: u64 = chain.iter().map(|&block| self.sizes[block]).sum();
            count / size.max(1) as f64
        };
        chains.sort_by(|a, b| {
            let entry = |chain: &Vec<usize>| !chain.contains(&0);
            entry(a).cmp(&entry(b)).then(density(b).total_cmp(&density(a))).then(a.cmp(b))
        });
        chains.concat()
    }
}

/// Score of one execution of an edge from the end of its block to the start of its target.
fn score(end: u64, target: u64, can_fall_through: bool) -> f64 {
    let decay = |distance: u64, limit: u64| {
        if distance > limit { 0.0 } else { JUMP * (1.0 - distance as f64 / limit as f64) }
    };
    if target == end && can_fall_through {
        1.0
    } else if target >= end {
        decay(target - end, FORWARD)
    } else {
        decay(end - target, BACKWARD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(from: usize, to: usize, count: u64) -> WeightedEdge {
        WeightedEdge { from, to, count, can_fall_through: true }
    }

    #[test]
    fn most_frequent_edge_falls_through() {
        // 0 goes to 1 rarely and to 2 often; both go to 3.
        let edges = [edge(0, 1, 5), edge(0, 2, 95), edge(1, 3, 5), edge(2, 3, 95)];
        let order = order(&[10; 4], &[100, 5, 95, 100], &edges);
        assert_eq!(order[..3], [0, 2, 3]);
    }

    #[test]
    fn loop_is_rotated_so_that_frequent_edges_fall_through() {
        // 0 enters at 1; 1 goes to 2; 2 back to 1, seldom to 3.
        let edges = [edge(0, 1, 1), edge(1, 2, 100), edge(2, 1, 99), edge(2, 3, 1)];
        let order = order(&[16; 4], &[1, 100, 100, 1], &edges);
        assert_eq!(order, [0, 1, 2, 3]);
    }

    #[test]
    fn entry_stays_first_even_as_loop_target() {
        let edges = [edge(0, 1, 50), edge(1, 0, 1000), edge(1, 2, 50)];
        assert_eq!(order(&[8; 3], &[1050, 1050, 50], &edges)[0], 0);
    }

    #[test]
    fn every_block_appears_once() {
        let edges: Vec<WeightedEdge> =
            (0..50).map(|i| edge(i * 7 % 40, i * 11 % 40, i as u64)).collect();
        let mut order = order(&[12; 40], &[3; 40], &edges);
        order.sort_unstable();
        assert_eq!(order, (0..40).collect::<Vec<_>>());
    }
}
