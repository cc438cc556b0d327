//! Proof that counters in a copy change nothing that the program sees.
//!
//! A counter is `inc dword [rip + distance]`, six bytes, of memory that belongs to no module. It changes five
//! flags, so no instruction that may be executed next in the original may use one of them before it is
//! written. Calls and returns do not pass flags on, as in the System V ABI; where the code of the module
//! visibly does otherwise, they do.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register, RflagsBits,
};

use super::{decode, direct};
use crate::{Module, Relayout};

/// The flags that `inc` changes.
const FLAGS: u32 =
    RflagsBits::OF | RflagsBits::SF | RflagsBits::ZF | RflagsBits::AF | RflagsBits::PF;
/// Maximum number of instructions to look at. More count as a use.
const MAX_STEPS: usize = 20_000;

/// What is known about counters and flags.
pub(super) struct Counters {
    addresses: HashSet<u64>,
    /// Targets of direct calls after which flags are used.
    flag_results: HashSet<u64>,
    /// Whether the flags are unused at an original address.
    known: RefCell<HashMap<u64, bool>>,
}

impl Counters {
    pub(super) fn new(modules: &[&Module], relayout: &Relayout) -> Self {
        let is_free = |at: u64| {
            let bytes = at..at.saturating_add(4);
            let is_apart = |from: u64, to: u64| bytes.end <= from || to <= bytes.start;
            at.is_multiple_of(4)
                && modules.iter().all(|it| is_apart(it.extent().start, it.extent().end))
                && relayout.regions.iter().all(|it| is_apart(it.range().start, it.range().end))
        };
        let addresses: HashSet<u64> =
            relayout.counters.iter().map(|it| it.address).filter(|at| is_free(*at)).collect();
        let flag_results = match addresses.is_empty() {
            true => HashSet::new(),
            false => modules.iter().flat_map(|module| flag_results(module)).collect(),
        };
        Self { addresses, flag_results, known: RefCell::default() }
    }

    /// Whether an instruction of the copy is a counter.
    pub(super) fn is_counter(&self, instruction: &Instruction) -> bool {
        instruction.code() == Code::Inc_rm32
            && instruction.len() == 6
            && !instruction.has_lock_prefix()
            && instruction.segment_prefix() == Register::None
            && instruction.is_ip_rel_memory_operand()
            && instruction.memory_base() == Register::RIP
            && self.addresses.contains(&instruction.ip_rel_memory_address())
    }

    /// Whether no flag of [`FLAGS`] at an original address is used later.
    pub(super) fn are_flags_unused(&self, modules: &[&Module], address: u64) -> bool {
        if let Some(&known) = self.known.borrow().get(&address) {
            return known;
        }
        let unused = self.search(modules, address);
        self.known.borrow_mut().insert(address, unused);
        unused
    }

    /// Follows all paths until the flags are written.
    fn search(&self, modules: &[&Module], address: u64) -> bool {
        let mut seen: HashMap<(u64, bool), u32> = HashMap::new();
        let mut pending = vec![(address, false, FLAGS)];
        for _ in 0..MAX_STEPS {
            let Some((at, is_callee, mut flags)) = pending.pop() else { return true };
            let before = seen.entry((at, is_callee)).or_default();
            if flags & !*before == 0 {
                continue;
            }
            *before |= flags;
            let Some(module) = modules.iter().find(|it| it.contains(at)) else { return false };
            let instruction = decode(|size| module.bytes(at, size), at);
            let Some(instruction) = instruction else { return false };
            if reads(&instruction) & flags != 0 {
                return false;
            }
            if always_writes(&instruction) {
                flags &= !instruction.rflags_modified();
                if flags == 0 {
                    continue;
                }
            }
            let next = instruction.next_ip();
            let flow = instruction.flow_control();
            match flow {
                // A signal handler may skip a trap.
                FlowControl::Next | FlowControl::Exception | FlowControl::Interrupt => {
                    pending.push((next, is_callee, flags));
                }
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                    let Some(target) = direct(&instruction, flow) else { return false };
                    if module.stub_slot(target).is_none() {
                        pending.push((target, is_callee, flags));
                    }
                    if flow == FlowControl::ConditionalBranch {
                        pending.push((next, is_callee, flags));
                    }
                }
                FlowControl::Call => {
                    let target = direct(&instruction, flow);
                    if let Some(target) = target.filter(|it| module.stub_slot(*it).is_none()) {
                        pending.push((target, true, flags));
                    }
                    pending.push((next, is_callee, flags));
                }
                FlowControl::IndirectCall => pending.push((next, is_callee, flags)),
                // Only uses of flags that are passed to a called function matter.
                _ if is_callee => {}
                FlowControl::Return => {
                    let function = module.function_at(at).map(|function| function.start);
                    if function.is_none_or(|start| self.flag_results.contains(&start)) {
                        return false;
                    }
                }
                _ => return false,
            }
        }
        false
    }
}

/// The flags that an instruction uses. A system call stores them in a register that the program does not
/// use.
fn reads(instruction: &Instruction) -> u32 {
    match instruction.mnemonic() {
        Mnemonic::Syscall => 0,
        _ => instruction.rflags_read(),
    }
}

/// Whether it writes the flags that it modifies also if a count in a register is 0.
fn always_writes(instruction: &Instruction) -> bool {
    let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    let by_cl = (1..instruction.op_count()).any(|operand| {
        instruction.op_kind(operand) == OpKind::Register
            && instruction.op_register(operand) == Register::CL
    });
    let is_logic = matches!(
        instruction.mnemonic(),
        Mnemonic::Add
            | Mnemonic::Sub
            | Mnemonic::Cmp
            | Mnemonic::And
            | Mnemonic::Or
            | Mnemonic::Xor
            | Mnemonic::Test
            | Mnemonic::Adc
            | Mnemonic::Sbb
    );
    !repeats && (!by_cl || is_logic)
}

/// Targets of direct calls after which a flag is used before one is written: functions that return a
/// value in the flags. Also functions that never return, which does not matter.
fn flag_results(module: &Module) -> Vec<u64> {
    let mut found = Vec::new();
    let mut instruction = Instruction::default();
    for function in module.functions() {
        let size = usize::try_from(function.size()).unwrap_or(0);
        let Some(bytes) = module.bytes(function.start, size) else { continue };
        let mut decoder = Decoder::with_ip(64, bytes, function.start, DecoderOptions::NONE);
        let mut called = None;
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                break;
            }
            if let Some(target) = called
                && reads(&instruction) & FLAGS != 0
            {
                found.push(target);
                called = None;
            }
            match instruction.flow_control() {
                FlowControl::Call => called = direct(&instruction, FlowControl::Call),
                FlowControl::Next if instruction.rflags_modified() & FLAGS == 0 => {}
                _ => called = None,
            }
        }
    }
    found
}
