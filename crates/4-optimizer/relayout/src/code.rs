//! Decoded functions, and their control-flow graphs.

use std::ops::Range;

use iced_x86::{
    Code as Opcode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind,
};

use crate::jump_tables::JumpTable;
use crate::module::Function;
use crate::{Module, RejectReason};

/// An instruction, reduced to what the layout needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inst {
    pub(crate) address: u64,
    pub(crate) length: u8,
    pub(crate) kind: InstKind,
    pub(crate) relative: Option<Relative>,
}

impl Inst {
    pub(crate) fn end(&self) -> u64 {
        self.address + u64::from(self.length)
    }
}

/// An operand that is addressed relative to the instruction pointer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Relative {
    /// Offset of its 4-byte displacement in the instruction.
    pub(crate) field: u8,
    pub(crate) target: u64,
}

/// How an instruction affects control flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InstKind {
    Plain,
    Nop,
    Jump(u64),
    /// Jumps to its target under a condition (as encoded in the opcode), else continues.
    Branch(u8, u64),
    Call(u64),
    /// Calls the address in a register or in memory.
    IndirectCall,
    /// Jumps to the address in a register or in memory.
    IndirectJump,
    Return,
}

impl InstKind {
    /// Whether control never continues with the next instruction.
    pub(crate) fn ends(self) -> bool {
        matches!(self, Self::Jump(_) | Self::IndirectJump | Self::Return)
    }

    pub(crate) fn ends_block(self) -> bool {
        self.ends() || matches!(self, Self::Branch(..))
    }
}

pub(crate) fn decode(module: &Module, function: &Function) -> Result<Vec<Inst>, RejectReason> {
    let size = usize::try_from(function.size()).map_err(|_| RejectReason::Undecodable)?;
    let bytes = module.bytes(function.start, size).ok_or(RejectReason::Undecodable)?;
    let mut decoder = Decoder::with_ip(64, bytes, function.start, DecoderOptions::NONE);
    let mut instructions = Vec::with_capacity(size / 4);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            return Err(RejectReason::Undecodable);
        }
        let kind = kind(&instruction, bytes, function.start)?;
        let relative = if instruction.is_ip_rel_memory_operand() {
            let offsets = decoder.get_constant_offsets(&instruction);
            if instruction.memory_base() != iced_x86::Register::RIP
                || offsets.displacement_size() != 4
            {
                return Err(RejectReason::Undecodable);
            }
            let field = offsets.displacement_offset() as u8;
            Some(Relative { field, target: instruction.ip_rel_memory_address() })
        } else {
            None
        };
        let length = instruction.len() as u8;
        instructions.push(Inst { address: instruction.ip(), length, kind, relative });
    }
    Ok(instructions)
}

/// The instruction at an address.
pub(crate) fn decode_at(module: &Module, address: u64) -> Option<Instruction> {
    const LONGEST: usize = 15;
    // Fewer bytes at the end of a segment.
    let bytes = (1..=LONGEST).rev().find_map(|size| module.bytes(address, size))?;
    let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}

fn kind(instruction: &Instruction, bytes: &[u8], start: u64) -> Result<InstKind, RejectReason> {
    let target = || match instruction.op0_kind() {
        OpKind::NearBranch64 => Ok(instruction.near_branch_target()),
        _ => Err(RejectReason::Undecodable),
    };
    match instruction.flow_control() {
        FlowControl::Next => match instruction.mnemonic() {
            Mnemonic::Nop => Ok(InstKind::Nop),
            Mnemonic::Syscall | Mnemonic::Sysenter => Err(RejectReason::SystemCall),
            _ => Ok(InstKind::Plain),
        },
        FlowControl::UnconditionalBranch => Ok(InstKind::Jump(target()?)),
        FlowControl::ConditionalBranch => {
            let target = target()?;
            let at = (instruction.ip() - start) as usize + instruction.len();
            if instruction.is_jcc_short() {
                Ok(InstKind::Branch(bytes[at - 2] & 0xf, target))
            } else if instruction.is_jcc_near() {
                Ok(InstKind::Branch(bytes[at - 5] & 0xf, target))
            } else {
                Err(RejectReason::ShortBranch)
            }
        }
        FlowControl::IndirectBranch => match instruction.code() {
            Opcode::Jmp_rm64 => Ok(InstKind::IndirectJump),
            _ => Err(RejectReason::Undecodable),
        },
        FlowControl::IndirectCall => match instruction.code() {
            Opcode::Call_rm64 => Ok(InstKind::IndirectCall),
            Opcode::Syscall | Opcode::Sysenter => Err(RejectReason::SystemCall),
            _ => Err(RejectReason::Undecodable),
        },
        FlowControl::Call => match instruction.mnemonic() {
            Mnemonic::Call => Ok(InstKind::Call(target()?)),
            _ => Err(RejectReason::SystemCall),
        },
        FlowControl::Return => match instruction.code() {
            Opcode::Retnq | Opcode::Retnq_imm16 => Ok(InstKind::Return),
            _ => Err(RejectReason::Undecodable),
        },
        FlowControl::Interrupt => match instruction.mnemonic() {
            Mnemonic::Int3 | Mnemonic::Int1 => Ok(InstKind::Plain),
            _ => Err(RejectReason::SystemCall),
        },
        FlowControl::XbeginXabortXend => Err(RejectReason::Transaction),
        // ud2: control continues only if a signal handler skips it.
        FlowControl::Exception => Ok(InstKind::Plain),
    }
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
    /// For each block, the indices of its instructions.
    pub(crate) blocks: Vec<Range<usize>>,
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
        let blocks: Vec<Range<usize>> =
            starts.iter().zip(ends).map(|(&start, end)| start..end).collect();
        let mut graph = Self { instructions, blocks, edges: Vec::new(), tables };
        graph.connect();
        Ok(graph)
    }

    fn connect(&mut self) {
        let mut edges = Vec::new();
        for (from, block) in self.blocks.iter().enumerate() {
            let last = &self.instructions[block.end - 1];
            if let InstKind::Jump(target) | InstKind::Branch(_, target) = last.kind
                && let Some(to) = self.block_starting_at(target)
            {
                edges.push(Edge { from, to, kind: EdgeKind::Branch });
            }
            if !last.kind.ends() && from + 1 < self.blocks.len() {
                edges.push(Edge { from, to: from + 1, kind: EdgeKind::FallThrough });
            }
            for (index, table) in self.tables.iter().enumerate() {
                if table.jump != block.end - 1 {
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

    pub(crate) fn edges_from(&self, block: usize) -> &[Edge] {
        let start = self.edges.partition_point(|edge| edge.from < block);
        let len = self.edges[start..].partition_point(|edge| edge.from == block);
        &self.edges[start..start + len]
    }

    pub(crate) fn block_starting_at(&self, address: u64) -> Option<usize> {
        let start = |block: &Range<usize>| self.instructions[block.start].address;
        self.blocks.binary_search_by_key(&address, start).ok()
    }

    pub(crate) fn block_of(&self, instruction: usize) -> usize {
        self.blocks.partition_point(|block| block.end <= instruction)
    }

    pub(crate) fn instruction_at(&self, address: u64) -> Option<usize> {
        index_of(&self.instructions, address)
    }

    pub(crate) fn code(&self, block: usize) -> &[Inst] {
        &self.instructions[self.blocks[block].clone()]
    }

    pub(crate) fn start(&self, block: usize) -> u64 {
        self.instructions[self.blocks[block].start].address
    }

    pub(crate) fn size(&self, block: usize) -> u64 {
        self.code(block).iter().map(|inst| u64::from(inst.length)).sum()
    }

    pub(crate) fn extent(&self) -> Range<u64> {
        self.start(0)..self.instructions[self.instructions.len() - 1].end()
    }
}

fn index_of(instructions: &[Inst], address: u64) -> Option<usize> {
    instructions.binary_search_by_key(&address, |inst| inst.address).ok()
}
