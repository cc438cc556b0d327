//! Executed instructions of functions, from exact counts of their blocks.

use crate::block_counts::SortedSamples;
use crate::code_references::CodeReferences;
use crate::samples::graph_of;
use crate::{Module, Samples};

/// Instructions that a function executed, without what it called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutedFunction {
    /// Its start address.
    pub start: u64,
    pub instructions: u64,
}

/// The functions of a module whose blocks were counted ([`Samples::add_block_count`]), without those that were
/// not executed: a thread may have been in a loop of theirs all the time.
pub fn executed_functions(module: &Module, samples: &Samples) -> Vec<ExecutedFunction> {
    let sorted = SortedSamples::new(samples);
    let references = CodeReferences::of(module);
    let counted = module
        .functions()
        .iter()
        .filter(|function| !function.overlapped && sorted.has_counters(function.range()));
    let executed = counted.filter_map(|function| {
        let graph = graph_of(module, function, &references)?;
        let instructions = sorted.counted_instructions(&graph)?;
        Some(ExecutedFunction { start: function.start, instructions })
    });
    executed.collect()
}
