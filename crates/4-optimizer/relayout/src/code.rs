//! Decoding of functions.

use iced_x86::{
    Code as Opcode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind,
};

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
    /// End address.
    pub(crate) fn end(&self) -> u64 {
        self.address + u64::from(self.length)
    }
}

/// An operand that is addressed relative to the instruction pointer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Relative {
    /// Offset of its 4-byte displacement in the instruction.
    pub(crate) field: u8,
    /// Address it refers to.
    pub(crate) target: u64,
}

/// How an instruction affects control flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InstKind {
    /// Continues with the next instruction.
    Plain,
    /// Has no effect.
    Nop,
    /// Jumps to its target.
    Jump(u64),
    /// Jumps to its target under a condition (as encoded in the opcode), else continues.
    Branch(u8, u64),
    /// Calls its target.
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

    /// Whether it ends a basic block.
    pub(crate) fn ends_block(self) -> bool {
        self.ends() || matches!(self, Self::Branch(..))
    }
}

/// Decodes a function.
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
        FlowControl::IndirectBranch => near(instruction, InstKind::IndirectJump),
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

fn near(instruction: &Instruction, kind: InstKind) -> Result<InstKind, RejectReason> {
    match instruction.code() {
        Opcode::Jmp_rm64 => Ok(kind),
        _ => Err(RejectReason::Undecodable),
    }
}
