//! Where a counter can be placed: before an instruction where no flag that it changes is used.

use iced_x86::{Instruction, Mnemonic, OpKind, Register, RflagsBits};

use crate::code::{EdgeKind, Graph, Inst, InstKind, decode_at};
use crate::{EntryPatch, Module};

/// The flags that `inc` changes.
const CHANGED: u32 =
    RflagsBits::OF | RflagsBits::SF | RflagsBits::ZF | RflagsBits::AF | RflagsBits::PF;

/// The first instruction of each block, by its index in the block, before which no flag that a counter
/// changes is used later. `None`: there is none.
///
/// Instructions that the jump at `patch` replaces, and those before it, are executed in the original: a
/// counter is behind them. Calls and returns do not pass flags on, as in the System V ABI.
pub(crate) fn counter_places(module: &Module, graph: &Graph, patch: u64) -> Vec<Option<usize>> {
    let effects: Vec<Effect> =
        graph.instructions.iter().map(|inst| Effect::of(module, inst.address, inst.kind)).collect();
    let mut used_at_start = vec![0; graph.blocks.len()];
    // Backwards, until nothing changes: flags used at the start of a block only ever grow.
    loop {
        let mut changed = false;
        for block in (0..graph.blocks.len()).rev() {
            let at_end = used_at_end(module, graph, block, &used_at_start);
            let range = graph.blocks[block].clone();
            let used = effects[range].iter().rev().fold(at_end, |used, it| it.before(used));
            changed |= used != used_at_start[block];
            used_at_start[block] = used;
        }
        if !changed {
            break;
        }
    }
    let patched = graph.instruction_at(patch).map(|inst| graph.block_of(inst));
    (0..graph.blocks.len())
        .map(|block| {
            // A block without an effect, such as an endless loop that is a single jump, stays one.
            let has_effect = |inst: &Inst| !matches!(inst.kind, InstKind::Nop | InstKind::Jump(_));
            if !graph.code(block).iter().any(has_effect) {
                return None;
            }
            let range = graph.blocks[block].clone();
            let mut used = used_at_end(module, graph, block, &used_at_start);
            let mut first = None;
            for (place, inst) in range.enumerate().rev() {
                used = effects[inst].before(used);
                let is_executed = patched != Some(block)
                    || graph.instructions[inst].address >= patch + EntryPatch::SIZE;
                if used == 0 && is_executed {
                    first = Some(place);
                }
            }
            first
        })
        .collect()
}

fn used_at_end(module: &Module, graph: &Graph, block: usize, at_start: &[u32]) -> u32 {
    let Some(last) = graph.code(block).last() else { return CHANGED };
    let mut has_table = false;
    let mut used = 0;
    for edge in graph.edges_from(block) {
        has_table |= matches!(edge.kind, EdgeKind::Table(_));
        used |= at_start[edge.to];
    }
    match last.kind {
        InstKind::Return => used,
        InstKind::IndirectJump if has_table => used,
        InstKind::IndirectJump => CHANGED,
        InstKind::Jump(target) if !graph.extent().contains(&target) => {
            used | used_elsewhere(module, target)
        }
        InstKind::Branch(_, target) if !graph.extent().contains(&target) => CHANGED,
        kind if !kind.ends() && block + 1 == graph.blocks.len() => CHANGED,
        _ => used,
    }
}

/// The flags used by the code at the target of a jump to another function, as far as its first
/// instructions show.
fn used_elsewhere(module: &Module, target: u64) -> u32 {
    if module.stub_slot(target).is_some() {
        return 0;
    }
    let (mut at, mut unknown) = (target, CHANGED);
    while unknown != 0 {
        let Some(instruction) = decode_at(module, at) else { return CHANGED };
        let effect = Effect::of_instruction(&instruction);
        let continues = instruction.flow_control() == iced_x86::FlowControl::Next;
        if effect.reads & unknown != 0 || !continues {
            return CHANGED;
        }
        unknown &= !effect.writes;
        at = instruction.next_ip();
    }
    0
}

/// What an instruction does with [`CHANGED`].
#[derive(Debug, Clone, Copy)]
struct Effect {
    reads: u32,
    writes: u32,
}

impl Effect {
    fn of(module: &Module, address: u64, kind: InstKind) -> Self {
        match decode_at(module, address) {
            _ if matches!(kind, InstKind::Call(_) | InstKind::IndirectCall) => {
                Self { reads: 0, writes: 0 }
            }
            Some(instruction) => Self::of_instruction(&instruction),
            None => Self { reads: CHANGED, writes: 0 },
        }
    }

    fn of_instruction(instruction: &Instruction) -> Self {
        let reads = instruction.rflags_read() & CHANGED;
        let writes = match may_keep_flags(instruction) {
            true => 0,
            false => instruction.rflags_modified() & CHANGED,
        };
        Self { reads, writes }
    }

    /// The flags used before it, given those used after it.
    fn before(self, after: u32) -> u32 {
        (after & !self.writes) | self.reads
    }
}

/// Whether it changes no flags if a count in a register is 0.
fn may_keep_flags(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    let last = instruction.op_count().saturating_sub(1);
    let by_register = instruction.op_kind(last) == OpKind::Register
        && instruction.op_register(last) == Register::CL;
    let shifts = matches!(
        instruction.mnemonic(),
        M::Shl | M::Sal | M::Shr | M::Sar | M::Rol | M::Ror | M::Rcl | M::Rcr | M::Shld | M::Shrd
    );
    (shifts && by_register) || instruction.has_rep_prefix() || instruction.has_repne_prefix()
}
