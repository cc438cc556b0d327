//! Execution counts of a function's blocks from counters.
//!
//! Counters give exact counts of blocks, except that threads that count at the same time may lose some.
//! Those of blocks without a counter and of edges follow from them, because control that enters a block
//! leaves it.

use crate::code::InstKind;
use crate::flow::Flow;
use crate::graph::Graph;
use crate::moved_function::MovedFunction;

/// A block is rare if it has fewer than one of this many executions of all blocks: 0.5 s of one CPU are
/// some 10⁸ executions, so that some tens of executions per second are rare. Among hot blocks it would
/// cost more than its executions save.
const RARE: u64 = 4_000_000;

/// The counters of all functions, by the address of the block.
#[derive(Debug, Default)]
pub(crate) struct SortedCounts {
    counts: Vec<(u64, u64)>,
    /// Minimum executions of a block that is not rare.
    least: u64,
}

impl SortedCounts {
    pub(crate) fn new(counts: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut counts: Vec<_> = counts.collect();
        counts.sort_unstable();
        let all = counts.iter().fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
        Self { counts, least: (all / RARE).max(1) }
    }

    /// The counts of a function's blocks; `None` for blocks without a counter. `None`: it has no counters, or
    /// was hardly executed while they were read.
    pub(crate) fn of(&self, graph: &Graph) -> Option<Vec<Option<u64>>> {
        let counts = crate::block_counts::within(&self.counts, graph.extent(), |(at, _)| *at);
        let is_executed = counts.iter().any(|(_, count)| *count >= self.least);
        is_executed.then(|| {
            let find = |block| {
                let found = counts.binary_search_by_key(&graph.start(block), |(at, _)| *at).ok()?;
                Some(counts[found].1)
            };
            (0..graph.blocks.len()).map(find).collect()
        })
    }

    /// Makes rare blocks and edges cold.
    pub(crate) fn without_rare(&self, mut flow: Flow) -> Flow {
        let counts = flow.blocks.iter_mut().chain(&mut flow.edges);
        counts.filter(|count| **count < self.least).for_each(|count| *count = 0);
        flow
    }
}

/// Scales estimates from samples so that they are comparable with exact counts.
pub(crate) fn adjust_estimates(moved: &mut [Vec<MovedFunction>]) {
    let (mut counted, mut estimated) = (0, 0);
    for moved in moved.iter().flatten().filter(|moved| moved.is_counted) {
        let work = |block: usize| {
            let code = moved.graph.code(block).iter();
            code.filter(|inst| inst.kind != InstKind::Nop).count() as u128
        };
        let executed = moved.flow.blocks.iter().enumerate();
        counted += executed.map(|(block, count)| u128::from(*count) * work(block)).sum::<u128>();
        estimated += u128::from(moved.samples) * u128::from(crate::block_counts::SCALE);
    }
    if estimated == 0 || counted <= estimated {
        return;
    }
    let factor = u64::try_from(counted / estimated).unwrap_or(u64::MAX);
    for moved in moved.iter_mut().flatten().filter(|moved| !moved.is_counted) {
        let counts = moved.flow.blocks.iter_mut().chain(&mut moved.flow.edges);
        counts.for_each(|count| *count = count.saturating_mul(factor));
    }
}

#[cfg(test)]
mod tests {
    use rand_core::{Rng, SeedableRng};
    use rand_xoshiro::SplitMix64;

    use super::*;
    use crate::block_counts::SortedSamples;
    use crate::code_references::CodeReferences;
    use crate::executions::graph_of;
    use crate::flags::counter_places;
    use crate::{Module, Samples};

    /// Executes random paths from the entry to a block without successors. `None`: too long.
    fn execute(graph: &Graph, random: &mut SplitMix64) -> Option<Flow> {
        let (blocks, edges) = (vec![0; graph.blocks.len()], vec![0; graph.edges.len()]);
        let mut flow = Flow { blocks, edges };
        for _ in 0..20 {
            let mut block = 0;
            for step in 0.. {
                flow.blocks[block] += 1;
                let next: Vec<usize> =
                    (0..graph.edges.len()).filter(|it| graph.edges[*it].from == block).collect();
                if next.is_empty() {
                    break;
                }
                if step == 1_000 {
                    return None;
                }
                let edge = next[(random.next_u64() % next.len() as u64) as usize];
                flow.edges[edge] += 1;
                block = graph.edges[edge].to;
            }
        }
        Some(flow)
    }

    fn libc() -> Module {
        let file = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6").unwrap();
        Module::parse("libc.so.6", &file, 0x7f12_3456_7000).unwrap()
    }

    #[test]
    fn blocks_and_edges_without_a_counter_follow_from_the_others() {
        let module = libc();
        let references = CodeReferences::of(&module);
        let mut random = SplitMix64::seed_from_u64(1);
        let [mut blocks, mut counters, mut wrong_blocks, mut edges, mut wrong_edges] = [0_usize; 5];
        for function in module.functions() {
            let Some(graph) = graph_of(&module, function, &references) else { continue };
            if !(2..200).contains(&graph.blocks.len()) {
                continue;
            }
            let Some(executed) = execute(&graph, &mut random) else { continue };
            let places = counter_places(&module, &graph, graph.start(0));
            let mut samples = Samples::default();
            for (block, _) in places.iter().enumerate().filter(|(_, place)| place.is_some()) {
                samples.add_block_count(graph.start(block), executed.blocks[block]);
                counters += 1;
            }
            let sorted = SortedSamples::new(&samples);
            if !sorted.is_counted(&graph) {
                continue;
            }
            let flow = sorted.block_counts(&graph);
            let differ = |a: &[u64], b: &[u64]| a.iter().zip(b).filter(|(a, b)| a != b).count();
            blocks += flow.blocks.len();
            wrong_blocks += differ(&flow.blocks, &executed.blocks);
            edges += flow.edges.len();
            wrong_edges += differ(&flow.edges, &executed.edges);
        }
        let found = format!(
            "{blocks} blocks, {counters} counters, {wrong_blocks} wrong; {edges} edges, {wrong_edges} wrong"
        );
        assert!(blocks > 10_000 && counters * 10 > blocks * 6, "{found}");
        assert!(wrong_blocks * 20 < blocks && wrong_edges * 10 < edges, "{found}");
    }

    #[test]
    fn rare_blocks_are_cold_and_rarely_executed_functions_are_not_counted() {
        let module = libc();
        let references = CodeReferences::of(&module);
        let graphs = module.functions().iter().filter_map(|it| graph_of(&module, it, &references));
        let mut graphs = graphs.filter(|graph| graph.blocks.len() > 3);
        let (hot, other) = (graphs.next().unwrap(), graphs.next().unwrap());
        let mut samples = Samples::default();
        samples.add_block_count(hot.start(0), 10 * RARE);
        samples.add_block_count(other.start(0), 9);
        let sorted = SortedSamples::new(&samples);
        assert!(sorted.is_counted(&hot) && !sorted.is_counted(&other));
        let counts = SortedCounts::new(samples.block_counts().iter().map(|(at, n)| (*at, *n)));
        let flow = Flow { blocks: vec![10 * RARE, 9, 10, 0], edges: vec![9, 11] };
        let flow = counts.without_rare(flow);
        assert_eq!((flow.blocks, flow.edges), (vec![10 * RARE, 0, 10, 0], vec![0, 11]));
    }
}
