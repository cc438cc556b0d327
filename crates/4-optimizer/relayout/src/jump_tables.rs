//! Jump tables of position-independent code.
//!
//! Recognizes the code that gcc and clang generate, with the operands of `add` in any order:
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
//! A jump that is not recognized leaves the copy through the original table.

use std::collections::BTreeSet;
use std::ops::Range;

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use crate::Module;
use crate::bytes::ConstantMemory;
use crate::code::{EdgeKind, Graph, Inst, InstKind, decode_at};

/// Number of instructions to search backwards from the jump.
const WINDOW: usize = 24;
/// Maximum number of entries of a table.
pub(crate) const MAX_ENTRIES: u64 = 1 << 14;

/// An indirect jump through a table of offsets.
#[derive(Debug, Clone)]
pub(crate) struct JumpTable {
    /// Index of the jump among the function's instructions.
    pub(crate) jump: usize,
    /// Index of the instruction that loads the table's address.
    pub(crate) lea: usize,
    pub(crate) address: u64,
    /// Targets of its entries. Only targets inside the function, if the bounds are unknown.
    pub(crate) targets: Vec<u64>,
    /// The register that holds the table's address.
    pub(crate) base: Register,
    /// Number of entries, if a comparison before the jump checks it.
    pub(crate) bound: Option<Bound>,
}

/// The number of entries of a table, and the comparison that checks it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    /// Index of the comparison among the function's instructions.
    pub(crate) compare: usize,
    pub(crate) entries: u64,
}

pub(crate) fn find(module: &Module, code: &[Inst], extent: &Range<u64>) -> Vec<JumpTable> {
    let jumps = (0..code.len()).filter(|&index| code[index].kind == InstKind::IndirectJump);
    jumps.filter_map(|jump| find_one(module, code, extent, jump)).collect()
}

pub(crate) fn writes(
    info: &mut InstructionInfoFactory,
    instruction: &Instruction,
    register: Register,
) -> bool {
    accesses(info, instruction, register).any(|access| {
        !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
    })
}

pub(crate) fn reads(
    info: &mut InstructionInfoFactory,
    instruction: &Instruction,
    register: Register,
) -> bool {
    accesses(info, instruction, register)
        .any(|access| !matches!(access, OpAccess::Write | OpAccess::NoMemAccess))
}

fn accesses(
    info: &mut InstructionInfoFactory,
    instruction: &Instruction,
    register: Register,
) -> impl Iterator<Item = OpAccess> {
    let all = info.info(instruction).used_registers().iter();
    all.filter(move |used| used.register().full_register() == register).map(|used| used.access())
}

fn find_one(module: &Module, code: &[Inst], extent: &Range<u64>, jump: usize) -> Option<JumpTable> {
    let mut info = InstructionInfoFactory::new();
    let instruction = decode_at(module, code[jump].address)?;
    if instruction.op0_kind() != OpKind::Register {
        return None;
    }
    let register = instruction.op0_register();
    let first = jump.saturating_sub(WINDOW);
    let mut before = |registers: &[Register], end: usize| -> Option<(usize, Instruction)> {
        for index in (first..end).rev() {
            if code[index].kind.ends() {
                return None;
            }
            let instruction = decode_at(module, code[index].address)?;
            if registers.iter().any(|&register| writes(&mut info, &instruction, register)) {
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
    let bound = bound(module, code, &mut info, load, index);
    let targets = match bound {
        Some(bound) => read(module, address, bound.entries)?,
        None => read_while_inside(module, code, extent, address),
    };
    Some(JumpTable { jump, lea, address, targets, base, bound })
}

/// The number of entries according to the comparison before the jump.
fn bound(
    module: &Module,
    code: &[Inst],
    info: &mut InstructionInfoFactory,
    load: usize,
    index: Register,
) -> Option<Bound> {
    let mut register = index;
    let mut guarded = false;
    for at in (load.saturating_sub(WINDOW)..load).rev() {
        let instruction = decode_at(module, code[at].address)?;
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
            let is_known = !high && last < MAX_ENTRIES;
            return is_known.then_some(Bound { compare: at, entries: last + 1 });
        }
        if guarded && code[at].kind == InstKind::Plain && instruction.rflags_modified() != 0 {
            return None;
        }
        if writes(info, &instruction, register) {
            // A zero-extending move: the compared register is its source.
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

/// The target of an entry of a table.
pub(crate) fn entry(module: &Module, table: u64, index: u64) -> Option<u64> {
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

/// Whether a copy can replace the table: its bounds are known, the jump is reached only through the
/// comparison, and the table's address is used for nothing else.
pub(crate) fn may_be_copied(
    module: &Module,
    graph: &Graph,
    table: &JumpTable,
    entered: &[u64],
) -> bool {
    let Some(bound) = table.bound else { return false };
    let block = graph.block_of(table.jump);
    if graph.block_of(table.lea) != block || block == 0 {
        // The comparison may precede the block, but the address must be loaded inside it.
        return false;
    }
    let start = graph.start(block);
    // The branch of another comparison may lead to the conditional jump.
    let is_compared = graph.block_of(bound.compare) + 1 == block;
    let guarded_from = graph.instructions[..graph.blocks[block].start]
        .last()
        .is_some_and(|last| matches!(last.kind, InstKind::Branch(7, _)));
    let only_from_guard = graph
        .edges
        .iter()
        .filter(|edge| edge.to == block)
        .all(|edge| edge.kind == EdgeKind::FallThrough);
    is_compared
        && guarded_from
        && only_from_guard
        && entered.binary_search(&start).is_err()
        && !is_used_otherwise(module, graph, table)
}

/// Whether any path from the jump reads the table's address for anything but another jump through
/// the table.
fn is_used_otherwise(module: &Module, graph: &Graph, table: &JumpTable) -> bool {
    let mut info = InstructionInfoFactory::new();
    let mut register_use = |inst: &Inst| -> Option<RegisterUse> {
        let instruction = decode_at(module, inst.address)?;
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
            return Some(RegisterUse::Read);
        }
        let overwritten = writes(&mut info, &instruction, table.base);
        Some(if overwritten { RegisterUse::Overwritten } else { RegisterUse::Untouched })
    };
    let within = &graph.instructions[table.lea + 1..table.jump];
    if within.iter().any(|inst| matches!(register_use(inst), Some(RegisterUse::Read) | None)) {
        return true;
    }
    let mut seen = BTreeSet::new();
    let next = |block| graph.edges_from(block).iter().map(|edge| edge.to);
    let mut pending: Vec<usize> = next(graph.block_of(table.jump)).collect();
    while let Some(block) = pending.pop() {
        if !seen.insert(block) {
            continue;
        }
        let mut overwritten = false;
        for inst in graph.code(block) {
            match register_use(inst) {
                Some(RegisterUse::Read) | None => return true,
                Some(RegisterUse::Overwritten) => {
                    overwritten = true;
                    break;
                }
                Some(RegisterUse::Untouched) => {}
            }
        }
        if !overwritten {
            pending.extend(next(block));
        }
    }
    false
}

/// What an instruction does with the register that holds the table's address.
enum RegisterUse {
    Read,
    Overwritten,
    Untouched,
}
