//! Execution counts of a function's blocks, estimated from samples.
//!
//! Counters give exact counts of blocks, except that threads that count at the same time may lose some. Those of
//! blocks without a counter and of edges follow from them, because control that enters a block leaves it.

use std::collections::HashMap;
use std::ops::Range;

use crate::code::{EdgeKind, Graph, InstKind};
use crate::flow::{Flow, KnownCounts, infer};
use crate::layout::MovedFunction;
use crate::{Branch, BranchCount, FallThrough, Samples};

/// Executions that one sample in a block of one instruction stands for. Larger than 1, so that
/// division by the number of instructions keeps precision.
pub(crate) const SCALE: u64 = 64;

pub(crate) struct SortedSamples {
    hits: Vec<(u64, u64)>,
    branches: Vec<(Branch, BranchCount)>,
    fall_throughs: Vec<(FallThrough, u64)>,
    exact: SortedCounts,
}

impl SortedSamples {
    pub(crate) fn new(samples: &Samples) -> Self {
        Self {
            hits: sorted(samples.hits()),
            branches: sorted(samples.branches()),
            fall_throughs: sorted(samples.fall_throughs()),
            exact: SortedCounts::new(samples.block_counts()),
        }
    }

    /// Samples in a range: addresses and counts.
    pub(crate) fn hits_in(&self, range: Range<u64>) -> &[(u64, u64)] {
        within(&self.hits, range, |hit| hit.0)
    }

    fn branches(&self, graph: &Graph) -> &[(Branch, BranchCount)] {
        within(&self.branches, graph.extent(), |(branch, _)| branch.from)
    }

    /// The executions between branch records in a function; `None` without any.
    fn ranges(&self, graph: &Graph) -> Option<RangeCounts> {
        let mut counts = RangeCounts::new(graph);
        let fall_throughs = within(&self.fall_throughs, graph.extent(), |(code, _)| code.first);
        let mut found = false;
        for &(code, count) in fall_throughs {
            found |= counts.add(graph, code, count);
        }
        found.then_some(counts)
    }

    /// Whether the executions of a function's blocks were counted.
    pub(crate) fn is_counted(&self, graph: &Graph) -> bool {
        self.exact.of(graph).is_some()
    }

    /// The executions of a function's blocks and edges: counted, or else estimated from samples.
    pub(crate) fn block_counts(&self, graph: &Graph) -> Flow {
        if let Some(blocks) = self.exact.of(graph) {
            let taken = vec![None; graph.edges.len()];
            return self.exact.without_rare(consistent(graph, &blocks, &taken));
        }
        let hits = self.hits_in(graph.extent());
        let ranges = self.ranges(graph);
        let (blocks, taken) = match &ranges {
            Some(ranges) => by_branches(graph, self.branches(graph), ranges, hits),
            None => (by_hits(graph, hits), vec![None; graph.edges.len()]),
        };
        let mut flow = consistent(graph, &blocks, &taken);
        if let Some(ranges) = ranges {
            flow.raise(&ranges.unrecorded(graph, hits), &graph.edges);
        }
        flow
    }

    /// Whether a block in a range has a counter.
    pub(crate) fn has_counters(&self, range: Range<u64>) -> bool {
        !within(&self.exact.counts, range, |(at, _)| *at).is_empty()
    }

    /// The instructions that a function executed, by the counts of its blocks; those of blocks without a counter
    /// follow from the others. `None`: it has no counters, or was not executed.
    pub(crate) fn counted_instructions(&self, graph: &Graph) -> Option<u64> {
        let counted = self.exact.executed(graph, 1)?;
        let flow = consistent(graph, &counted, &vec![None; graph.edges.len()]);
        // Not the consistent counts of all: threads are in the middle of the function at both ends.
        let executions = counted.iter().zip(flow.blocks).map(|(one, other)| one.unwrap_or(other));
        let instructions = executions
            .enumerate()
            .map(|(block, count)| count.saturating_mul(graph.code(block).len() as u64));
        Some(instructions.fold(0, u64::saturating_add))
    }
}

/// Consistent counts of a function's blocks and edges.
fn consistent(graph: &Graph, blocks: &[Option<u64>], taken: &[Option<u64>]) -> Flow {
    let leaves: Vec<bool> = (0..graph.blocks.len()).map(|block| leaves(graph, block)).collect();
    infer(&KnownCounts { blocks, edges: &graph.edges, taken, leaves: &leaves })
}

/// Observations of each block: samples in it, and executions of its start between branch records.
///
/// Of a function with counted blocks only the sum of the samples: no block is missing.
pub(crate) fn observations(sorted: &SortedSamples, graph: &Graph) -> Vec<u64> {
    if sorted.is_counted(graph) {
        return vec![sorted.hits_in(graph.extent()).iter().map(|(_, count)| count).sum()];
    }
    let mut seen = time_in_blocks(graph, sorted.hits_in(graph.extent()));
    if let Some(ranges) = sorted.ranges(graph) {
        seen.iter_mut().zip(ranges.blocks).for_each(|(seen, count)| *seen += count);
    }
    seen
}

struct RangeCounts {
    blocks: Vec<u64>,
    /// Executions that continue from each block to the next one.
    continued: Vec<u64>,
}

impl RangeCounts {
    fn new(graph: &Graph) -> Self {
        Self { blocks: vec![0; graph.blocks.len()], continued: vec![0; graph.blocks.len()] }
    }

    /// Samples in each block that has samples and no execution between records; 0 for the others.
    fn unrecorded(&self, graph: &Graph, hits: &[(u64, u64)]) -> Vec<u64> {
        let time = time_in_blocks(graph, hits).into_iter().zip(&self.blocks);
        time.map(|(time, count)| if *count == 0 { time } else { 0 }).collect()
    }

    /// Adds executions of some code. Returns false if that is impossible: between the two records, a
    /// signal handler was called, or a record is missing.
    fn add(&mut self, graph: &Graph, code: FallThrough, count: u64) -> bool {
        let Some(first) = graph.instruction_at(code.first) else { return false };
        let first = graph.block_of(first);
        let passed =
            (first..self.blocks.len()).take_while(|block| graph.start(*block) <= code.last);
        let last = passed.last().unwrap_or(first);
        let is_passed = |block: usize| graph.code(block).last().is_some_and(|it| !it.kind.ends());
        if !(first..last).all(is_passed) {
            return false;
        }
        for block in first..=last {
            // A call returns to the middle of a block, which was counted before the call.
            if graph.start(block) >= code.first {
                self.blocks[block] += count;
            }
            if block < last {
                self.continued[block] += count;
            }
        }
        true
    }
}

fn sorted<K: Copy + Ord, V: Copy>(counts: &HashMap<K, V>) -> Vec<(K, V)> {
    let mut sorted: Vec<_> = counts.iter().map(|(&at, &count)| (at, count)).collect();
    sorted.sort_unstable_by_key(|&(at, _)| at);
    sorted
}

/// The items with addresses in a range, from a list sorted by address.
pub(crate) fn within<T>(sorted: &[T], range: Range<u64>, address: impl Fn(&T) -> u64) -> &[T] {
    let first = sorted.partition_point(|item| address(item) < range.start);
    let last = sorted.partition_point(|item| address(item) < range.end);
    &sorted[first..last.max(first)]
}

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

/// Counts of blocks and edges from branch records: taken edges, and the code between two of them.
/// Branches alone would leave a path without a taken branch uncounted. A block with samples was executed,
/// whatever the records say.
fn by_branches(
    graph: &Graph,
    branches: &[(Branch, BranchCount)],
    ranges: &RangeCounts,
    hits: &[(u64, u64)],
) -> (Vec<Option<u64>>, Vec<Option<u64>>) {
    let unrecorded = ranges.unrecorded(graph, hits);
    let edges = graph.edges.iter().map(|edge| {
        let count = if edge.kind == EdgeKind::FallThrough {
            ranges.continued[edge.from]
        } else {
            let from = graph.code(edge.from).last()?.address;
            let branch = Branch { from, to: graph.start(edge.to) };
            let found = branches.binary_search_by_key(&branch, |&(branch, _)| branch);
            found.map_or(0, |index| branches[index].1.taken)
        };
        let is_unknown = count == 0 && (unrecorded[edge.from] > 0 || unrecorded[edge.to] > 0);
        (!is_unknown).then_some(count)
    });
    let blocks =
        (0..graph.blocks.len()).map(|block| Some(ranges.blocks[block].max(unrecorded[block])));
    (blocks.collect(), edges.collect())
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
    pub(crate) fn new(counts: &HashMap<u64, u64>) -> Self {
        let counts = sorted(counts);
        let all = counts.iter().fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
        Self { counts, least: (all / RARE).max(1) }
    }

    /// The counts of a function's blocks; `None` for blocks without a counter. `None`: it has no counters, or
    /// was hardly executed while they were read.
    pub(crate) fn of(&self, graph: &Graph) -> Option<Vec<Option<u64>>> {
        self.executed(graph, self.least)
    }

    /// The same, if some block has this number of executions.
    fn executed(&self, graph: &Graph, least: u64) -> Option<Vec<Option<u64>>> {
        let counts = within(&self.counts, graph.extent(), |(at, _)| *at);
        let is_executed = counts.iter().any(|(_, count)| *count >= least);
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
            let code = moved.movable.graph.code(block).iter();
            code.filter(|inst| inst.kind != InstKind::Nop).count() as u128
        };
        let executed = moved.flow.blocks.iter().enumerate();
        counted += executed.map(|(block, count)| u128::from(*count) * work(block)).sum::<u128>();
        estimated += u128::from(moved.samples) * u128::from(SCALE);
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
    use crate::Module;
    use crate::code_references::CodeReferences;
    use crate::flags::counter_places;
    use crate::samples::graph_of;

    /// Somewhere in another function.
    const OUTSIDE: u64 = 0x10;

    /// What branch records say about an execution.
    #[derive(Default)]
    struct Recorder {
        samples: Samples,
        target: u64,
    }

    impl Recorder {
        fn branch(&mut self, from: u64, to: u64) {
            self.samples.add_fall_through(FallThrough { first: self.target, last: from }, 1);
            let count = BranchCount { taken: 1, mispredicted: 0 };
            self.samples.add_branch(Branch { from, to }, count);
            self.target = to;
        }
    }

    /// Executes random paths from the entry to an exit; returns the samples and the executions of each
    /// block. `None`: an execution did not end.
    fn execute(graph: &Graph, random: &mut SplitMix64) -> Option<(Samples, Vec<u64>)> {
        let mut recorder = Recorder::default();
        let mut blocks = vec![0; graph.blocks.len()];
        for _ in 0..20 {
            recorder.target = graph.start(0);
            let mut block = 0;
            for step in 0.. {
                blocks[block] += 1;
                for inst in graph.code(block) {
                    if matches!(inst.kind, InstKind::Call(_) | InstKind::IndirectCall) {
                        recorder.branch(inst.address, OUTSIDE);
                        recorder.target = inst.end();
                    }
                }
                let from = graph.code(block).last()?.address;
                let next = graph.edges_from(block);
                if leaves(graph, block) && (next.is_empty() || random.next_u64().is_multiple_of(4))
                {
                    recorder.branch(from, OUTSIDE);
                    break;
                }
                if next.is_empty() || step == 1_000 {
                    return None;
                }
                let edge = &next[(random.next_u64() % next.len() as u64) as usize];
                if edge.kind != EdgeKind::FallThrough {
                    recorder.branch(from, graph.start(edge.to));
                }
                block = edge.to;
            }
        }
        Some((recorder.samples, blocks))
    }

    #[test]
    fn branch_records_give_the_executions_of_all_blocks() {
        let file = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6").unwrap();
        let module = Module::parse("libc.so.6", &file, 0x7f12_3456_7000).unwrap();
        let references = CodeReferences::of(&module);
        let mut random = SplitMix64::seed_from_u64(1);
        let mut executed = 0;
        for function in module.functions() {
            let Some(graph) = graph_of(&module, function, &references) else { continue };
            if !(2..200).contains(&graph.blocks.len()) {
                continue;
            }
            let Some((samples, blocks)) = execute(&graph, &mut random) else { continue };
            let flow = SortedSamples::new(&samples).block_counts(&graph);
            assert_eq!(blocks, flow.blocks, "{}", module.name_at(function.start));
            executed += 1;
        }
        assert!(executed > 500, "{executed} functions");
    }

    /// A function whose first block continues to a second one, which ends with a return or a jump to
    /// elsewhere, before a third one.
    fn with_early_end(module: &Module, graph: &Graph) -> bool {
        let ends = |block: usize| graph.code(block).last().is_some_and(|it| it.kind.ends());
        graph.blocks.len() > 2
            && !ends(0)
            && ends(1)
            && leaves(graph, 1)
            && module.contains(graph.start(2))
    }

    fn functions_with_early_end(check: impl Fn(&Graph)) {
        let file = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6").unwrap();
        let module = Module::parse("libc.so.6", &file, 0x7f12_3456_7000).unwrap();
        let references = CodeReferences::of(&module);
        let graphs = module.functions().iter().filter_map(|it| graph_of(&module, it, &references));
        let mut checked = 0;
        for graph in graphs.filter(|graph| with_early_end(&module, graph)).take(50) {
            check(&graph);
            checked += 1;
        }
        assert_eq!(checked, 50);
    }

    fn last(graph: &Graph, block: usize) -> u64 {
        graph.code(block).last().unwrap().address
    }

    #[test]
    fn path_without_a_taken_branch_has_the_counts_of_its_entries() {
        functions_with_early_end(|graph| {
            let mut samples = Samples::default();
            let code = FallThrough { first: graph.start(0), last: last(graph, 1) };
            samples.add_fall_through(code, 90);
            // Each execution is also a taken branch to the function and one out of it.
            for (from, to) in [(OUTSIDE, graph.start(0)), (last(graph, 1), OUTSIDE)] {
                samples.add_branch(Branch { from, to }, BranchCount { taken: 90, mispredicted: 0 });
            }
            let sorted = SortedSamples::new(&samples);
            let flow = sorted.block_counts(graph);
            assert_eq!(flow.blocks[..2], [90, 90]);
            assert!(flow.blocks[2..].iter().all(|count| *count == 0), "{flow:?}");
            assert_eq!(observations(&sorted, graph)[..2], [90, 90]);
        });
    }

    #[test]
    fn impossible_code_between_records_is_ignored() {
        functions_with_early_end(|graph| {
            let mut samples = Samples::default();
            // Through the end of block 1; and from the middle of an instruction.
            let beyond = FallThrough { first: graph.start(0), last: last(graph, 2) };
            samples.add_fall_through(beyond, 9);
            let inst = graph.code(0).iter().find(|inst| inst.length > 1);
            if let Some(inst) = inst {
                let first = inst.address + 1;
                samples.add_fall_through(FallThrough { first, last: last(graph, 0) }, 9);
            }
            let sorted = SortedSamples::new(&samples);
            assert_eq!(observations(&sorted, graph), vec![0; graph.blocks.len()]);
            // Only samples remain.
            samples.add_hit(graph.start(1), 5);
            let by_hits = SortedSamples::new(&samples).block_counts(graph);
            let mut hits = Samples::default();
            hits.add_hit(graph.start(1), 5);
            assert_eq!(by_hits, SortedSamples::new(&hits).block_counts(graph));
            assert!(by_hits.blocks[1] > 0);
        });
    }

    #[test]
    fn block_with_samples_is_executed_without_records() {
        functions_with_early_end(|graph| {
            let mut samples = Samples::default();
            let code = FallThrough { first: graph.start(0), last: last(graph, 1) };
            samples.add_fall_through(code, 90);
            samples.add_hit(graph.start(2), 7);
            let flow = SortedSamples::new(&samples).block_counts(graph);
            assert!(flow.blocks[2] >= 7, "{flow:?}");
        });
    }

    /// Executes random paths from the entry to a block without successors. `None`: too long.
    fn executed_flow(graph: &Graph, random: &mut SplitMix64) -> Option<Flow> {
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
        let (mut functions, mut wrong_functions) = (0_usize, 0);
        for function in module.functions() {
            let Some(graph) = graph_of(&module, function, &references) else { continue };
            if !(2..200).contains(&graph.blocks.len()) {
                continue;
            }
            let Some(executed) = executed_flow(&graph, &mut random) else { continue };
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
            let lengths = (0..graph.blocks.len()).map(|block| graph.code(block).len() as u64);
            let instructions: u64 =
                lengths.zip(&executed.blocks).map(|(length, count)| length * count).sum();
            let counted = sorted.counted_instructions(&graph).unwrap();
            functions += 1;
            wrong_functions += usize::from(counted.abs_diff(instructions) * 100 > instructions);
        }
        let found = format!(
            "{blocks} blocks, {counters} counters, {wrong_blocks} wrong; {edges} edges, {wrong_edges} wrong; \
             {functions} functions, {wrong_functions} with other instructions"
        );
        assert!(blocks > 10_000 && counters * 10 > blocks * 6, "{found}");
        assert!(wrong_blocks * 20 < blocks && wrong_edges * 10 < edges, "{found}");
        assert!(functions > 500 && wrong_functions * 5 < functions, "{found}");
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
        let counts = SortedCounts::new(samples.block_counts());
        let flow = Flow { blocks: vec![10 * RARE, 9, 10, 0], edges: vec![9, 11] };
        let flow = counts.without_rare(flow);
        assert_eq!((flow.blocks, flow.edges), (vec![10 * RARE, 0, 10, 0], vec![0, 11]));
    }
}
