//! References from all code of a module: which addresses inside functions are reached from outside.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::Module;
use crate::block_counts::within;
use crate::bytes::ConstantMemory as _;
use crate::frame::{ExceptionTable, Frame, landings};
use crate::jump_tables::{MAX_ENTRIES, entry};

/// Addresses inside functions that the module's code refers to.
#[derive(Debug, Default)]
pub(crate) struct CodeReferences {
    /// Targets of direct branches into other functions, except at their start, and landing pads outside of
    /// the function whose exceptions they handle.
    entered: Vec<u64>,
    /// Code addresses that are loaded by code, or may be entries of jump tables.
    taken: Vec<u64>,
}

impl CodeReferences {
    /// Decodes all code of the module.
    pub(crate) fn of(module: &Module) -> Self {
        let mut references = Self::default();
        let mut tables = Vec::new();
        for range in module.executable() {
            let mut at = range.start;
            let mut index = module.functions().partition_point(|function| function.end <= at);
            // Each function, and each gap between functions, which contains code without frames.
            while at < range.end {
                let (piece, next) = match module.functions().get(index) {
                    Some(function) if function.start <= at => (at..function.end, index + 1),
                    Some(function) => (at..function.start.min(range.end), index),
                    None => (at..range.end, index),
                };
                references.read(module, piece.clone(), &mut tables);
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
            // A table ends at the start of the next one at the latest.
            let end = tables.get(index + 1).copied().unwrap_or(u64::MAX);
            references.read_table(module, table..end);
        }
        for function in module.functions() {
            let elsewhere = landings(module, function).into_iter();
            references.entered.extend(elsewhere.filter(|at| !function.range().contains(at)));
        }
        references.entered.sort_unstable();
        references.entered.dedup();
        references.taken.sort_unstable();
        references.taken.dedup();
        references
    }

    /// Decodes a range of code and appends addresses of possible jump tables to `tables`.
    fn read(&mut self, module: &Module, range: Range<u64>, tables: &mut Vec<u64>) {
        let size = usize::try_from(range.end - range.start).unwrap_or(0);
        let Some(bytes) = module.bytes(range.start, size) else { return };
        let mut decoder = Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let first = tables.len();
        let mut jumps_indirectly = false;
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            if !module.needs_relocation() {
                // Programs at fixed addresses also load addresses as numbers.
                let numbers = numbers(&instruction).filter(|number| module.is_executable(*number));
                self.taken.extend(numbers);
            }
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
                    }
                    // Older linkers put tables into the segment of the code.
                    tables.push(target);
                }
                _ => {}
            }
        }
        if !jumps_indirectly {
            tables.truncate(first);
        }
    }

    /// Records the targets of a possible jump table.
    fn read_table(&mut self, module: &Module, range: Range<u64>) {
        let entries = (range.end - range.start).div_ceil(4).min(MAX_ENTRIES);
        let targets = (0..entries).map_while(|index| entry(module, range.start, index));
        self.taken.extend(targets.take_while(|&target| module.is_executable(target)));
    }

    /// Addresses in the range that are targets of branches from other functions, or their landing pads.
    pub(crate) fn entered(&self, range: Range<u64>) -> &[u64] {
        within(&self.entered, range, |&address| address)
    }

    /// Addresses in a function that are entered from other code, or as landing pads of its frame, in order.
    pub(crate) fn all_entered(&self, range: Range<u64>, frame: Option<&Frame>) -> Vec<u64> {
        let table = frame.and_then(|frame| frame.exceptions.as_ref());
        let landings = table.into_iter().flat_map(ExceptionTable::landings);
        let mut all: Vec<u64> = landings.filter(|landing| range.contains(landing)).collect();
        all.extend_from_slice(self.entered(range));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether code loads an address in the range, or a jump table may contain one.
    pub(crate) fn is_taken(&self, range: Range<u64>) -> bool {
        !within(&self.taken, range, |&address| address).is_empty()
    }
}

/// The operands of an instruction that are numbers and may be addresses.
fn numbers(instruction: &Instruction) -> impl Iterator<Item = u64> + '_ {
    (0..instruction.op_count()).filter_map(|operand| match instruction.op_kind(operand) {
        OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64 => {
            Some(instruction.immediate(operand))
        }
        _ => None,
    })
}

fn is_start(module: &Module, address: u64) -> bool {
    module.functions().binary_search_by_key(&address, |function| function.start).is_ok()
}
