//! Whether a jump table can be copied.

use std::collections::BTreeSet;

use iced_x86::{InstructionInfoFactory, Mnemonic, OpKind};

use crate::Module;
use crate::code::{Inst, InstKind};
use crate::graph::{EdgeKind, Graph};
use crate::jump_tables::{JumpTable, full, reads, writes};

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
    let guarded_from = graph.instructions[..graph.blocks[block].instructions.start]
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
