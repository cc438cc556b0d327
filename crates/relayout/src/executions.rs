//! How often code was executed, for other optimizers: a compiler that is given a profile.

use crate::block_counts::{SCALE, SortedSamples};
use crate::code::{InstKind, decode};
use crate::code_references::CodeReferences;
use crate::flow::Flow;
use crate::frame::Frame;
use crate::graph::Graph;
use crate::module::Function;
use crate::{Branch, Module, Samples};

/// Instructions that are always executed one after the other, equally often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExecutedRange {
    /// Address of the first one.
    pub first: u64,
    /// Address of the last one.
    pub last: u64,
    /// How often, on a scale that all code of a module shares.
    pub count: u64,
}

/// What samples tell of how often a module's code was executed.
///
/// Time in a block is proportional to its executions and its instructions, and what enters a block
/// leaves it: so the samples of a function tell about each of its blocks, also of those that are
/// too short to be met.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Executions {
    /// Blocks that were executed, in the order of their addresses.
    pub ranges: Vec<ExecutedRange>,
    /// Direct calls that were executed, with their counts, in the order of their addresses. A jump
    /// to another function is one, too.
    pub calls: Vec<(Branch, u64)>,
    /// Samples that lie in these blocks' functions.
    pub samples: u64,
}

impl Executions {
    /// Estimates them from the samples that lie in the module.
    #[must_use]
    pub fn of(module: &Module, samples: &Samples) -> Self {
        let sorted = SortedSamples::new(samples);
        let facts = CodeReferences::of(module);
        let mut all = Self::default();
        for function in module.functions() {
            let hits = sorted.hits_in(function.range());
            let found: u64 = hits.iter().map(|(_, count)| count).sum();
            if found == 0 {
                continue;
            }
            all.samples += found;
            match graph_of(module, function, &facts) {
                Some(graph) => all.add(&graph, &sorted.block_counts(&graph)),
                // Each sampled instruction by itself.
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

/// `None` where its code is not understood.
fn graph_of(module: &Module, function: &Function, facts: &CodeReferences) -> Option<Graph> {
    let range = function.range();
    let code = decode(module, function).ok()?;
    let mut entered = facts.entered(range.clone()).to_vec();
    if let Ok(frame) = Frame::read(module, function) {
        let landings = frame.exceptions.iter().flat_map(|table| table.landings());
        entered.extend(landings.filter(|landing| range.contains(landing)));
    }
    entered.sort_unstable();
    entered.dedup();
    Graph::new(module, code, &entered).ok()
}
