//! Whether a function can be moved.

use std::collections::HashMap;
use std::ops::Range;

use crate::code::{Inst, InstKind, decode};
use crate::code_references::CodeReferences;
use crate::frame::Frame;
use crate::graph::Graph;
use crate::module::Function;
use crate::{Module, Options, RejectReason};

/// Bytes of the jump that replaces the first bytes of a function.
pub(crate) const PATCH: u64 = 5;

/// Functions that look at their return address, to find out who calls or to change it.
const READERS: [&str; 8] = [
    "dlopen",
    "dlmopen",
    "dlsym",
    "dlvsym",
    "mcount",
    "_mcount",
    "__fentry__",
    "__cyg_profile_func_enter",
];

/// Functions that keep their return address for a second return, in memory of the program and some
/// of them in disguise: nobody could tell when a copy that called them is of no use any more.
const SAVERS: [&str; 8] = [
    "setjmp",
    "_setjmp",
    "__setjmp",
    "sigsetjmp",
    "__sigsetjmp",
    "__sigsetjmp_cancel",
    "getcontext",
    "swapcontext",
];

/// A function that can be moved.
#[derive(Debug)]
pub(crate) struct MovableFunction {
    pub(crate) start: u64,
    /// Where the jump to the copy goes.
    pub(crate) patch: u64,
    pub(crate) graph: Graph,
    pub(crate) frame: Frame,
    /// Indices of the jump tables that may be copied.
    pub(crate) tables: Vec<usize>,
}

/// One module, looked at as a whole.
pub(crate) struct Selector<'a> {
    module: &'a Module,
    facts: CodeReferences,
    options: &'a Options,
    /// Whether the code at an address uses its return address as data.
    pops: HashMap<u64, bool>,
}

impl<'a> Selector<'a> {
    pub(crate) fn new(module: &'a Module, options: &'a Options) -> Self {
        Self { module, facts: CodeReferences::of(module), options, pops: HashMap::new() }
    }

    /// Decodes a function and checks everything that could make a copy differ from it.
    pub(crate) fn look(&mut self, function: &Function) -> Result<MovableFunction, RejectReason> {
        let range = function.range();
        self.check_whole(function)?;
        let frame = Frame::read(self.module, function)?;
        let code = decode(self.module, function)?;
        let patch = self.check_code(function, &code)?;
        let landings = frame.exceptions.iter().flat_map(|table| table.landings());
        let mut entered: Vec<u64> = landings.filter(|landing| range.contains(landing)).collect();
        entered.extend_from_slice(self.facts.entered(range.clone()));
        entered.sort_unstable();
        entered.dedup();
        let graph = Graph::new(self.module, code, &entered)?;
        let patched = patch + 1..patch + PATCH;
        let in_patch = (0..graph.blocks.len()).any(|block| patched.contains(&graph.start(block)));
        if in_patch {
            return Err(RejectReason::EntryBranchTarget);
        }
        let tables = (0..graph.tables.len()).filter(|&table| {
            let table = &graph.tables[table];
            self.options.jump_tables
                && crate::tables::may_be_copied(self.module, &graph, table, &entered)
        });
        let tables = tables.collect();
        Ok(MovableFunction { start: function.start, patch, graph, frame, tables })
    }

    /// What can be said without decoding.
    fn check_whole(&self, function: &Function) -> Result<(), RejectReason> {
        let range = function.range();
        let excluded = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        if self.options.exclude.iter().any(excluded) {
            return Err(RejectReason::Excluded);
        }
        if function.linker {
            return Err(RejectReason::LinkerCode);
        }
        if function.frame.is_none() {
            return Err(RejectReason::NoUnwindInfo);
        }
        if function.overlapped {
            return Err(RejectReason::Overlapping);
        }
        if self.module.is_relocated(&range) {
            return Err(RejectReason::RelocatedText);
        }
        if self.module.is_restartable(&range) {
            return Err(RejectReason::RestartableSequence);
        }
        if function.size() < PATCH {
            return Err(RejectReason::TooSmall);
        }
        Ok(())
    }

    /// Checks the instructions; where the patch goes.
    fn check_code(&mut self, function: &Function, code: &[Inst]) -> Result<u64, RejectReason> {
        let marker = [0xf3, 0x0f, 0x1e, 0xfa];
        let marked = self.module.bytes(function.start, 4) == Some(&marker);
        let patch = function.start + if marked { 4 } else { 0 };
        if patch + PATCH > function.end {
            return Err(RejectReason::TooSmall);
        }
        let patched = patch + 1..patch + PATCH;
        let Range { start: lowest, end: highest } = self.module.extent();
        let extent = lowest..=highest;
        for inst in code {
            if self.saves_context(inst) {
                return Err(RejectReason::SavesContext);
            }
            let target = match inst.kind {
                InstKind::Jump(target) | InstKind::Branch(_, target) => Some(target),
                InstKind::Call(target) => {
                    if target != function.start && function.range().contains(&target) {
                        return Err(RejectReason::CallsInside);
                    }
                    if self.uses_return_address(target) {
                        return Err(RejectReason::ReturnAddressUsed);
                    }
                    Some(target)
                }
                InstKind::IndirectCall if self.slot_of_reader(inst) => {
                    return Err(RejectReason::ReturnAddressUsed);
                }
                _ => None,
            };
            let operand = inst.relative.map(|relative| relative.target);
            if [target, operand].iter().flatten().any(|target| !extent.contains(target)) {
                return Err(RejectReason::OutOfReach);
            }
            if matches!(inst.kind, InstKind::Call(_) | InstKind::IndirectCall)
                && patched.contains(&inst.end())
            {
                return Err(RejectReason::EntryReturnAddress);
            }
        }
        if !self.facts.entered(patched.clone()).is_empty() {
            return Err(RejectReason::EntryBranchTarget);
        }
        if self.facts.is_taken(patched.clone()) || self.module.has_pointer_into(patched) {
            return Err(RejectReason::EntryAddressTaken);
        }
        Ok(patch)
    }

    /// Whether it calls one of the savers, or reads the address of one to call it.
    fn saves_context(&self, inst: &Inst) -> bool {
        let slot = match inst.kind {
            InstKind::Call(target) | InstKind::Jump(target) => self.module.stub_slot(target),
            _ => inst.relative.map(|relative| relative.target),
        };
        let name = match (slot, inst.kind) {
            (Some(slot), _) => self.module.slot_name(slot),
            (None, InstKind::Call(target) | InstKind::Jump(target)) => {
                self.module.symbol_at(target)
            }
            _ => None,
        };
        name.is_some_and(|name| SAVERS.contains(&name))
    }

    fn slot_of_reader(&self, inst: &Inst) -> bool {
        inst.relative.is_some_and(|relative| self.is_reader(relative.target))
    }

    fn is_reader(&self, slot: u64) -> bool {
        self.module.slot_name(slot).is_some_and(|name| READERS.contains(&name))
    }

    /// Whether what is called at `target` uses its return address as data.
    fn uses_return_address(&mut self, target: u64) -> bool {
        if let Some(slot) = self.module.stub_slot(target) {
            return self.is_reader(slot);
        }
        if self.module.symbol_at(target).is_some_and(|name| READERS.contains(&name)) {
            return true;
        }
        let module = self.module;
        *self.pops.entry(target).or_insert_with(|| pops_first(module, target))
    }
}

/// Whether the first thing that the code does is to take its return address from the stack.
fn pops_first(module: &Module, target: u64) -> bool {
    use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind, Register};
    // As many bytes as the longest marker and instruction need, less at a segment's end.
    let bytes = (1..=24).rev().find_map(|size| module.bytes(target, size));
    let Some(bytes) = bytes else { return false };
    let mut decoder = Decoder::with_ip(64, bytes, target, DecoderOptions::NONE);
    let mut instruction = decoder.decode();
    if instruction.mnemonic() == Mnemonic::Endbr64 {
        instruction = decoder.decode();
    }
    let reads_top = instruction.memory_base() == Register::RSP
        && instruction.memory_index() == Register::None
        && instruction.memory_displacement64() == 0
        && (0..instruction.op_count()).any(|op| instruction.op_kind(op) == OpKind::Memory);
    instruction.mnemonic() == Mnemonic::Pop
        || (reads_top && !matches!(instruction.mnemonic(), Mnemonic::Or | Mnemonic::Lea))
}
