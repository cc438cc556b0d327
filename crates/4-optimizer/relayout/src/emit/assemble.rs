//! Instructions of the copy in order, with their sizes and addresses.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use crate::code::{Inst, InstKind, Relative};
use crate::frame::{ExceptionTable, Frame, Site};
use crate::layout::MovedFunction;
use crate::{AddressSpace, Counter, Module, Slot};

/// Alignment of hot functions and loops in bytes. CPUs fetch code in blocks of 16, 32 or 64 bytes.
const ALIGNMENT: u64 = 32;
const COLD_FUNCTION_ALIGNMENT: u64 = 16;
/// Cold code starts on a new page.
const COLD_ALIGNMENT: u64 = 4096;
/// Filler between functions: a trap.
const FILLER: u8 = 0xcc;

#[derive(Debug, Clone, Copy)]
enum BranchTarget {
    /// An original address.
    Original(u64),
    /// The copied instruction with this index.
    Copy(usize),
}

/// How an instruction is written.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// The original bytes, with the relative operand adjusted.
    Copy,
    Elided,
    /// No-operations that align the next instruction; at most this many bytes.
    Padding(u8),
    Branch(u8, BranchTarget),
    Jump(BranchTarget),
    Call(BranchTarget),
    /// A call through the slot that a linkage stub jumps through.
    SlotCall(u64),
    /// A jump through the slot that a linkage stub jumps through.
    SlotJump(u64),
    /// Increments the counter with this index.
    Count(usize),
}

/// An instruction of the copy; one that was elided has size 0.
#[derive(Debug, Clone, Copy)]
struct CopiedInst {
    /// The original instruction; for an added jump, its target; for padding and counters, the next
    /// instruction.
    original: u64,
    /// Length of the original instruction; 0 if there is none.
    length: u8,
    form: Form,
    relative: Option<Relative>,
    size: u8,
    address: u64,
}

impl CopiedInst {
    /// An instruction that the original does not have.
    fn added(original: u64, form: Form) -> Self {
        Self { original, length: 0, form, relative: None, size: 0, address: 0 }
    }

    fn end(&self) -> u64 {
        self.address + u64::from(self.size)
    }

    fn smallest(&self) -> u8 {
        match self.form {
            Form::Branch(_, BranchTarget::Copy(_)) | Form::Jump(BranchTarget::Copy(_)) => 2,
            _ => self.largest(),
        }
    }

    fn largest(&self) -> u8 {
        match self.form {
            Form::Elided => 0,
            Form::Padding(most) => most,
            Form::Jump(_) => 5,
            Form::Branch(..) | Form::SlotCall(_) | Form::SlotJump(_) | Form::Count(_) => 6,
            Form::Copy | Form::Call(_) => self.length,
        }
    }
}

/// The hot or the cold blocks of a function.
#[derive(Debug)]
pub(super) struct Fragment {
    pub(super) function: usize,
    pub(super) cold: bool,
    insts: Range<usize>,
}

/// The code of one module's region.
pub(super) struct Assembly<'a> {
    module: &'a Module,
    bypass: bool,
    insts: Vec<CopiedInst>,
    fragments: Vec<Fragment>,
    /// Index of the first instruction of each block, by original address.
    starts: HashMap<u64, usize>,
    /// Original address of the block that each counter counts.
    counted: Vec<u64>,
    /// Address of the first counter.
    counters: u64,
}

impl<'a> Assembly<'a> {
    /// Empty code. `bypass`: calls of linkage stubs go through the stub's slot.
    pub(super) fn new(module: &'a Module, bypass: bool) -> Self {
        let (insts, fragments, starts) = (Vec::new(), Vec::new(), HashMap::new());
        Self { module, bypass, insts, fragments, starts, counted: Vec::new(), counters: 0 }
    }

    pub(super) fn counters_size(&self) -> u64 {
        self.counted.len() as u64 * Counter::SIZE
    }

    /// Places the counters at an address, and returns them.
    pub(super) fn place_counters(&mut self, address: u64) -> Vec<Counter> {
        self.counters = address;
        let addresses = (address..).step_by(Counter::SIZE as usize);
        let counters = self.counted.iter().zip(addresses);
        counters.map(|(&block, address)| Counter { block, address }).collect()
    }

    pub(super) fn fragments(&self) -> &[Fragment] {
        &self.fragments
    }

    /// Appends the hot or the cold blocks of a function in their order. Blocks in `loops` are aligned.
    pub(super) fn add_fragment(
        &mut self,
        function: usize,
        moved: &MovedFunction,
        loops: &HashSet<usize>,
        cold: bool,
    ) {
        let graph = &moved.movable.graph;
        let order = if cold { &moved.cold } else { &moved.hot };
        let first = self.insts.len();
        for (position, &block) in order.iter().enumerate() {
            let next = order.get(position + 1).map(|&next| graph.start(next));
            if loops.contains(&block) {
                let padding = Form::Padding((ALIGNMENT - 1) as u8);
                self.insts.push(CopiedInst::added(graph.start(block), padding));
            }
            self.starts.insert(graph.start(block), self.insts.len());
            let counter = moved.counters.get(block).copied().flatten();
            self.add_block(graph.code(block), next, counter);
        }
        let insts = first..self.insts.len();
        self.fragments.push(Fragment { function, cold, insts });
    }

    /// `counter`: index of the instruction before which the block is counted.
    fn add_block(&mut self, code: &[Inst], next: Option<u64>, counter: Option<usize>) {
        let (Some(first), Some(last)) = (code.first(), code.last()) else { return };
        let end = last.end();
        for (index, inst) in code.iter().enumerate() {
            if counter == Some(index) {
                self.insts.push(CopiedInst::added(inst.address, Form::Count(self.counted.len())));
                self.counted.push(first.address);
            }
            let form = match inst.kind {
                InstKind::Jump(target) if next == Some(target) => Form::Elided,
                // Inverted, so that the target is the next block.
                InstKind::Branch(condition, target) if next == Some(target) && target != end => {
                    Form::Branch(condition ^ 1, BranchTarget::Original(end))
                }
                _ => self.form(inst),
            };
            let added = CopiedInst::added(inst.address, form);
            let Inst { length, relative, .. } = *inst;
            self.insts.push(CopiedInst { length, relative, ..added });
        }
        let continues = match last.kind {
            InstKind::Branch(_, target) => next != Some(end) && next != Some(target),
            kind => !kind.ends() && next != Some(end),
        };
        if continues {
            self.insts.push(CopiedInst::added(end, Form::Jump(BranchTarget::Original(end))));
        }
    }

    fn form(&self, inst: &Inst) -> Form {
        let slot = |target| if self.bypass { self.module.slot_instead_of(target) } else { None };
        match inst.kind {
            InstKind::Nop => Form::Elided,
            InstKind::Branch(condition, target) => {
                Form::Branch(condition, BranchTarget::Original(target))
            }
            InstKind::Jump(target) => match slot(target) {
                Some(slot) => Form::SlotJump(slot),
                None => Form::Jump(BranchTarget::Original(target)),
            },
            // A call with prefixes belongs to a sequence for thread-local storage.
            InstKind::Call(target) => match slot(target).filter(|_| inst.length == 5) {
                Some(slot) => Form::SlotCall(slot),
                None => Form::Call(BranchTarget::Original(target)),
            },
            _ => Form::Copy,
        }
    }

    pub(super) fn link(&mut self) {
        let starts = &self.starts;
        let redirect = |target: &mut BranchTarget| {
            if let BranchTarget::Original(address) = *target
                && let Some(&inst) = starts.get(&address)
            {
                *target = BranchTarget::Copy(inst);
            }
        };
        for inst in &mut self.insts {
            match &mut inst.form {
                Form::Branch(_, target) | Form::Jump(target) | Form::Call(target) => {
                    redirect(target)
                }
                _ => {}
            }
        }
    }

    /// Replaces calls and jumps through read-only slots by direct ones, if the target is in reach of
    /// a region at `base`. Returns the number of instructions that bypass a stub, directly or through
    /// its slot, and the slots whose content the direct ones rely on.
    pub(super) fn bypass(
        &mut self,
        base: u64,
        address_space: &dyn AddressSpace,
    ) -> (u64, Vec<Slot>) {
        // Well below the reach of a relative address, so that the region's size does not matter.
        let near = |target: u64| target.abs_diff(base) < 0x7000_0000;
        let mut contents = BTreeMap::new();
        let mut count = 0;
        for inst in &mut self.insts {
            let (Form::SlotCall(slot) | Form::SlotJump(slot)) = inst.form else { continue };
            count += 1;
            let content = *contents.entry(slot).or_insert_with(|| {
                let fixed = self.module.is_read_only_after_start(slot);
                let content = if fixed { address_space.read_slot(slot) } else { None };
                content.filter(|&target| near(target))
            });
            let Some(target) = content else { continue };
            let target = match self.starts.get(&target) {
                Some(&start) => BranchTarget::Copy(start),
                None => BranchTarget::Original(target),
            };
            inst.form = match inst.form {
                Form::SlotCall(_) => Form::Call(target),
                _ => Form::Jump(target),
            };
        }
        let relied_on = contents
            .into_iter()
            .filter_map(|(address, content)| Some(Slot { address, content: content? }));
        (count, relied_on.collect())
    }

    /// Gives every instruction its maximum size and an address from `base` on. Returns the end.
    pub(super) fn spread(&mut self, base: u64) -> u64 {
        for inst in &mut self.insts {
            inst.size = inst.largest();
        }
        self.assign_addresses(base, false)
    }

    /// Gives every instruction the smallest possible size and its address. Returns the end.
    pub(super) fn settle(&mut self, base: u64) -> u64 {
        for inst in &mut self.insts {
            inst.size = inst.smallest();
        }
        loop {
            let end = self.assign_addresses(base, true);
            // Terminates, because sizes only grow.
            let mut grown = false;
            for index in 0..self.insts.len() {
                let inst = self.insts[index];
                let (Form::Branch(_, BranchTarget::Copy(target))
                | Form::Jump(BranchTarget::Copy(target))) = inst.form
                else {
                    continue;
                };
                let distance = distance(inst.end(), self.insts[target].address);
                if inst.size == 2 && i8::try_from(distance).is_err() {
                    self.insts[index].size = inst.largest();
                    grown = true;
                }
            }
            if !grown {
                return end;
            }
        }
    }

    /// Gives every instruction its address and, with `fit`, padding its size. Returns the end.
    fn assign_addresses(&mut self, base: u64, fit: bool) -> u64 {
        let mut at = base;
        let mut was_cold = false;
        for fragment in &self.fragments {
            let begins_cold = fragment.cold && !was_cold;
            was_cold = fragment.cold;
            at = at.next_multiple_of(match (begins_cold, fragment.cold) {
                (true, _) => COLD_ALIGNMENT,
                (false, true) => COLD_FUNCTION_ALIGNMENT,
                (false, false) => ALIGNMENT,
            });
            for inst in &mut self.insts[fragment.insts.clone()] {
                if fit && matches!(inst.form, Form::Padding(_)) {
                    inst.size = (at.next_multiple_of(ALIGNMENT) - at) as u8;
                }
                inst.address = at;
                at += u64::from(inst.size);
            }
        }
        at
    }

    /// The address of the copy of a block, given its original address; the original address if there
    /// is no copy.
    pub(super) fn copy_or_original(&self, original: u64) -> u64 {
        self.starts.get(&original).map_or(original, |&inst| self.insts[inst].address)
    }

    pub(super) fn extent(&self, fragment: &Fragment) -> (u64, u64) {
        let insts = &self.insts[fragment.insts.clone()];
        match (insts.first(), insts.last()) {
            (Some(first), Some(last)) => (first.address, last.end()),
            _ => (0, 0),
        }
    }

    /// Addresses and rows of the original's frame description that apply from there.
    pub(super) fn rows(&self, fragment: &Fragment, frame: &Frame) -> Vec<(u64, usize)> {
        let mut rows: Vec<(u64, usize)> = Vec::new();
        for inst in &self.insts[fragment.insts.clone()] {
            let row = frame.row_at(inst.original);
            if inst.size > 0 && rows.last().is_none_or(|last| last.1 != row) {
                rows.push((inst.address, row));
            }
        }
        rows
    }

    /// The sites of an exception table for a fragment.
    pub(super) fn sites(&self, fragment: &Fragment, table: &ExceptionTable) -> Vec<Site> {
        let mut sites: Vec<Site> = Vec::new();
        let mut last = None;
        for inst in &self.insts[fragment.insts.clone()] {
            if inst.size == 0 || inst.length == 0 {
                continue;
            }
            let site = table.site_at(inst.original).map(|site| (site.landing, site.action));
            match (site, sites.last_mut()) {
                (None, _) => {}
                (Some(_), Some(open)) if last == Some(site) => open.end = inst.end(),
                (Some((landing, action)), _) => sites.push(Site {
                    start: inst.address,
                    end: inst.end(),
                    landing: landing.map(|landing| self.copy_or_original(landing)),
                    action,
                }),
            }
            last = Some(site);
        }
        sites
    }

    /// The code from `base` to `end`. `tables`: copies of jump tables, by the original address of the
    /// instruction that loads the table's address. `None`: something is out of reach.
    pub(super) fn write(&self, base: u64, end: u64, tables: &HashMap<u64, u64>) -> Option<Vec<u8>> {
        let mut code = vec![FILLER; usize::try_from(end - base).ok()?];
        for inst in &self.insts {
            let at = usize::try_from(inst.address - base).ok()?;
            let out = code.get_mut(at..at + usize::from(inst.size))?;
            self.write_inst(inst, out, tables)?;
        }
        Some(code)
    }

    fn write_inst(
        &self,
        inst: &CopiedInst,
        out: &mut [u8],
        tables: &HashMap<u64, u64>,
    ) -> Option<()> {
        let address_of = |target: BranchTarget| match target {
            BranchTarget::Original(address) => address,
            BranchTarget::Copy(index) => self.insts[index].address,
        };
        let relative = |target: u64| i32::try_from(distance(inst.end(), target)).ok();
        match inst.form {
            Form::Elided => {}
            Form::Padding(_) => fill_with_nops(out),
            Form::Copy => {
                out.copy_from_slice(self.module.bytes(inst.original, out.len())?);
                if let Some(operand) = inst.relative {
                    let target = tables.get(&inst.original).copied().unwrap_or(operand.target);
                    let field = usize::from(operand.field);
                    let bytes = relative(target)?.to_le_bytes();
                    out.get_mut(field..field + 4)?.copy_from_slice(&bytes);
                }
            }
            Form::Call(target) => {
                if out.len() == usize::from(inst.length) {
                    out.copy_from_slice(self.module.bytes(inst.original, out.len())?);
                }
                put(out, &[], relative(address_of(target))?)?;
            }
            Form::Jump(target) if out.len() == 2 => {
                let distance = i8::try_from(distance(inst.end(), address_of(target))).ok()?;
                out.copy_from_slice(&[0xeb, distance.cast_unsigned()]);
            }
            Form::Jump(target) => put(out, &[0xe9], relative(address_of(target))?)?,
            Form::Branch(condition, target) if out.len() == 2 => {
                let distance = i8::try_from(distance(inst.end(), address_of(target))).ok()?;
                out.copy_from_slice(&[0x70 | condition, distance.cast_unsigned()]);
            }
            Form::Branch(condition, target) => {
                put(out, &[0x0f, 0x80 | condition], relative(address_of(target))?)?;
            }
            Form::SlotCall(slot) => put(out, &[0xff, 0x15], relative(slot)?)?,
            Form::SlotJump(slot) => put(out, &[0xff, 0x25], relative(slot)?)?,
            // inc dword [rip + distance]
            Form::Count(index) => {
                put(out, &[0xff, 0x05], relative(self.counters + index as u64 * Counter::SIZE)?)?;
            }
        }
        Some(())
    }

    /// Appends pairs (original, copy) of all copied instructions, and pairs (copy, original) of all
    /// instructions that exist in the copy.
    pub(super) fn map(&self, pairs: &mut Vec<(u64, u64)>, originals: &mut Vec<(u64, u64)>) {
        for inst in &self.insts {
            if inst.length > 0 {
                pairs.push((inst.original, inst.address));
            }
            if inst.size > 0 {
                originals.push((inst.address, inst.original));
            }
        }
    }
}

/// Fills with as few no-operations as possible, in the forms that Intel and AMD recommend.
fn fill_with_nops(mut out: &mut [u8]) {
    const NOPS: [&[u8]; 9] = [
        &[0x90],
        &[0x66, 0x90],
        &[0x0f, 0x1f, 0x00],
        &[0x0f, 0x1f, 0x40, 0x00],
        &[0x0f, 0x1f, 0x44, 0x00, 0x00],
        &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
        &[0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00],
        &[0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
        &[0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
    ];
    while !out.is_empty() {
        let size = out.len().min(NOPS.len());
        let (now, rest) = out.split_at_mut(size);
        now.copy_from_slice(NOPS[size - 1]);
        out = rest;
    }
}

fn distance(from: u64, to: u64) -> i64 {
    to.wrapping_sub(from).cast_signed()
}

/// Writes an opcode at the start and a distance at the end.
fn put(out: &mut [u8], opcode: &[u8], distance: i32) -> Option<()> {
    let field = out.len().checked_sub(4)?;
    out.get_mut(..opcode.len())?.copy_from_slice(opcode);
    out[field..].copy_from_slice(&distance.to_le_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions, Mnemonic};

    use super::*;

    #[test]
    fn padding_uses_as_few_nops_as_possible() {
        for size in 0..64 {
            let mut padding = vec![FILLER; size];
            fill_with_nops(&mut padding);
            let decoded: Vec<_> = Decoder::new(64, &padding, DecoderOptions::NONE).iter().collect();
            assert!(decoded.iter().all(|inst| inst.mnemonic() == Mnemonic::Nop), "{padding:x?}");
            assert_eq!(decoded.len(), size.div_ceil(9), "{padding:x?}");
        }
    }
}
