//! Execution counts of code, as a profile for compilers.

use crate::block_counts::{SCALE, SortedSamples};
use crate::code::{InstKind, decode};
use crate::code_references::CodeReferences;
use crate::flow::Flow;
use crate::frame::Frame;
use crate::graph::Graph;
use crate::module::Function;
use crate::{Branch, Module, Samples};

/// An executed basic block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExecutedRange {
    /// Address of its first instruction.
    pub first: u64,
    /// Address of its last instruction.
    pub last: u64,
    /// Executions, on a scale that is the same for all code of a module.
    pub count: u64,
}

/// Executions of a module's code, estimated from samples.
///
/// Time in a block is proportional to its executions times its instructions, and control that enters
/// a block leaves it. So the samples of a function also give counts for blocks that are too short to
/// be sampled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Executions {
    /// Executed blocks, by address.
    pub ranges: Vec<ExecutedRange>,
    /// Executed direct calls and their counts, by address. Includes jumps to other functions.
    pub calls: Vec<(Branch, u64)>,
    /// Number of samples in the functions of these blocks.
    pub samples: u64,
}

impl Executions {
    /// Estimates the executions from the samples in the module.
    #[must_use]
    pub fn of(module: &Module, samples: &Samples) -> Self {
        let sorted = SortedSamples::new(samples);
        let references = CodeReferences::of(module);
        let mut all = Self::default();
        for function in module.functions() {
            let hits = sorted.hits_in(function.range());
            let found: u64 = hits.iter().map(|(_, count)| count).sum();
            if found == 0 {
                continue;
            }
            all.samples += found;
            match graph_of(module, function, &references) {
                Some(graph) => all.add(&graph, &sorted.block_counts(&graph)),
                // Without a graph, each sampled instruction is a block.
                None => all.ranges.extend(hits.iter().map(|&(at, count)| ExecutedRange {
                    first: at,
                    last: at,
                    count: count * SCALE,
                })),
            }
        }
        // Functions may overlap.
        all.ranges.sort_unstable();
        all.ranges.dedup_by_key(|range| range.first);
        all.calls.sort_unstable();
        all.calls.dedup_by_key(|(call, _)| *call);
        all
    }

    fn add(&mut self, graph: &Graph, flow: &Flow) {
        for (block, &count) in flow.blocks.iter().enumerate().filter(|(_, count)| **count > 0) {
            let code = graph.code(block);
            let Some(last) = code.last() else { continue };
            self.ranges.push(ExecutedRange {
                first: graph.start(block),
                last: last.address,
                count,
            });
            for inst in code {
                match inst.kind {
                    InstKind::Jump(to) if graph.extent().contains(&to) => {}
                    InstKind::Call(to) | InstKind::Jump(to) => {
                        self.calls.push((Branch { from: inst.address, to }, count));
                    }
                    _ => {}
                }
            }
        }
    }
}

/// The function's graph. `None`: its code cannot be decoded.
pub(crate) fn graph_of(
    module: &Module,
    function: &Function,
    references: &CodeReferences,
) -> Option<Graph> {
    let range = function.range();
    let code = decode(module, function).ok()?;
    let mut entered = references.entered(range.clone()).to_vec();
    if let Ok(frame) = Frame::read(module, function) {
        let landings = frame.exceptions.iter().flat_map(|table| table.landings());
        entered.extend(landings.filter(|landing| range.contains(landing)));
    }
    entered.sort_unstable();
    entered.dedup();
    Graph::new(module, code, &entered).ok()
}
