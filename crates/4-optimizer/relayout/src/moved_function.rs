//! A function to move, with its new block order.

use crate::flow::Flow;
use crate::frame::Frame;
use crate::graph::Graph;

/// A function to move, with its new block order.
#[derive(Debug)]
pub(crate) struct MovedFunction {
    /// Position among all hot functions, hottest first.
    pub(crate) rank: usize,
    pub(crate) samples: u64,
    pub(crate) start: u64,
    /// Address of the jump to the copy.
    pub(crate) patch: u64,
    /// Whether code of the module loads its address.
    pub(crate) address_taken: bool,
    pub(crate) graph: Graph,
    pub(crate) frame: Frame,
    /// Executions of its blocks and edges.
    pub(crate) flow: Flow,
    /// Hot blocks in their new order.
    pub(crate) hot: Vec<usize>,
    /// The other copied blocks in their new order.
    pub(crate) cold: Vec<usize>,
    /// Indices of the jump tables to copy.
    pub(crate) tables: Vec<usize>,
    /// For each block, the index in it of the instruction before which it is counted. Empty if nothing is
    /// counted.
    pub(crate) counters: Vec<Option<usize>>,
    /// Whether the flow is from exact counts.
    pub(crate) is_counted: bool,
}
