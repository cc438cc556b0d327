//! Execution counts of a function's blocks, estimated from samples.

use std::ops::Range;

use crate::code::InstKind;
use crate::flow::{Flow, KnownCounts, infer};
use crate::graph::{EdgeKind, Graph};
use crate::{Branch, BranchCount, FallThrough, Samples};

/// Executions that one sample in a block of one instruction stands for. Larger than 1, so that
/// division by the number of instructions keeps precision.
pub(crate) const SCALE: u64 = 64;

/// Samples sorted by address.
pub(crate) struct SortedSamples {
    hits: Vec<(u64, u64)>,
    branches: Vec<(Branch, BranchCount)>,
    fall_throughs: Vec<(FallThrough, u64)>,
}

impl SortedSamples {
    pub(crate) fn new(samples: &Samples) -> Self {
        let mut hits: Vec<_> = samples.hits().iter().map(|(&at, &count)| (at, count)).collect();
        hits.sort_unstable();
        let mut branches: Vec<_> =
            samples.branches().iter().map(|(&branch, &count)| (branch, count)).collect();
        branches.sort_unstable_by_key(|&(branch, _)| branch);
        let mut fall_throughs: Vec<_> =
            samples.fall_throughs().iter().map(|(&code, &count)| (code, count)).collect();
        fall_throughs.sort_unstable();
        Self { hits, branches, fall_throughs }
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
        let fall_throughs = within(&self.fall_throughs, graph.extent(), |(code, _)| code.first);
        let (blocks, taken) = if fall_throughs.is_empty() {
            (by_hits(graph, self.hits_in(graph.extent())), vec![None; graph.edges.len()])
        } else {
            by_branches(graph, self.branches(graph), fall_throughs)
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

/// Counts of blocks and edges from branch records: taken edges, and the code between two of them.
/// Branches alone would leave a path without a taken branch uncounted.
fn by_branches(
    graph: &Graph,
    branches: &[(Branch, BranchCount)],
    fall_throughs: &[(FallThrough, u64)],
) -> (Vec<Option<u64>>, Vec<Option<u64>>) {
    let mut blocks = vec![0; graph.blocks.len()];
    // Executions that continue from each block to the next one.
    let mut continued = vec![0; graph.blocks.len()];
    for &(code, count) in fall_throughs {
        // A call returns to the middle of a block, which was counted before the call.
        let first = graph.blocks.partition_point(|block| {
            graph.instructions[block.instructions.start].address < code.first
        });
        for block in first..blocks.len() {
            if graph.start(block) > code.last {
                break;
            }
            blocks[block] += count;
            if block > 0 && graph.start(block) > code.first {
                continued[block - 1] += count;
            }
        }
    }
    let edges = graph.edges.iter().map(|edge| {
        if edge.kind == EdgeKind::FallThrough {
            return Some(continued[edge.from]);
        }
        let from = graph.code(edge.from).last()?.address;
        let branch = Branch { from, to: graph.start(edge.to) };
        let found = branches.binary_search_by_key(&branch, |&(branch, _)| branch);
        Some(found.map_or(0, |index| branches[index].1.taken))
    });
    let edges = edges.collect();
    (blocks.into_iter().map(Some).collect(), edges)
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

#[cfg(test)]
mod tests {
    use rand_core::{Rng, SeedableRng};
    use rand_xoshiro::SplitMix64;

    use super::*;
    use crate::Module;
    use crate::code_references::CodeReferences;
    use crate::executions::graph_of;

    /// Somewhere in another function.
    const OUTSIDE: u64 = 0x10;

    /// What branch records say about an execution.
    #[derive(Default)]
    struct Recorder {
        samples: Samples,
        /// Target of the last branch.
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
                let next: Vec<_> = graph.edges.iter().filter(|edge| edge.from == block).collect();
                if leaves(graph, block) && (next.is_empty() || random.next_u64().is_multiple_of(4))
                {
                    recorder.branch(from, OUTSIDE);
                    break;
                }
                if next.is_empty() || step == 1_000 {
                    return None;
                }
                let edge = next[(random.next_u64() % next.len() as u64) as usize];
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
}
