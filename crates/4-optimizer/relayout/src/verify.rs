//! Proof that a copy is equivalent to the original code.
//!
//! An original address and an address in the copy are equivalent if the second is the first's copy,
//! the original itself unless the jump to a copy overwrites it, or a jump to one of them; padding and
//! counters may be before. The copy is equivalent if every copied instruction equals its original and
//! continues at equivalent addresses.
//!
//! Shares no code with the layout, except for parsing exception tables.

mod counters;
mod unwind;

use std::collections::{HashMap, HashSet};

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use crate::bytes::ConstantMemory;
use crate::{Module, Relayout};
use counters::Counters;

/// A difference between a copy and its original.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{function}: the copy of {original:#x} at {copy:#x}: {kind}")]
pub struct Difference {
    /// The function's name.
    pub function: String,
    /// Start address of the function. `None`: the address is in no function.
    pub start: Option<u64>,
    /// Original address.
    pub original: u64,
    /// Copy address.
    pub copy: u64,
    /// What differs.
    pub kind: DifferenceKind,
}

/// What differs between a copy and its original.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DifferenceKind {
    /// Control continues at an address that is not equivalent to the expected one.
    #[error("{how} {found:#x} instead of {expected:#x} or its copy")]
    Target {
        /// How control gets there.
        how: &'static str,
        /// Original address.
        expected: u64,
        /// Address in the copy.
        found: u64,
    },
    /// Another instruction, or other unwind information.
    #[error("`{expected}` became `{found}`")]
    Changed {
        /// In the original, formatted.
        expected: String,
        /// In the copy, formatted.
        found: String,
    },
    /// A call of a linkage stub goes through another slot.
    #[error("goes through slot {found:x?} instead of {expected:x?}")]
    Slot {
        /// Slot of the stub.
        expected: Option<u64>,
        /// Slot in the copy.
        found: Option<u64>,
    },
    /// An entry of a copied jump table is not equivalent.
    #[error(
        "entry {index} of a jump table goes to {found:x?} instead of {expected:x?} or its copy"
    )]
    TableEntry {
        /// Index of the entry.
        index: u64,
        /// Target in the original.
        expected: Option<u64>,
        /// Target in the copy.
        found: Option<u64>,
    },
    /// Unwind information cannot be parsed.
    #[error("{0}")]
    Unwind(#[from] gimli::Error),
    /// Any other difference.
    #[error("{0}")]
    Other(&'static str),
}

impl DifferenceKind {
    fn changed(expected: impl std::fmt::Debug, found: impl std::fmt::Debug) -> Self {
        Self::Changed { expected: format!("{expected:?}"), found: format!("{found:?}") }
    }
}

/// Maximum number of instructions between two copies: a jump, no-operations that align a loop (63 bytes in
/// instructions of at most 9), a counter.
const MAX_ADDED: usize = 10;
/// Decodes original and copy and compares all instructions, their successors, frame descriptions and
/// exception handling, the copied jump tables, the patches of the entries, and the slots of virtual tables.
pub fn verify(modules: &[&Module], relayout: &Relayout) -> Result<(), Difference> {
    differences(modules, relayout).into_iter().next().map_or(Ok(()), Err)
}

/// As [`verify`], but continues after a difference: the first one of the instructions of each
/// function, and the first ones of jump tables, entries and unwind information.
pub(crate) fn differences(modules: &[&Module], relayout: &Relayout) -> Vec<Difference> {
    let verifier = Verifier {
        modules,
        relayout,
        tables: relayout.tables.iter().map(|table| (table.copy, table.original)).collect(),
        slots: relayout.slots.iter().map(|slot| (slot.address, slot.content)).collect(),
        counters: Counters::new(modules, relayout),
        overwritten: relayout
            .entries
            .iter()
            .flat_map(|entry| entry.address + 1..entry.address + entry.patch.len() as u64)
            .collect(),
    };
    let mut found = Vec::new();
    let mut functions = HashSet::new();
    for (original, copy) in relayout.map.pairs() {
        if let Err(kind) = verifier.check_instruction(original, copy) {
            let difference = verifier.difference(original, copy, kind);
            if functions.insert(difference.start) {
                found.push(difference);
            }
        }
    }
    let parts = [
        verifier.check_tables(),
        verifier.check_entries(),
        verifier.check_virtual_slots(),
        unwind::check(&verifier),
    ];
    found.extend(parts.into_iter().filter_map(Result::err));
    found
}

struct Verifier<'a> {
    modules: &'a [&'a Module],
    relayout: &'a Relayout,
    /// Address of the original of each copied jump table.
    tables: HashMap<u64, u64>,
    slots: HashMap<u64, u64>,
    counters: Counters,
    /// Original addresses inside the jumps to copies.
    overwritten: HashSet<u64>,
}

impl Verifier<'_> {
    fn difference(&self, original: u64, copy: u64, kind: DifferenceKind) -> Difference {
        let module = self.modules.iter().find(|module| module.contains(original));
        let start = module.and_then(|module| Some(module.function_at(original)?.start));
        let function = module
            .zip(start)
            .map_or_else(|| format!("{original:#x}"), |(module, start)| module.name_at(start));
        Difference { function, start, original, copy, kind }
    }

    fn module(&self, address: u64) -> Option<&Module> {
        self.modules.iter().find(|module| module.contains(address)).copied()
    }

    /// Decodes the instruction at an original address.
    fn original(&self, address: u64) -> Option<Instruction> {
        let module = self.module(address)?;
        decode(|size| module.bytes(address, size), address)
    }

    /// Decodes the instruction at an address of the copy.
    fn copied(&self, address: u64) -> Option<Instruction> {
        decode(|size| self.relayout.constant_bytes(address, size), address)
    }

    /// Whether two addresses are equivalent.
    fn is_equivalent(&self, original: u64, copy: u64) -> bool {
        let mut at = copy;
        let mut jumped = false;
        for _ in 0..=MAX_ADDED {
            if original == at {
                return !self.overwritten.contains(&at);
            }
            if self.relayout.map.to_copy(original) == Some(at) {
                return true;
            }
            let Some(instruction) = self.copied(at) else { return false };
            // A jump added where the next instruction is not adjacent.
            if let Some(target) = direct(&instruction, FlowControl::UnconditionalBranch) {
                if std::mem::replace(&mut jumped, true) {
                    return false;
                }
                at = target;
                continue;
            }
            if !self.is_added(&instruction, original) {
                return false;
            }
            at = instruction.next_ip();
        }
        false
    }

    /// Whether an instruction of the copy that continues at the copy of `original` has no effect: padding
    /// that aligns a loop (that of the original was elided), or a counter.
    fn is_added(&self, copied: &Instruction, original: u64) -> bool {
        copied.mnemonic() == Mnemonic::Nop
            || (self.counters.is_counter(copied)
                && self.counters.are_flags_unused(self.modules, original))
    }

    fn expect_equivalent(
        &self,
        expected: u64,
        found: u64,
        how: &'static str,
    ) -> Result<(), DifferenceKind> {
        if self.is_equivalent(expected, found) {
            Ok(())
        } else {
            Err(DifferenceKind::Target { how, expected, found })
        }
    }

    fn check_instruction(&self, original: u64, copy: u64) -> Result<(), DifferenceKind> {
        let Some((original, original_inst)) = self.copied_instruction(original, copy)? else {
            return Ok(());
        };
        let copied_inst =
            self.copied(copy).ok_or(DifferenceKind::Other("no instruction in the copy"))?;
        let next = (original_inst.next_ip(), copied_inst.next_ip());
        let call_or_jump = |flow, indirect| -> Result<(), DifferenceKind> {
            let target = direct(&original_inst, flow)
                .ok_or(DifferenceKind::Other("a branch that is not direct"))?;
            match direct(&copied_inst, flow) {
                Some(copied) => self.check_target(target, copied),
                None if copied_inst.flow_control() == indirect => {
                    self.check_slot(target, &copied_inst)
                }
                None => Err(DifferenceKind::changed(original_inst.code(), copied_inst.code())),
            }
        };
        match original_inst.flow_control() {
            FlowControl::UnconditionalBranch => {
                call_or_jump(FlowControl::UnconditionalBranch, FlowControl::IndirectBranch)
            }
            FlowControl::Call => {
                call_or_jump(FlowControl::Call, FlowControl::IndirectCall)?;
                self.expect_equivalent(next.0, next.1, "returns to")
            }
            FlowControl::ConditionalBranch => self.check_condition(&original_inst, &copied_inst),
            _ => {
                self.check_equal(original, &original_inst, &copied_inst)?;
                match original_inst.flow_control() {
                    FlowControl::Return | FlowControl::IndirectBranch => Ok(()),
                    _ => self.expect_equivalent(next.0, next.1, "continues at"),
                }
            }
        }
    }

    /// The original instruction whose copy is at `copy`: a later one if `original` was elided. `None`
    /// if another pair of the map covers it.
    fn copied_instruction(
        &self,
        original: u64,
        copy: u64,
    ) -> Result<Option<(u64, Instruction)>, DifferenceKind> {
        let mut at = original;
        let mut elided = HashSet::new();
        loop {
            let original_inst =
                self.original(at).ok_or(DifferenceKind::Other("no instruction in the original"))?;
            let next = match original_inst.flow_control() {
                FlowControl::UnconditionalBranch => {
                    direct(&original_inst, FlowControl::UnconditionalBranch)
                }
                FlowControl::Next if original_inst.mnemonic() == Mnemonic::Nop => {
                    Some(original_inst.next_ip())
                }
                _ => None,
            };
            let Some(next) = next else {
                return Ok((at == original).then_some((at, original_inst)));
            };
            if !elided.insert(at) {
                // An endless loop of jumps: its copy is a jump to itself.
                let jump = self.copied(copy);
                let target = jump.and_then(|it| direct(&it, FlowControl::UnconditionalBranch));
                return match target == Some(copy) {
                    true => Ok(None),
                    false => Err(DifferenceKind::Other("an endless loop ends")),
                };
            }
            let is_added = || self.copied(copy).is_some_and(|it| self.is_added(&it, next));
            if self.relayout.map.to_copy(next) == Some(copy) {
                at = next;
            } else if is_added() && self.is_equivalent(next, copy) {
                // Elided before a loop or a counter, whose first instruction has its own pair.
                return Ok(None);
            } else if original_inst.mnemonic() == Mnemonic::Nop {
                // Elided before an added jump.
                self.expect_equivalent(next, copy, "continues at")?;
                return Ok(None);
            } else {
                return Ok((at == original).then_some((at, original_inst)));
            }
        }
    }

    fn check_target(&self, original: u64, copied: u64) -> Result<(), DifferenceKind> {
        if self.is_equivalent(original, copied) {
            return Ok(());
        }
        // Directly to the target of a linkage stub.
        let slot = self.module(original).and_then(|module| {
            let slot = module.stub_slot(original)?;
            module.is_read_only_after_start(slot).then_some(slot)
        });
        match slot.and_then(|slot| self.slots.get(&slot)) {
            Some(&content) => self.expect_equivalent(content, copied, "goes through a slot to"),
            None => self.expect_equivalent(original, copied, "goes to"),
        }
    }

    fn check_slot(&self, stub: u64, copied_inst: &Instruction) -> Result<(), DifferenceKind> {
        let expected = self.module(stub).and_then(|module| module.slot_instead_of(stub));
        let near = matches!(copied_inst.code(), Code::Call_rm64 | Code::Jmp_rm64);
        let found = (near && copied_inst.is_ip_rel_memory_operand())
            .then(|| copied_inst.ip_rel_memory_address());
        if expected.is_some() && expected == found {
            Ok(())
        } else {
            Err(DifferenceKind::Slot { expected, found })
        }
    }

    fn check_condition(
        &self,
        original_inst: &Instruction,
        copied_inst: &Instruction,
    ) -> Result<(), DifferenceKind> {
        let flow = FlowControl::ConditionalBranch;
        let target = direct(original_inst, flow)
            .ok_or(DifferenceKind::Other("a condition that is not direct"))?;
        let copied = direct(copied_inst, flow)
            .ok_or_else(|| DifferenceKind::changed(original_inst.code(), copied_inst.code()))?;
        if !(copied_inst.is_jcc_short_or_near() && original_inst.is_jcc_short_or_near()) {
            return Err(DifferenceKind::changed(original_inst.code(), copied_inst.code()));
        }
        let mut inverted = *copied_inst;
        inverted.negate_condition_code();
        if original_inst.condition_code() == copied_inst.condition_code() {
            self.expect_equivalent(target, copied, "branches to")?;
            self.expect_equivalent(original_inst.next_ip(), copied_inst.next_ip(), "continues at")
        } else if original_inst.condition_code() == inverted.condition_code() {
            self.expect_equivalent(original_inst.next_ip(), copied, "branches to")?;
            self.expect_equivalent(target, copied_inst.next_ip(), "continues at")
        } else {
            Err(DifferenceKind::changed(original_inst.code(), copied_inst.code()))
        }
    }

    fn check_equal(
        &self,
        at: u64,
        original_inst: &Instruction,
        copied_inst: &Instruction,
    ) -> Result<(), DifferenceKind> {
        let mut expected = *original_inst;
        if original_inst.is_ip_rel_memory_operand() && copied_inst.is_ip_rel_memory_operand() {
            let target = copied_inst.ip_rel_memory_address();
            let is_copy = self.tables.get(&target) == Some(&original_inst.ip_rel_memory_address());
            if original_inst.mnemonic() == Mnemonic::Lea && is_copy {
                expected.set_memory_displacement64(target);
            }
        }
        let lengths = original_inst.len() == copied_inst.len();
        let bytes_equal = self.bytes_equal(at, original_inst, copied_inst);
        if expected == *copied_inst && lengths && bytes_equal {
            Ok(())
        } else {
            Err(DifferenceKind::changed(original_inst, copied_inst))
        }
    }

    /// Whether all bytes are equal except for an IP-relative displacement.
    fn bytes_equal(&self, at: u64, original_inst: &Instruction, copied_inst: &Instruction) -> bool {
        let original = self.module(at).and_then(|module| module.bytes(at, original_inst.len()));
        let copy = self.relayout.constant_bytes(copied_inst.ip(), copied_inst.len());
        let (Some(original), Some(copy)) = (original, copy) else { return false };
        if original.len() != copy.len() {
            return false;
        }
        let mut decoder = Decoder::with_ip(64, original, at, DecoderOptions::NONE);
        let decoded = decoder.decode();
        let offsets = decoder.get_constant_offsets(&decoded);
        let displacement = match original_inst.is_ip_rel_memory_operand() {
            true => {
                offsets.displacement_offset()
                    ..offsets.displacement_offset() + offsets.displacement_size()
            }
            false => 0..0,
        };
        let mut pairs = original.iter().zip(copy).enumerate();
        pairs.all(|(index, (a, b))| displacement.contains(&index) || a == b)
    }

    fn check_tables(&self) -> Result<(), Difference> {
        for table in &self.relayout.tables {
            for index in 0..table.entries {
                let at = (table.original + 4 * index, table.copy + 4 * index);
                let expected = self
                    .module(table.original)
                    .and_then(|module| entry(module, table.original, index));
                let found = entry(self.relayout, table.copy, index);
                let equivalent = expected
                    .zip(found)
                    .is_some_and(|(expected, found)| self.is_equivalent(expected, found));
                if !equivalent {
                    let kind = DifferenceKind::TableEntry { index, expected, found };
                    return Err(self.difference(at.0, at.1, kind));
                }
            }
        }
        Ok(())
    }

    fn check_entries(&self) -> Result<(), Difference> {
        for entry in &self.relayout.entries {
            let fail = |what: &'static str| {
                Err(self.difference(entry.address, entry.copy, DifferenceKind::Other(what)))
            };
            let now = self.module(entry.address).and_then(|module| module.bytes(entry.address, 5));
            if now != Some(&entry.original) {
                return fail("the original bytes of its patch differ from the module");
            }
            let jump = decode(|size| entry.patch.get(..size), entry.address);
            let target = jump.and_then(|jump| direct(&jump, FlowControl::UnconditionalBranch));
            if target != Some(entry.copy) {
                return fail("its patch does not jump to the copy");
            }
            if self.relayout.map.to_copy(entry.address) != Some(entry.copy) {
                return fail("its patch jumps to the copy of another instruction");
            }
        }
        Ok(())
    }

    fn check_virtual_slots(&self) -> Result<(), Difference> {
        for slot in &self.relayout.virtual_slots {
            let fail = |what: &'static str| {
                Err(self.difference(slot.function, slot.copy, DifferenceKind::Other(what)))
            };
            let module = self.module(slot.address);
            if !module.is_some_and(|module| module.is_read_only_after_start(slot.address)) {
                return fail("the slot of a virtual table can be written by the program");
            }
            if self.relayout.map.to_copy(slot.function) != Some(slot.copy) {
                return fail(
                    "the slot of a virtual table refers to the copy of another instruction",
                );
            }
        }
        Ok(())
    }
}

/// Decodes one instruction from all available bytes.
fn decode<'a>(bytes: impl Fn(usize) -> Option<&'a [u8]>, address: u64) -> Option<Instruction> {
    let bytes = (1..=15).rev().find_map(bytes)?;
    let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// The target of a direct branch of the given kind.
fn direct(instruction: &Instruction, flow: FlowControl) -> Option<u64> {
    let matches =
        instruction.flow_control() == flow && instruction.op0_kind() == OpKind::NearBranch64;
    matches.then(|| instruction.near_branch_target())
}

fn entry(memory: &dyn ConstantMemory, table: u64, index: u64) -> Option<u64> {
    let bytes = memory.constant_bytes(table + 4 * index, 4)?;
    let offset = i32::from_le_bytes(bytes.try_into().ok()?);
    Some(table.wrapping_add_signed(i64::from(offset)))
}
