//! The control-flow graph of a function.

use std::ops::Range;

use crate::code::{Inst, InstKind};
use crate::jump_tables::JumpTable;
use crate::{Module, RejectReason};

/// A basic block.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    /// Indices of the function's instructions.
    pub(crate) instructions: Range<usize>,
}

/// A transfer of control from one block to another of the same function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) kind: EdgeKind,
}

/// What kind of transfer an edge is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EdgeKind {
    /// A direct branch.
    Branch,
    /// To the next instruction, without a branch.
    FallThrough,
    /// An indirect jump through the jump table with this index.
    Table(usize),
}

/// The control-flow graph of a function.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) instructions: Vec<Inst>,
    pub(crate) blocks: Vec<Block>,
    /// Ordered by `from`.
    pub(crate) edges: Vec<Edge>,
    pub(crate) tables: Vec<JumpTable>,
}

impl Graph {
    /// Splits instructions into blocks. `entered`: addresses that are reached from outside (branches
    /// of other functions, exceptions).
    pub(crate) fn new(
        module: &Module,
        instructions: Vec<Inst>,
        entered: &[u64],
    ) -> Result<Self, RejectReason> {
        let (Some(first), Some(last)) = (instructions.first(), instructions.last()) else {
            return Err(RejectReason::TooSmall);
        };
        let extent = first.address..last.end();
        let tables = crate::jump_tables::find(module, &instructions, &extent);
        let mut starts = vec![0];
        let mut mark = |address: u64| -> Result<(), RejectReason> {
            if extent.contains(&address) {
                starts.push(index_of(&instructions, address).ok_or(RejectReason::Overlapping)?);
            }
            Ok(())
        };
        for inst in &instructions {
            match inst.kind {
                InstKind::Jump(target) | InstKind::Branch(_, target) => mark(target)?,
                _ => {}
            }
            if inst.kind.ends_block() {
                mark(inst.end())?;
            }
        }
        for &address in entered {
            mark(address)?;
        }
        for &address in tables.iter().flat_map(|table| &table.targets) {
            mark(address)?;
        }
        starts.sort_unstable();
        starts.dedup();
        let ends = starts.iter().skip(1).copied().chain([instructions.len()]);
        let blocks: Vec<Block> = starts
            .iter()
            .zip(ends)
            .map(|(&start, end)| Block { instructions: start..end })
            .collect();
        let mut graph = Self { instructions, blocks, edges: Vec::new(), tables };
        graph.connect();
        Ok(graph)
    }

    fn connect(&mut self) {
        let mut edges = Vec::new();
        for (from, block) in self.blocks.iter().enumerate() {
            let last = &self.instructions[block.instructions.end - 1];
            if let InstKind::Jump(target) | InstKind::Branch(_, target) = last.kind
                && let Some(to) = self.block_starting_at(target)
            {
                edges.push(Edge { from, to, kind: EdgeKind::Branch });
            }
            if !last.kind.ends() && from + 1 < self.blocks.len() {
                edges.push(Edge { from, to: from + 1, kind: EdgeKind::FallThrough });
            }
            for (index, table) in self.tables.iter().enumerate() {
                if table.jump != block.instructions.end - 1 {
                    continue;
                }
                let mut targets: Vec<usize> = table
                    .targets
                    .iter()
                    .filter_map(|&target| self.block_starting_at(target))
                    .collect();
                targets.sort_unstable();
                targets.dedup();
                let kind = EdgeKind::Table(index);
                edges.extend(targets.into_iter().map(|to| Edge { from, to, kind }));
            }
        }
        self.edges = edges;
    }

    /// The edges that leave a block.
    pub(crate) fn edges_from(&self, block: usize) -> &[Edge] {
        let start = self.edges.partition_point(|edge| edge.from < block);
        let len = self.edges[start..].partition_point(|edge| edge.from == block);
        &self.edges[start..start + len]
    }

    /// The block that starts at an address.
    pub(crate) fn block_starting_at(&self, address: u64) -> Option<usize> {
        let found = self.blocks.binary_search_by_key(&address, |block| {
            self.instructions[block.instructions.start].address
        });
        found.ok()
    }

    /// The block that contains an instruction.
    pub(crate) fn block_of(&self, instruction: usize) -> usize {
        self.blocks.partition_point(|block| block.instructions.end <= instruction)
    }

    /// The index of the instruction at an address.
    pub(crate) fn instruction_at(&self, address: u64) -> Option<usize> {
        index_of(&self.instructions, address)
    }

    /// The instructions of a block.
    pub(crate) fn code(&self, block: usize) -> &[Inst] {
        &self.instructions[self.blocks[block].instructions.clone()]
    }

    /// Start address of a block.
    pub(crate) fn start(&self, block: usize) -> u64 {
        self.instructions[self.blocks[block].instructions.start].address
    }

    /// Size of a block in bytes.
    pub(crate) fn size(&self, block: usize) -> u64 {
        self.code(block).iter().map(|inst| u64::from(inst.length)).sum()
    }

    /// The address range of the function.
    pub(crate) fn extent(&self) -> Range<u64> {
        self.start(0)..self.instructions[self.instructions.len() - 1].end()
    }
}

fn index_of(instructions: &[Inst], address: u64) -> Option<usize> {
    instructions.binary_search_by_key(&address, |inst| inst.address).ok()
}
