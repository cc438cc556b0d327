//! What a module's whole code refers to: which places inside functions can be reached from
//! elsewhere.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::Module;
use crate::bytes::ConstantMemory;

/// Longest jump table that is read.
const MAX_TABLE: usize = 1 << 14;

/// Addresses inside functions that code of the module refers to.
#[derive(Debug, Default)]
pub(crate) struct CodeReferences {
    /// Targets of direct branches that leave their function, other than to a function's first
    /// address.
    entered: Vec<u64>,
    /// Code addresses that code takes, and what may be entries of jump tables.
    taken: Vec<u64>,
}

impl CodeReferences {
    /// Decodes all code of the module.
    pub(crate) fn of(module: &Module) -> Self {
        let mut facts = Self::default();
        let mut tables = Vec::new();
        for range in module.executable() {
            let mut at = range.start;
            let mut index = module.functions().partition_point(|function| function.end <= at);
            // Functions one by one, and the gaps between them, which hold code without frames.
            while at < range.end {
                let (piece, next) = match module.functions().get(index) {
                    Some(function) if function.start <= at => (at..function.end, index + 1),
                    Some(function) => (at..function.start.min(range.end), index),
                    None => (at..range.end, index),
                };
                facts.read(module, piece.clone(), &mut tables);
                at = piece.end;
                index = next;
                while module.functions().get(index).is_some_and(|next| next.end <= at) {
                    index += 1;
                }
            }
        }
        tables.sort_unstable();
        tables.dedup();
        for (index, &table) in tables.iter().enumerate() {
            // One table ends where the next one begins, at the latest.
            let end = tables.get(index + 1).copied().unwrap_or(u64::MAX);
            facts.read_table(module, table..end);
        }
        facts.entered.sort_unstable();
        facts.entered.dedup();
        facts.taken.sort_unstable();
        facts.taken.dedup();
        facts
    }

    /// Decodes a function; `tables`: gets what may be jump tables.
    fn read(&mut self, module: &Module, range: Range<u64>, tables: &mut Vec<u64>) {
        let size = usize::try_from(range.end - range.start).unwrap_or(0);
        let Some(bytes) = module.bytes(range.start, size) else { return };
        let mut decoder = Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let first = tables.len();
        let mut jumps_indirectly = false;
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            match instruction.flow_control() {
                FlowControl::UnconditionalBranch
                | FlowControl::ConditionalBranch
                | FlowControl::Call
                    if instruction.op0_kind() == OpKind::NearBranch64 =>
                {
                    let target = instruction.near_branch_target();
                    if !range.contains(&target) && !is_start(module, target) {
                        self.entered.push(target);
                    }
                }
                FlowControl::IndirectBranch => {
                    jumps_indirectly |= !instruction.is_ip_rel_memory_operand();
                }
                FlowControl::Next
                    if instruction.mnemonic() == Mnemonic::Lea
                        && instruction.memory_base() == Register::RIP =>
                {
                    let target = instruction.ip_rel_memory_address();
                    if module.is_executable(target) {
                        self.taken.push(target);
                    } else {
                        tables.push(target);
                    }
                }
                _ => {}
            }
        }
        if !jumps_indirectly {
            tables.truncate(first);
        }
    }

    /// Takes everything in the range that looks like a jump table's entry for one.
    fn read_table(&mut self, module: &Module, range: Range<u64>) {
        let table = range.start;
        for at in range.step_by(4).take(MAX_TABLE) {
            let Some(bytes) = module.constant_bytes(at, 4) else { return };
            let offset = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            let target = table.wrapping_add_signed(i64::from(offset));
            if !module.is_executable(target) {
                return;
            }
            self.taken.push(target);
        }
    }

    /// Addresses in the range that other functions branch to.
    pub(crate) fn entered(&self, range: Range<u64>) -> &[u64] {
        within(&self.entered, range)
    }

    /// Whether code takes an address in the range, or a jump table may hold one.
    pub(crate) fn is_taken(&self, range: Range<u64>) -> bool {
        !within(&self.taken, range).is_empty()
    }
}

fn within(sorted: &[u64], range: Range<u64>) -> &[u64] {
    let first = sorted.partition_point(|&address| address < range.start);
    let last = sorted.partition_point(|&address| address < range.end);
    &sorted[first..last.max(first)]
}

fn is_start(module: &Module, address: u64) -> bool {
    module.functions().binary_search_by_key(&address, |function| function.start).is_ok()
}
