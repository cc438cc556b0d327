//! Selection of functions that can be moved.

use std::collections::HashMap;
use std::ops::Range;

use serde::{Serialize, Serializer};

use crate::code::{EdgeKind, Graph, Inst, InstKind, decode};
use crate::code_references::CodeReferences;
use crate::frame::Frame;
use crate::module::Function;
use crate::{EntryPatch, Module, Options};

/// Functions that use their return address, to identify the caller or to change it.
const RETURN_ADDRESS_READERS: [&str; 8] = [
    "dlopen",
    "dlmopen",
    "dlsym",
    "dlvsym",
    "mcount",
    "_mcount",
    "__fentry__",
    "__cyg_profile_func_enter",
];

/// Functions that save their return address for a second return, in memory of the program and partly
/// encrypted. So it is impossible to tell when a copy that called them can be freed.
const CONTEXT_SAVERS: [&str; 8] = [
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
    /// Address of the jump to the copy.
    pub(crate) patch: u64,
    /// Whether code of the module loads its address.
    pub(crate) address_taken: bool,
    pub(crate) graph: Graph,
    pub(crate) frame: Frame,
    /// Indices of the jump tables to copy.
    pub(crate) tables: Vec<usize>,
}

/// Analysis of one module.
pub(crate) struct Selector<'a> {
    module: &'a Module,
    references: CodeReferences,
    options: &'a Options,
    /// Whether the function at an address uses its return address.
    users: HashMap<u64, bool>,
}

impl<'a> Selector<'a> {
    pub(crate) fn new(module: &'a Module, options: &'a Options) -> Self {
        Self { module, references: CodeReferences::of(module), options, users: HashMap::new() }
    }

    /// Decodes a function and checks everything that could make its copy behave differently.
    pub(crate) fn analyze(&mut self, function: &Function) -> Result<MovableFunction, RejectReason> {
        self.check_whole(function)?;
        let frame = Frame::read(self.module, function)?;
        let code = decode(self.module, function)?;
        let patch = self.check_code(function, &code)?;
        let entered = self.references.all_entered(function.range(), Some(&frame));
        let graph = Graph::new(self.module, code, &entered)?;
        let patched = patch + 1..patch + EntryPatch::SIZE;
        // A block that only follows another one is reached through instructions that are replaced, too.
        let mut targets = graph.edges.iter().filter(|edge| edge.kind != EdgeKind::FallThrough);
        let is_target = targets.any(|edge| patched.contains(&graph.start(edge.to)));
        if is_target || entered.iter().any(|address| patched.contains(address)) {
            return Err(RejectReason::EntryBranchTarget);
        }
        let tables = (0..graph.tables.len()).filter(|&table| {
            let table = &graph.tables[table];
            self.options.jump_tables
                && crate::jump_tables::may_be_copied(self.module, &graph, table, &entered)
        });
        let tables = tables.collect();
        let start = function.start;
        let address_taken = self.references.is_taken(start..start + 1);
        Ok(MovableFunction { start, patch, address_taken, graph, frame, tables })
    }

    /// Checks that need no decoding.
    fn check_whole(&self, function: &Function) -> Result<(), RejectReason> {
        let range = function.range();
        let excluded = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        if self.options.exclude.iter().any(excluded) {
            return Err(RejectReason::Excluded);
        }
        if self.options.unproven.contains(&function.start) {
            return Err(RejectReason::Unproven);
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
        if function.size() < EntryPatch::SIZE {
            return Err(RejectReason::TooSmall);
        }
        Ok(())
    }

    /// Checks the instructions. Returns the address of the patch.
    fn check_code(&mut self, function: &Function, code: &[Inst]) -> Result<u64, RejectReason> {
        // The first instruction stays where it is. If a tracing tool attaches a uprobe to the function,
        // the kernel replaces its first byte by a breakpoint, executes the instruction of the file, and
        // continues behind it: there the jump must be. Also, `endbr64` must be the target of calls.
        let Some(first) = code.first().filter(|inst| !inst.kind.ends()) else {
            return Err(RejectReason::TooSmall);
        };
        let patch = first.end();
        if patch + EntryPatch::SIZE > function.end {
            return Err(RejectReason::TooSmall);
        }
        let patched = patch + 1..patch + EntryPatch::SIZE;
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
                // A call through a slot, or a load of its content for several calls.
                InstKind::IndirectCall | InstKind::Plain if self.refers_to_reader(inst) => {
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
        if self.module.has_static_probe(&(patch..patched.end)) {
            return Err(RejectReason::EntryProbe);
        }
        if !self.references.entered(patched.clone()).is_empty() {
            return Err(RejectReason::EntryBranchTarget);
        }
        if self.references.is_taken(patched.clone()) || self.module.has_pointer_into(patched) {
            return Err(RejectReason::EntryAddressTaken);
        }
        Ok(patch)
    }

    /// Whether it calls one of [`CONTEXT_SAVERS`], or loads the address of one.
    fn saves_context(&self, inst: &Inst) -> bool {
        let name = match inst.kind {
            InstKind::Call(target) | InstKind::Jump(target) => self.module.called_name(target),
            _ => inst.relative.and_then(|relative| self.module.slot_name(relative.target)),
        };
        name.is_some_and(|name| CONTEXT_SAVERS.contains(&name))
    }

    fn refers_to_reader(&self, inst: &Inst) -> bool {
        inst.relative.is_some_and(|relative| self.is_reader(relative.target))
    }

    fn is_reader(&self, slot: u64) -> bool {
        self.module.slot_name(slot).is_some_and(|name| RETURN_ADDRESS_READERS.contains(&name))
    }

    /// Whether the function at `target` uses its return address as data, or ends with a jump to one that does.
    fn uses_return_address(&mut self, target: u64) -> bool {
        if self.is_reader_at(target) {
            return true;
        }
        if self.module.stub_slot(target).is_some() {
            return false;
        }
        if let Some(known) = self.users.get(&target) {
            return *known;
        }
        let uses = pops_first(self.module, target)
            || match tail_jump(self.module, target) {
                Some(TailJump::To(target)) => self.is_reader_at(target),
                Some(TailJump::Through(slot)) => self.is_reader(slot),
                None => false,
            };
        self.users.insert(target, uses);
        uses
    }

    /// Whether one of [`RETURN_ADDRESS_READERS`] is at an address, or its stub.
    fn is_reader_at(&self, address: u64) -> bool {
        let name = self.module.called_name(address);
        name.is_some_and(|name| RETURN_ADDRESS_READERS.contains(&name))
    }
}

/// The jump at the end of a function without branches, calls and returns.
enum TailJump {
    To(u64),
    /// Through a slot, to what the loader stored there.
    Through(u64),
}

/// Maximum length of a function that is searched for a [`TailJump`], in bytes.
const MAX_WRAPPER: usize = 128;

fn tail_jump(module: &Module, target: u64) -> Option<TailJump> {
    use iced_x86::{Decoder, DecoderOptions, FlowControl};
    let bytes = (1..=MAX_WRAPPER).rev().find_map(|size| module.bytes(target, size))?;
    let mut decoder = Decoder::with_ip(64, bytes, target, DecoderOptions::NONE);
    while decoder.can_decode() {
        let instruction = decoder.decode();
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::UnconditionalBranch => {
                return Some(TailJump::To(instruction.near_branch_target()));
            }
            FlowControl::IndirectBranch if instruction.is_ip_rel_memory_operand() => {
                return Some(TailJump::Through(instruction.ip_rel_memory_address()));
            }
            _ => return None,
        }
    }
    None
}

/// Whether the first instruction of a function reads its return address from the stack.
fn pops_first(module: &Module, target: u64) -> bool {
    use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind, Register};
    // Enough for `endbr64` and the longest instruction; fewer at the end of a segment.
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

/// Why a function is not moved. Serialized as its [`name`](Self::name).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RejectReason {
    /// Has no space for the jump to the copy after its first instruction.
    TooSmall,
    /// Contains bytes that are not an instruction.
    Undecodable,
    /// Has a branch into the middle of an instruction, or overlaps another function.
    Overlapping,
    /// Uses hardware transactions, which abort more often when their code is split.
    Transaction,
    /// Contains a system call instruction. Kernels, debuggers and C libraries may identify it by
    /// address, and there is little to gain.
    SystemCall,
    /// Contains `loop` or `jrcxz`, which only reach 128 bytes.
    ShortBranch,
    /// Calls an address inside itself, to use the return address as data.
    CallsInside,
    /// Calls a function that uses its return address as data (`dlsym`, or one that pops it).
    ReturnAddressUsed,
    /// Calls a function that saves its return address for a second return (`setjmp`, `getcontext`):
    /// the copy could never be freed.
    SavesContext,
    /// A branch targets the bytes that the jump to the copy would replace.
    EntryBranchTarget,
    /// A call returns into the bytes that the jump to the copy would replace.
    EntryReturnAddress,
    /// An address inside the bytes to replace is stored in data, or may be the target of an indirect
    /// jump.
    EntryAddressTaken,
    /// A static probe (USDT) is in the bytes that the jump to the copy would replace: a tracing tool would change the
    /// jump.
    EntryProbe,
    /// Has no frame description, so that its end is not known for certain.
    NoUnwindInfo,
    /// Has a frame description that cannot be copied.
    BadUnwindInfo,
    /// Is the trampoline that signal handlers return through.
    SignalFrame,
    /// Contains a restartable sequence, which the kernel identifies by address.
    RestartableSequence,
    /// The loader modifies its code.
    RelocatedText,
    /// Was generated by the linker (PLT, `.init`, `.fini`).
    LinkerCode,
    /// Refers to an address more than 2 GiB away from the new code.
    OutOfReach,
    /// The limit for new code was reached.
    OverBudget,
    /// Is in an excluded address range.
    Excluded,
    /// The equivalence of its copy could not be proven.
    Unproven,
}

impl RejectReason {
    /// Name in reports and JSON. Stable.
    pub fn name(self) -> &'static str {
        match self {
            Self::TooSmall => "too_small",
            Self::Undecodable => "undecodable",
            Self::Overlapping => "overlapping",
            Self::Transaction => "transaction",
            Self::SystemCall => "system_call",
            Self::ShortBranch => "short_branch",
            Self::CallsInside => "calls_inside",
            Self::ReturnAddressUsed => "return_address_used",
            Self::SavesContext => "saves_context",
            Self::EntryBranchTarget => "entry_branch_target",
            Self::EntryReturnAddress => "entry_return_address",
            Self::EntryAddressTaken => "entry_address_taken",
            Self::EntryProbe => "entry_probe",
            Self::NoUnwindInfo => "no_unwind_info",
            Self::BadUnwindInfo => "bad_unwind_info",
            Self::SignalFrame => "signal_frame",
            Self::RestartableSequence => "restartable_sequence",
            Self::RelocatedText => "relocated_text",
            Self::LinkerCode => "linker_code",
            Self::OutOfReach => "out_of_reach",
            Self::OverBudget => "over_budget",
            Self::Excluded => "excluded",
            Self::Unproven => "unproven",
        }
    }
}

impl Serialize for RejectReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
