//! Jump tables of position-independent code.
//!
//! The shape that gcc and clang make, in any order of the operands of `add`:
//!
//! ```text
//! cmp  eax, 5
//! ja   default
//! lea  rdx, [rip + table]
//! movsxd rax, dword [rdx + rax*4]
//! add  rax, rdx
//! jmp  rax
//! ```
//!
//! What is not recognised is no problem: it leaves the copy through the original table.

use std::collections::BTreeSet;
use std::ops::Range;

use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};

use crate::Module;
use crate::bytes::ConstantMemory;
use crate::code::{Inst, InstKind};
use crate::graph::Graph;

/// How far back from the jump its parts are looked for, in instructions.
const WINDOW: usize = 24;
/// Most entries of a table.
const MAX_ENTRIES: u64 = 1 << 14;

/// An indirect jump through a table of offsets.
#[derive(Debug, Clone)]
pub(crate) struct JumpTable {
    /// Index of the jump among the function's instructions.
    pub(crate) jump: usize,
    /// Index of the instruction that takes the table's address.
    pub(crate) lea: usize,
    /// Where the table is.
    pub(crate) address: u64,
    /// Where its entries lead. Only what lies in the function, if the bounds are not known.
    pub(crate) targets: Vec<u64>,
    /// The register that holds the table's address.
    base: Register,
    /// Number of entries, where a comparison before the jump says it.
    pub(crate) entries: Option<u64>,
}

/// Finds the function's jump tables.
pub(crate) fn find(module: &Module, code: &[Inst], extent: &Range<u64>) -> Vec<JumpTable> {
    let jumps = (0..code.len()).filter(|&index| code[index].kind == InstKind::IndirectJump);
    jumps.filter_map(|jump| find_one(module, code, extent, jump)).collect()
}

fn full(module: &Module, inst: &Inst) -> Option<Instruction> {
    let bytes = module.bytes(inst.address, usize::from(inst.length))?;
    Some(Decoder::with_ip(64, bytes, inst.address, DecoderOptions::NONE).decode())
}

fn writes(
    info: &mut InstructionInfoFactory,
    instruction: &Instruction,
    register: Register,
) -> bool {
    info.info(instruction).used_registers().iter().any(|used| {
        used.register().full_register() == register
            && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
    })
}

fn reads(info: &mut InstructionInfoFactory, instruction: &Instruction, register: Register) -> bool {
    info.info(instruction).used_registers().iter().any(|used| {
        used.register().full_register() == register
            && !matches!(used.access(), OpAccess::Write | OpAccess::NoMemAccess)
    })
}

fn find_one(module: &Module, code: &[Inst], extent: &Range<u64>, jump: usize) -> Option<JumpTable> {
    let mut info = InstructionInfoFactory::new();
    let instruction = full(module, &code[jump])?;
    if instruction.op0_kind() != OpKind::Register {
        return None;
    }
    let register = instruction.op0_register();
    let first = jump.saturating_sub(WINDOW);
    let mut before = |wanted: &[Register], end: usize| -> Option<(usize, Instruction)> {
        for index in (first..end).rev() {
            if code[index].kind.ends() {
                return None;
            }
            let instruction = full(module, &code[index])?;
            if wanted.iter().any(|&register| writes(&mut info, &instruction, register)) {
                return Some((index, instruction));
            }
        }
        None
    };
    let (add, instruction) = before(&[register], jump)?;
    if instruction.mnemonic() != Mnemonic::Add
        || instruction.op0_register() != register
        || instruction.op1_kind() != OpKind::Register
    {
        return None;
    }
    let other = instruction.op1_register();
    let (load, instruction) = before(&[register, other], add)?;
    let base = instruction.memory_base();
    let index = instruction.memory_index();
    let loaded = instruction.op0_register();
    let shape = instruction.mnemonic() == Mnemonic::Movsxd
        && instruction.op1_kind() == OpKind::Memory
        && instruction.memory_index_scale() == 4
        && instruction.memory_displacement64() == 0
        && ((loaded == register && base == other) || (loaded == other && base == register));
    if !shape || index == Register::None {
        return None;
    }
    let (lea, instruction) = before(&[base], load)?;
    if instruction.mnemonic() != Mnemonic::Lea || !instruction.is_ip_rel_memory_operand() {
        return None;
    }
    let address = instruction.ip_rel_memory_address();
    let entries = bound(module, code, &mut info, load, index);
    let targets = match entries {
        Some(entries) => read(module, address, entries)?,
        None => read_while_inside(module, code, extent, address),
    };
    Some(JumpTable { jump, lea, address, targets, base, entries })
}

/// The number of entries, from the comparison that guards the jump.
fn bound(
    module: &Module,
    code: &[Inst],
    info: &mut InstructionInfoFactory,
    load: usize,
    index: Register,
) -> Option<u64> {
    let mut register = index;
    let mut guarded = false;
    for at in (load.saturating_sub(WINDOW)..load).rev() {
        let instruction = full(module, &code[at])?;
        match code[at].kind {
            // `ja` is condition 7.
            InstKind::Branch(7, _) if !guarded => guarded = true,
            InstKind::Plain | InstKind::Nop => {}
            _ => return None,
        }
        if guarded && instruction.mnemonic() == Mnemonic::Cmp {
            if instruction.op0_kind() != OpKind::Register
                || instruction.op0_register().full_register() != register
            {
                return None;
            }
            let mask = match instruction.op0_register().size() {
                1 => 0xff,
                2 => 0xffff,
                4 => 0xffff_ffff,
                _ => u64::MAX,
            };
            let high = matches!(
                instruction.op0_register(),
                Register::AH | Register::BH | Register::CH | Register::DH
            );
            let is_number = !matches!(instruction.op1_kind(), OpKind::Register | OpKind::Memory);
            let last = is_number.then(|| instruction.immediate(1) & mask)?;
            return (!high && last < MAX_ENTRIES).then_some(last + 1);
        }
        if guarded && code[at].kind == InstKind::Plain && instruction.rflags_modified() != 0 {
            return None;
        }
        if writes(info, &instruction, register) {
            // A copy that extends with zeros leads to the register that was compared.
            let extends = match instruction.mnemonic() {
                Mnemonic::Mov => instruction.op0_register().size() == 4,
                Mnemonic::Movzx => true,
                _ => false,
            };
            if !extends || instruction.op1_kind() != OpKind::Register {
                return None;
            }
            register = instruction.op1_register().full_register();
        }
    }
    None
}

fn entry(module: &Module, table: u64, index: u64) -> Option<u64> {
    let bytes = module.constant_bytes(table.checked_add(4 * index)?, 4)?;
    let offset = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    Some(table.wrapping_add_signed(i64::from(offset)))
}

fn read(module: &Module, table: u64, entries: u64) -> Option<Vec<u64>> {
    (0..entries)
        .map(|index| entry(module, table, index).filter(|&target| module.is_executable(target)))
        .collect()
}

fn read_while_inside(module: &Module, code: &[Inst], extent: &Range<u64>, table: u64) -> Vec<u64> {
    (0..MAX_ENTRIES)
        .map_while(|index| entry(module, table, index))
        .take_while(|target| {
            extent.contains(target)
                && code.binary_search_by_key(target, |inst| inst.address).is_ok()
        })
        .collect()
}

/// Whether a copy of the table may be used instead of it: its bounds are known, control comes to
/// the jump only through the comparison, and the table's address is used for nothing else.
pub(crate) fn may_be_copied(
    module: &Module,
    graph: &Graph,
    table: &JumpTable,
    entered: &[u64],
) -> bool {
    if table.entries.is_none() {
        return false;
    }
    let block = graph.block_of(table.jump);
    if graph.block_of(table.lea) != block || block == 0 {
        // The comparison may be in front of the block, the address must be taken inside.
        return false;
    }
    let start = graph.start(block);
    let guarded_from = graph.instructions[..graph.blocks[block].instructions.start]
        .last()
        .is_some_and(|last| matches!(last.kind, InstKind::Branch(7, _)));
    let only_from_guard = graph
        .edges
        .iter()
        .filter(|edge| edge.to == block)
        .all(|edge| edge.kind == crate::graph::EdgeKind::FallThrough);
    guarded_from
        && only_from_guard
        && entered.binary_search(&start).is_err()
        && !is_used_otherwise(module, graph, table)
}

/// Whether any way from the jump reads the table's address other than to jump through it again.
fn is_used_otherwise(module: &Module, graph: &Graph, table: &JumpTable) -> bool {
    let mut info = InstructionInfoFactory::new();
    // What one instruction does with the register: a use, an end, or neither.
    let mut look = |inst: &Inst| -> Option<RegisterUse> {
        let instruction = full(module, inst)?;
        let dispatches = (instruction.mnemonic() == Mnemonic::Movsxd
            && instruction.memory_base() == table.base
            && instruction.memory_index_scale() == 4
            && instruction.memory_index() != table.base)
            || (instruction.mnemonic() == Mnemonic::Add
                && instruction.op0_kind() == OpKind::Register
                && instruction.op1_kind() == OpKind::Register
                && instruction.op0_register().size() == 8);
        if !dispatches && reads(&mut info, &instruction, table.base) && inst.kind == InstKind::Plain
        {
            return Some(RegisterUse::Used);
        }
        let ended = writes(&mut info, &instruction, table.base);
        Some(if ended { RegisterUse::Replaced } else { RegisterUse::Goes })
    };
    let within = &graph.instructions[table.lea + 1..table.jump];
    if within.iter().any(|inst| matches!(look(inst), Some(RegisterUse::Used) | None)) {
        return true;
    }
    let mut seen = BTreeSet::new();
    let from = graph.block_of(table.jump);
    let mut pending: Vec<usize> =
        graph.edges.iter().filter(|edge| edge.from == from).map(|edge| edge.to).collect();
    while let Some(block) = pending.pop() {
        if !seen.insert(block) {
            continue;
        }
        let mut replaced = false;
        for inst in graph.code(block) {
            match look(inst) {
                Some(RegisterUse::Used) | None => return true,
                Some(RegisterUse::Replaced) => {
                    replaced = true;
                    break;
                }
                Some(RegisterUse::Goes) => {}
            }
        }
        if !replaced {
            let next = graph.edges.iter().filter(|edge| edge.from == block);
            pending.extend(next.map(|edge| edge.to));
        }
    }
    false
}

enum RegisterUse {
    Used,
    Replaced,
    Goes,
}
