//! The order of a function's hot blocks: few taken branches, short jumps.
//!
//! The objective is ext-TSP ("Improved basic block reordering", 2018): an edge that falls through
//! counts fully, a short jump a tenth, the less the longer it is. Chains of blocks are merged
//! greedily, with the better of them split where that helps.

use std::collections::{BTreeMap, BTreeSet};

/// Longest forward jump that counts.
const FORWARD: u64 = 1024;
/// Longest backward jump that counts.
const BACKWARD: u64 = 640;
/// What a jump of no length counts, beside a fall-through.
const JUMP: f64 = 0.1;
/// Chains longer than this are not split.
const MAX_SPLIT: usize = 64;
/// Gains below this are rounding.
const LEAST: f64 = 1e-9;

/// A weighted way from one block to another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WeightedEdge {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) count: u64,
    /// Whether it needs no jump when the blocks are neighbours.
    pub(crate) can_fall_through: bool,
}

/// Orders the blocks 0 to `sizes.len()`; block 0 comes first. `counts`: executions of each.
pub(crate) fn order(sizes: &[u64], counts: &[u64], ways: &[WeightedEdge]) -> Vec<usize> {
    if sizes.is_empty() {
        return Vec::new();
    }
    let mut chains = Chains::new(sizes, ways);
    chains.merge_all();
    chains.concatenate(counts)
}

struct Chains<'a> {
    sizes: &'a [u64],
    ways: &'a [WeightedEdge],
    /// Blocks by chain; merged chains are empty.
    chains: Vec<Vec<usize>>,
    chain_of: Vec<usize>,
    /// Score of each chain by itself.
    scores: Vec<f64>,
    /// Indices of ways that touch each chain.
    touching: Vec<Vec<usize>>,
    /// Best merge of each pair of chains that a way connects, lower number first.
    merges: BTreeMap<(usize, usize), Merge>,
    /// Where each block would be; scratch.
    places: Vec<u64>,
}

/// A way to merge two chains, and what it gains.
#[derive(Debug, Clone)]
struct Merge {
    gain: f64,
    order: Vec<usize>,
}

impl<'a> Chains<'a> {
    fn new(sizes: &'a [u64], ways: &'a [WeightedEdge]) -> Self {
        let blocks = sizes.len();
        let mut touching = vec![Vec::new(); blocks];
        for (index, way) in ways.iter().enumerate() {
            touching[way.from].push(index);
            if way.to != way.from {
                touching[way.to].push(index);
            }
        }
        let mut chains = Self {
            sizes,
            ways,
            chains: (0..blocks).map(|block| vec![block]).collect(),
            chain_of: (0..blocks).collect(),
            scores: vec![0.0; blocks],
            touching,
            merges: BTreeMap::new(),
            places: vec![0; blocks],
        };
        for chain in 0..blocks {
            chains.scores[chain] = chains.score(&[chain], &chains.touching[chain].clone());
        }
        for way in ways {
            let pair = (way.from.min(way.to), way.from.max(way.to));
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
            let Some((&(kept, gone), _)) = best else { return };
            self.merge(kept, gone);
        }
    }

    fn merge(&mut self, kept: usize, gone: usize) {
        let Some(merge) = self.merges.remove(&(kept, gone)) else { return };
        for &block in &merge.order {
            self.chain_of[block] = kept;
        }
        self.scores[kept] += self.scores[gone] + merge.gain;
        self.chains[kept] = merge.order;
        self.chains[gone].clear();
        let mut touching = std::mem::take(&mut self.touching[gone]);
        touching.append(&mut self.touching[kept]);
        touching.sort_unstable();
        touching.dedup();
        let neighbours: BTreeSet<usize> = touching
            .iter()
            .flat_map(|&way| [self.ways[way].from, self.ways[way].to])
            .map(|block| self.chain_of[block])
            .filter(|&chain| chain != kept)
            .collect();
        self.touching[kept] = touching;
        for neighbour in neighbours {
            self.merges.remove(&(gone.min(neighbour), gone.max(neighbour)));
            let pair = (kept.min(neighbour), kept.max(neighbour));
            let merge = self.best_merge(pair.0, pair.1);
            self.merges.insert(pair, merge);
        }
    }

    /// The best of all ways to merge two chains.
    fn best_merge(&mut self, a: usize, b: usize) -> Merge {
        let (first, second) = (self.chains[a].clone(), self.chains[b].clone());
        let mut ways: Vec<usize> = self.touching[a].clone();
        ways.extend_from_slice(&self.touching[b]);
        ways.sort_unstable();
        ways.dedup();
        ways.retain(|&way| {
            let chain = |block: usize| self.chain_of[block];
            let (from, to) = (chain(self.ways[way].from), chain(self.ways[way].to));
            (from == a || from == b) && (to == a || to == b)
        });
        let before = self.scores[a] + self.scores[b];
        let mut best = Merge { gain: 0.0, order: Vec::new() };
        for (x, y) in [(&first, &second), (&second, &first)] {
            self.try_order([x, y, &[]], &ways, before, &mut best);
            if x.len() > MAX_SPLIT {
                continue;
            }
            for at in 1..x.len() {
                let (head, tail) = x.split_at(at);
                self.try_order([head, y, tail], &ways, before, &mut best);
                self.try_order([y, tail, head], &ways, before, &mut best);
                self.try_order([tail, head, y], &ways, before, &mut best);
            }
        }
        best
    }

    fn try_order(&mut self, parts: [&[usize]; 3], ways: &[usize], before: f64, best: &mut Merge) {
        let order = || parts.iter().flat_map(|part| part.iter().copied());
        // The entry is always first.
        if order().skip(1).any(|block| block == 0) {
            return;
        }
        let mut at = 0;
        for block in order() {
            self.places[block] = at;
            at += self.sizes[block];
        }
        let gain = self.score_placed(ways) - before;
        if gain > best.gain + LEAST {
            *best = Merge { gain, order: order().collect() };
        }
    }

    fn score(&mut self, order: &[usize], touching: &[usize]) -> f64 {
        let mut at = 0;
        for &block in order {
            self.places[block] = at;
            at += self.sizes[block];
        }
        let inside: Vec<usize> = touching
            .iter()
            .copied()
            .filter(|&way| {
                order.contains(&self.ways[way].from) && order.contains(&self.ways[way].to)
            })
            .collect();
        self.score_placed(&inside)
    }

    fn score_placed(&self, ways: &[usize]) -> f64 {
        ways.iter()
            .map(|&way| {
                let way = &self.ways[way];
                let end = self.places[way.from] + self.sizes[way.from];
                way.count as f64 * worth(end, self.places[way.to], way.can_fall_through)
            })
            .sum()
    }

    /// All chains, the entry's first, then the denser before the less dense.
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

/// What an edge is worth, from the end of its block to the beginning of its target.
fn worth(end: u64, target: u64, can_fall_through: bool) -> f64 {
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

    fn way(from: usize, to: usize, count: u64) -> WeightedEdge {
        WeightedEdge { from, to, count, can_fall_through: true }
    }

    #[test]
    fn the_frequent_way_falls_through() {
        // 0 goes to 1 rarely and to 2 often; both go to 3.
        let ways = [way(0, 1, 5), way(0, 2, 95), way(1, 3, 5), way(2, 3, 95)];
        let order = order(&[10; 4], &[100, 5, 95, 100], &ways);
        assert_eq!(order[..3], [0, 2, 3]);
    }

    #[test]
    fn a_loop_is_rotated_so_that_its_frequent_edges_fall_through() {
        // 0 enters at 1; 1 goes to 2; 2 back to 1, seldom to 3.
        let ways = [way(0, 1, 1), way(1, 2, 100), way(2, 1, 99), way(2, 3, 1)];
        let order = order(&[16; 4], &[1, 100, 100, 1], &ways);
        assert_eq!(order, [0, 1, 2, 3]);
    }

    #[test]
    fn the_entry_stays_first_even_where_it_is_a_loop_target() {
        let ways = [way(0, 1, 50), way(1, 0, 1000), way(1, 2, 50)];
        assert_eq!(order(&[8; 3], &[1050, 1050, 50], &ways)[0], 0);
    }

    #[test]
    fn every_block_appears_once() {
        let ways: Vec<WeightedEdge> =
            (0..50).map(|i| way(i * 7 % 40, i * 11 % 40, i as u64)).collect();
        let mut order = order(&[12; 40], &[3; 40], &ways);
        order.sort_unstable();
        assert_eq!(order, (0..40).collect::<Vec<_>>());
    }
}
