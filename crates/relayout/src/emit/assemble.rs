//! Pieces of code in order, their sizes and addresses.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use crate::code::{Inst, InstKind, Relative};
use crate::exceptions::{ExceptionTable, Site};
use crate::frame::Frame;
use crate::graph::Graph;
use crate::{AddressSpace, Module, Slot};

/// Hot functions and loops begin at multiples of this: CPUs fetch code in such pieces.
const ALIGNMENT: u64 = 32;
/// Cold functions do at multiples of this.
const COLD_FUNCTIONS: u64 = 16;
/// Cold code begins on a page of its own.
const COLD_ALIGNMENT: u64 = 4096;
/// What fills the gaps between functions: a trap.
const FILLER: u8 = 0xcc;

/// Where a direct branch goes.
#[derive(Debug, Clone, Copy)]
enum BranchTarget {
    /// To an original address.
    Original(u64),
    /// To the piece with this index.
    CopiedInst(usize),
}

/// How a piece is written.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// The instruction's bytes, with its relative operand corrected.
    Copy,
    /// Nothing.
    Elided,
    /// As many no-operations as it takes to begin what follows at a multiple of [`ALIGNMENT`].
    Padding,
    Branch(u8, BranchTarget),
    Jump(BranchTarget),
    Call(BranchTarget),
    /// A call through the slot that a stub jumps through.
    SlotCall(u64),
    /// A jump through the slot that a stub jumps through.
    SlotJump(u64),
}

/// One instruction of the copy, or the place of one that is not needed.
#[derive(Debug, Clone, Copy)]
struct CopiedInst {
    /// The instruction that it stands for; for an added jump, the one that it goes to; for padding,
    /// the one behind it.
    original: u64,
    /// Bytes of the original instruction; 0 for what was added.
    length: u8,
    form: Form,
    relative: Option<Relative>,
    size: u8,
    address: u64,
}

impl CopiedInst {
    fn end(&self) -> u64 {
        self.address + u64::from(self.size)
    }

    /// The least bytes it may take.
    fn smallest(&self) -> u8 {
        match self.form {
            Form::Branch(_, BranchTarget::CopiedInst(_))
            | Form::Jump(BranchTarget::CopiedInst(_)) => 2,
            _ => self.largest(),
        }
    }

    /// The bytes it takes when its goal is far away.
    fn largest(&self) -> u8 {
        match self.form {
            Form::Elided => 0,
            Form::Padding => (ALIGNMENT - 1) as u8,
            Form::Jump(_) => 5,
            Form::Branch(..) | Form::SlotCall(_) | Form::SlotJump(_) => 6,
            Form::Copy | Form::Call(_) => self.length,
        }
    }
}

/// A function's hot or cold blocks.
#[derive(Debug)]
pub(super) struct Fragment {
    pub(super) function: usize,
    pub(super) cold: bool,
    pieces: Range<usize>,
}

/// All code of one module's region.
pub(super) struct Assembly<'a> {
    module: &'a Module,
    bypass: bool,
    pieces: Vec<CopiedInst>,
    fragments: Vec<Fragment>,
    /// Pieces by the original address of the block that begins with them.
    starts: HashMap<u64, usize>,
}

impl<'a> Assembly<'a> {
    /// Nothing yet. With `bypass`, calls of stubs go through the stub's slot.
    pub(super) fn new(module: &'a Module, bypass: bool) -> Self {
        let (pieces, fragments, starts) = (Vec::new(), Vec::new(), HashMap::new());
        Self { module, bypass, pieces, fragments, starts }
    }

    pub(super) fn fragments(&self) -> &[Fragment] {
        &self.fragments
    }

    /// Appends blocks of a function in the given order; those in `loops` begin at multiples of
    /// [`ALIGNMENT`].
    pub(super) fn add_fragment(
        &mut self,
        function: usize,
        graph: &Graph,
        order: &[usize],
        loops: &HashSet<usize>,
        cold: bool,
    ) {
        let first = self.pieces.len();
        for (position, &block) in order.iter().enumerate() {
            let next = order.get(position + 1).map(|&next| graph.start(next));
            if loops.contains(&block) {
                self.pieces.push(CopiedInst {
                    original: graph.start(block),
                    length: 0,
                    form: Form::Padding,
                    relative: None,
                    size: 0,
                    address: 0,
                });
            }
            self.starts.insert(graph.start(block), self.pieces.len());
            self.add_block(graph.code(block), next);
        }
        let pieces = first..self.pieces.len();
        self.fragments.push(Fragment { function, cold, pieces });
    }

    fn add_block(&mut self, code: &[Inst], next: Option<u64>) {
        let Some(last) = code.last() else { return };
        let behind = last.end();
        for inst in code {
            let form = match inst.kind {
                InstKind::Jump(target) if next == Some(target) => Form::Elided,
                // The other way round, so that the target is what comes next.
                InstKind::Branch(condition, target) if next == Some(target) && target != behind => {
                    Form::Branch(condition ^ 1, BranchTarget::Original(behind))
                }
                _ => self.form(inst),
            };
            self.pieces.push(CopiedInst {
                original: inst.address,
                length: inst.length,
                form,
                relative: inst.relative,
                size: 0,
                address: 0,
            });
        }
        let goes_on = match last.kind {
            InstKind::Branch(_, target) => next != Some(behind) && next != Some(target),
            kind => !kind.ends() && next != Some(behind),
        };
        if goes_on {
            self.pieces.push(CopiedInst {
                original: behind,
                length: 0,
                form: Form::Jump(BranchTarget::Original(behind)),
                relative: None,
                size: 0,
                address: 0,
            });
        }
    }

    fn form(&self, inst: &Inst) -> Form {
        let slot = |target| if self.bypass { self.module.stub_slot(target) } else { None };
        match inst.kind {
            InstKind::Nop => Form::Elided,
            InstKind::Branch(condition, target) => {
                Form::Branch(condition, BranchTarget::Original(target))
            }
            InstKind::Jump(target) => match slot(target) {
                Some(slot) => Form::SlotJump(slot),
                None => Form::Jump(BranchTarget::Original(target)),
            },
            // A call with padding in front belongs to a sequence for thread-local storage.
            InstKind::Call(target) => match slot(target).filter(|_| inst.length == 5) {
                Some(slot) => Form::SlotCall(slot),
                None => Form::Call(BranchTarget::Original(target)),
            },
            _ => Form::Copy,
        }
    }

    /// Leads branches to copies where there are copies.
    pub(super) fn link(&mut self) {
        let starts = &self.starts;
        let nearer = |goal: &mut BranchTarget| {
            if let BranchTarget::Original(address) = *goal
                && let Some(&piece) = starts.get(&address)
            {
                *goal = BranchTarget::CopiedInst(piece);
            }
        };
        for piece in &mut self.pieces {
            match &mut piece.form {
                Form::Branch(_, goal) | Form::Jump(goal) | Form::Call(goal) => nearer(goal),
                _ => {}
            }
        }
    }

    /// Calls and jumps straight to what read-only slots hold, where that is near enough for a
    /// region at `base`. How many instructions no longer go through a stub, slots included, and
    /// what they rely on.
    pub(super) fn bypass(
        &mut self,
        base: u64,
        address_space: &dyn AddressSpace,
    ) -> (u64, Vec<Slot>) {
        // Far less than what a relative address reaches, so that the region's size is no matter.
        let near = |target: u64| target.abs_diff(base) < 0x7000_0000;
        let mut contents = BTreeMap::new();
        let mut count = 0;
        for piece in &mut self.pieces {
            let (Form::SlotCall(slot) | Form::SlotJump(slot)) = piece.form else { continue };
            count += 1;
            let content = *contents.entry(slot).or_insert_with(|| {
                let fixed = self.module.is_read_only_after_start(slot);
                let content = if fixed { address_space.read_slot(slot) } else { None };
                content.filter(|&target| near(target))
            });
            let Some(target) = content else { continue };
            let goal = match self.starts.get(&target) {
                Some(&start) => BranchTarget::CopiedInst(start),
                None => BranchTarget::Original(target),
            };
            piece.form = match piece.form {
                Form::SlotCall(_) => Form::Call(goal),
                _ => Form::Jump(goal),
            };
        }
        let relied_on = contents
            .into_iter()
            .filter_map(|(address, content)| Some(Slot { address, content: content? }));
        (count, relied_on.collect())
    }

    /// Gives every piece its largest size and an address from `base` on; the end of the code.
    pub(super) fn spread(&mut self, base: u64) -> u64 {
        for piece in &mut self.pieces {
            piece.size = piece.largest();
        }
        self.place(base, false)
    }

    /// Gives every piece the smallest size that works and its address; the end of the code.
    pub(super) fn settle(&mut self, base: u64) -> u64 {
        for piece in &mut self.pieces {
            piece.size = piece.smallest();
        }
        loop {
            let end = self.place(base, true);
            // Pieces only grow, so this ends.
            let mut grown = false;
            for index in 0..self.pieces.len() {
                let piece = self.pieces[index];
                let (Form::Branch(_, BranchTarget::CopiedInst(goal))
                | Form::Jump(BranchTarget::CopiedInst(goal))) = piece.form
                else {
                    continue;
                };
                let distance = distance(piece.end(), self.pieces[goal].address);
                if piece.size == 2 && i8::try_from(distance).is_err() {
                    self.pieces[index].size = piece.largest();
                    grown = true;
                }
            }
            if !grown {
                return end;
            }
        }
    }

    /// Gives every piece its address; with `fit`, padding its size.
    fn place(&mut self, base: u64, fit: bool) -> u64 {
        let mut at = base;
        let mut was_cold = false;
        for fragment in &self.fragments {
            let begins_cold = fragment.cold && !was_cold;
            was_cold = fragment.cold;
            at = at.next_multiple_of(match (begins_cold, fragment.cold) {
                (true, _) => COLD_ALIGNMENT,
                (false, true) => COLD_FUNCTIONS,
                (false, false) => ALIGNMENT,
            });
            for piece in &mut self.pieces[fragment.pieces.clone()] {
                if fit && matches!(piece.form, Form::Padding) {
                    piece.size = (at.next_multiple_of(ALIGNMENT) - at) as u8;
                }
                piece.address = at;
                at += u64::from(piece.size);
            }
        }
        at
    }

    /// The address that stands for an original one that a block begins with: its copy's, or
    /// itself.
    pub(super) fn place_of(&self, original: u64) -> u64 {
        self.starts.get(&original).map_or(original, |&piece| self.pieces[piece].address)
    }

    /// First address of a fragment and the one behind it.
    pub(super) fn extent(&self, fragment: &Fragment) -> (u64, u64) {
        let pieces = &self.pieces[fragment.pieces.clone()];
        match (pieces.first(), pieces.last()) {
            (Some(first), Some(last)) => (first.address, last.end()),
            _ => (0, 0),
        }
    }

    /// Where which row of the original's frame description begins to hold.
    pub(super) fn rows(&self, fragment: &Fragment, frame: &Frame) -> Vec<(u64, usize)> {
        let mut rows: Vec<(u64, usize)> = Vec::new();
        for piece in &self.pieces[fragment.pieces.clone()] {
            let row = frame.row_at(piece.original);
            if piece.size > 0 && rows.last().is_none_or(|last| last.1 != row) {
                rows.push((piece.address, row));
            }
        }
        rows
    }

    /// The exception table's sites for a fragment.
    pub(super) fn sites(&self, fragment: &Fragment, table: &ExceptionTable) -> Vec<Site> {
        let mut sites: Vec<Site> = Vec::new();
        let mut last = None;
        for piece in &self.pieces[fragment.pieces.clone()] {
            if piece.size == 0 || piece.length == 0 {
                continue;
            }
            let site = table.site_at(piece.original).map(|site| (site.landing, site.action));
            match (site, sites.last_mut()) {
                (None, _) => {}
                (Some(_), Some(open)) if last == Some(site) => open.end = piece.end(),
                (Some((landing, action)), _) => sites.push(Site {
                    start: piece.address,
                    end: piece.end(),
                    landing: landing.map(|landing| self.place_of(landing)),
                    action,
                }),
            }
            last = Some(site);
        }
        sites
    }

    /// The code from `base` to `end`. `tables`: what takes the address of a copied jump table, by
    /// original address, and where that copy is. `None`: something is out of reach.
    pub(super) fn write(&self, base: u64, end: u64, tables: &HashMap<u64, u64>) -> Option<Vec<u8>> {
        let mut code = vec![FILLER; usize::try_from(end - base).ok()?];
        for piece in &self.pieces {
            let at = usize::try_from(piece.address - base).ok()?;
            let out = code.get_mut(at..at + usize::from(piece.size))?;
            self.write_piece(piece, out, tables)?;
        }
        Some(code)
    }

    fn write_piece(
        &self,
        piece: &CopiedInst,
        out: &mut [u8],
        tables: &HashMap<u64, u64>,
    ) -> Option<()> {
        let goal = |goal: BranchTarget| match goal {
            BranchTarget::Original(address) => address,
            BranchTarget::CopiedInst(index) => self.pieces[index].address,
        };
        let relative = |target: u64| i32::try_from(distance(piece.end(), target)).ok();
        match piece.form {
            Form::Elided => {}
            Form::Padding => fill_with_nops(out),
            Form::Copy => {
                out.copy_from_slice(self.module.bytes(piece.original, out.len())?);
                if let Some(operand) = piece.relative {
                    let target = tables.get(&piece.original).copied().unwrap_or(operand.target);
                    let field = usize::from(operand.field);
                    let bytes = relative(target)?.to_le_bytes();
                    out.get_mut(field..field + 4)?.copy_from_slice(&bytes);
                }
            }
            Form::Call(target) => {
                if out.len() == usize::from(piece.length) {
                    out.copy_from_slice(self.module.bytes(piece.original, out.len())?);
                }
                put(out, &[], relative(goal(target))?)?;
            }
            Form::Jump(target) if out.len() == 2 => {
                let distance = i8::try_from(distance(piece.end(), goal(target))).ok()?;
                out.copy_from_slice(&[0xeb, distance.cast_unsigned()]);
            }
            Form::Jump(target) => put(out, &[0xe9], relative(goal(target))?)?,
            Form::Branch(condition, target) if out.len() == 2 => {
                let distance = i8::try_from(distance(piece.end(), goal(target))).ok()?;
                out.copy_from_slice(&[0x70 | condition, distance.cast_unsigned()]);
            }
            Form::Branch(condition, target) => {
                put(out, &[0x0f, 0x80 | condition], relative(goal(target))?)?;
            }
            Form::SlotCall(slot) => put(out, &[0xff, 0x15], relative(slot)?)?,
            Form::SlotJump(slot) => put(out, &[0xff, 0x25], relative(slot)?)?,
        }
        Some(())
    }

    /// Appends what stands for what: pairs (original, copy) of all instructions, and (copy,
    /// original) of everything that has bytes.
    pub(super) fn map(&self, pairs: &mut Vec<(u64, u64)>, originals: &mut Vec<(u64, u64)>) {
        for piece in &self.pieces {
            if piece.length > 0 {
                pairs.push((piece.original, piece.address));
            }
            if piece.size > 0 {
                originals.push((piece.address, piece.original));
            }
        }
    }
}

/// Fills with as few no-operations as possible: the forms that both makers of such CPUs recommend.
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

/// Writes an opcode at the front and a distance at the end.
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
    fn padding_is_made_of_few_no_operations() {
        for size in 0..ALIGNMENT as usize {
            let mut padding = vec![FILLER; size];
            fill_with_nops(&mut padding);
            let decoded: Vec<_> = Decoder::new(64, &padding, DecoderOptions::NONE).iter().collect();
            assert!(decoded.iter().all(|inst| inst.mnemonic() == Mnemonic::Nop), "{padding:x?}");
            assert_eq!(decoded.len(), size.div_ceil(9), "{padding:x?}");
        }
    }
}
