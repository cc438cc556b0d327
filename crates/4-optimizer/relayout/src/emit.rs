//! Writing the copies of each module's functions to their new addresses.

mod assemble;

use std::collections::{HashMap, HashSet};

use assemble::Assembly;
use gimli::write::{
    Address, CallFrameInstruction, CieId, CommonInformationEntry, EhFrame, EndianVec,
    FrameDescriptionEntry, FrameTable,
};
use gimli::{DW_EH_PE_absptr, DW_EH_PE_indirect, DW_EH_PE_pcrel, DW_EH_PE_sdata4, DwEhPe};

use crate::frame::{Frame, FrameState};
use crate::layout::MovedFunction;
use crate::{
    AddressSpace, FrameSection, Module, Options, Region, Relayout, Symbol, TableCopy, layout,
};

pub(crate) const PAGE: u64 = 4096;

/// The emitted code and data of all modules up to now.
#[derive(Debug, Default)]
pub(crate) struct EmittedCode {
    /// Without its map, which is made of all pairs at the end.
    pub(crate) layout: Relayout,
    /// Original address and copy address of every copied instruction.
    pub(crate) pairs: Vec<(u64, u64)>,
    /// Copy address and original address of all emitted instructions.
    pub(crate) originals: Vec<(u64, u64)>,
}

/// The copies of one module's functions, before they have addresses.
pub(crate) struct Emitter<'a> {
    module: &'a Module,
    moved: &'a [MovedFunction],
    assembly: Assembly<'a>,
}

impl<'a> Emitter<'a> {
    /// Prepares copies of `moved` in the given order.
    pub(crate) fn new(module: &'a Module, moved: &'a [MovedFunction], options: &Options) -> Self {
        let mut assembly = Assembly::new(module, options.bypass_plt);
        for (function, moved) in moved.iter().enumerate() {
            let loops = match options.align_loops {
                true => layout::loops(&moved.movable.graph, &moved.flow, &moved.hot),
                false => HashSet::new(),
            };
            assembly.add_fragment(function, moved, &loops, false);
        }
        for (function, moved) in moved.iter().enumerate() {
            if !moved.cold.is_empty() {
                let loops = HashSet::new();
                assembly.add_fragment(function, moved, &loops, true);
            }
        }
        assembly.link();
        Self { module, moved, assembly }
    }

    /// An upper limit for the size of all regions in bytes. `None`: something is out of reach.
    pub(crate) fn size_limit(&mut self) -> Option<u64> {
        // Unwind information grows with the code, so the largest code has the largest.
        let base = self.module.extent().end.next_multiple_of(PAGE);
        let data_start = self.assembly.spread(base).next_multiple_of(PAGE);
        let (_, mut data) = self.write_tables(data_start, &mut Relayout::default());
        self.write_frames(data_start, &mut data, &mut Relayout::default())?;
        Some(data_start - base + (data.len() as u64).next_multiple_of(PAGE))
    }

    pub(crate) fn counters_size(&self) -> u64 {
        self.assembly.counters_size()
    }

    /// Appends the region that starts at `base`, with counters at `counters`. `None`: something is out
    /// of reach.
    pub(crate) fn write(
        mut self,
        base: u64,
        counters: u64,
        address_space: &dyn AddressSpace,
        emitted: &mut EmittedCode,
    ) -> Option<()> {
        let layout = &mut emitted.layout;
        layout.counters.extend(self.assembly.place_counters(counters));
        let (stubs_bypassed, slots) = self.assembly.bypass(base, address_space);
        layout.statistics.stubs_bypassed += stubs_bypassed;
        layout.slots.extend(slots);
        let data_start = self.assembly.settle(base).next_multiple_of(PAGE);
        let (copied, mut data) = self.write_tables(data_start, layout);
        let code = self.assembly.write(base, data_start, &copied)?;
        self.write_frames(data_start, &mut data, layout)?;
        layout.statistics.data_bytes += data.len() as u64;
        data.resize(data.len().next_multiple_of(PAGE as usize), 0);
        self.name_fragments(layout);
        layout.regions.push(Region { address: base, bytes: code });
        layout.regions.push(Region { address: data_start, bytes: data });
        self.assembly.map(&mut emitted.pairs, &mut emitted.originals);
        Some(())
    }

    fn name_fragments(&self, layout: &mut Relayout) {
        let statistics = &mut layout.statistics;
        for fragment in self.assembly.fragments() {
            let (start, end) = self.assembly.extent(fragment);
            let original = self.moved[fragment.function].movable.start;
            let suffix = if fragment.cold { ".relaid.cold" } else { ".relaid" };
            let name = self.module.name_at(original) + suffix;
            let size = end - start;
            layout.symbols.push(Symbol { address: start, size, name, original });
            match fragment.cold {
                true => statistics.cold_bytes += size,
                false => statistics.hot_bytes += size,
            }
        }
    }

    /// Copies jump tables. Returns the address of each copy by the original address of the
    /// instruction that loads the table's address, and the data.
    fn write_tables(&self, start: u64, layout: &mut Relayout) -> (HashMap<u64, u64>, Vec<u8>) {
        let mut copied = HashMap::new();
        let mut data = Vec::new();
        for moved in self.moved {
            for &table in &moved.movable.tables {
                let table = &moved.movable.graph.tables[table];
                let copy = start + data.len() as u64;
                for &target in &table.targets {
                    let distance = self.assembly.copy_or_original(target).wrapping_sub(copy) as u32;
                    data.extend_from_slice(&distance.to_le_bytes());
                }
                copied.insert(moved.movable.graph.instructions[table.lea].address, copy);
                let entries = table.targets.len() as u64;
                layout.tables.push(TableCopy { original: table.address, copy, entries });
            }
        }
        (copied, data)
    }

    fn write_frames(&self, start: u64, data: &mut Vec<u8>, layout: &mut Relayout) -> Option<()> {
        // Exception tables come first, because frame descriptions point to them.
        let mut exceptions = Vec::new();
        for fragment in self.assembly.fragments() {
            let table = self.moved[fragment.function].movable.frame.exceptions.as_ref();
            exceptions.push(table.map(|_| start + data.len() as u64));
            if let Some(table) = table {
                let sites = self.assembly.sites(fragment, table);
                let (function, _) = self.assembly.extent(fragment);
                data.extend_from_slice(&table.encode(function, &sites)?);
            }
        }
        data.resize(data.len().next_multiple_of(8), 0);
        let address = start + data.len() as u64;
        let mut writer = Writer::new(address);
        for (fragment, exceptions) in self.assembly.fragments().iter().zip(exceptions) {
            let frame = &self.moved[fragment.function].movable.frame;
            let rows = self.assembly.rows(fragment, frame);
            let (start, end) = self.assembly.extent(fragment);
            writer.add(&FrameFragment { start, end, frame, exceptions, rows: &rows })?;
        }
        let section = writer.finish()?;
        let size = section.len() as u64;
        layout.frames.push(FrameSection { address, size });
        data.extend_from_slice(&section);
        Some(())
    }
}

/// Pointers relative to their own position, 4 bytes.
const PC_RELATIVE_4: DwEhPe = DwEhPe(DW_EH_PE_pcrel.0 | DW_EH_PE_sdata4.0);
const ENCODING: gimli::Encoding =
    gimli::Encoding { format: gimli::Format::Dwarf32, version: 1, address_size: 8 };

/// An `.eh_frame` section at a known address.
pub(crate) struct Writer {
    address: u64,
    table: FrameTable,
}

/// A contiguous piece of copied code and its frame description.
pub(crate) struct FrameFragment<'a> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) frame: &'a Frame,
    /// Address of the fragment's exception table.
    pub(crate) exceptions: Option<u64>,
    /// First address in the copy and row of the original's description, by address.
    pub(crate) rows: &'a [(u64, usize)],
}

impl Writer {
    /// An empty section that will be at `address`.
    pub(crate) fn new(address: u64) -> Self {
        Self { address, table: FrameTable::default() }
    }

    /// An address as gimli takes it: it computes relative pointers for a section at address 0.
    fn relative(&self, target: u64) -> Address {
        Address::Constant(target.wrapping_sub(self.address))
    }

    /// Adds a description. `None`: the fragment is too large.
    pub(crate) fn add(&mut self, fragment: &FrameFragment) -> Option<()> {
        let cie = self.cie(fragment.frame, fragment.exceptions.is_some());
        let size = u32::try_from(fragment.end - fragment.start).ok()?;
        let mut entry = FrameDescriptionEntry::new(self.relative(fragment.start), size);
        entry.lsda = fragment.exceptions.map(|table| self.relative(table));
        let mut state = &fragment.frame.initial;
        for &(address, row) in fragment.rows {
            let next = fragment.frame.state(row);
            let offset = u32::try_from(address - fragment.start).ok()?;
            change(state, next, |instruction| entry.add_instruction(offset, instruction));
            state = next;
        }
        self.table.add_fde(cie, entry);
        Some(())
    }

    fn cie(&mut self, frame: &Frame, has_exceptions: bool) -> CieId {
        let alignment = frame.data_alignment;
        let mut cie = CommonInformationEntry::new(ENCODING, 1, alignment, frame.return_register);
        cie.fde_address_encoding = PC_RELATIVE_4;
        cie.lsda_encoding = has_exceptions.then_some(PC_RELATIVE_4);
        cie.personality = frame.personality.map(|pointer| {
            let indirect = if pointer.indirect { DW_EH_PE_indirect.0 } else { 0 };
            (DwEhPe(DW_EH_PE_absptr.0 | indirect), Address::Constant(pointer.address))
        });
        change(&FrameState::default(), &frame.initial, |instruction| {
            cie.add_instruction(instruction);
        });
        self.table.add_cie(cie)
    }

    /// The section, with its terminator. `None`: a pointer does not fit into 4 bytes.
    pub(crate) fn finish(self) -> Option<Vec<u8>> {
        let mut section = EhFrame::from(EndianVec::new(gimli::LittleEndian));
        self.table.write_eh_frame(&mut section).ok()?;
        let mut bytes = section.0.into_vec();
        bytes.extend_from_slice(&[0; 4]);
        Some(bytes)
    }
}

/// The instructions that turn one state into another.
fn change(from: &FrameState, to: &FrameState, mut add: impl FnMut(CallFrameInstruction)) {
    use CallFrameInstruction::{ArgsSize, Cfa, CfaOffset, CfaRegister, Restore};
    if from.cfa != to.cfa {
        match (&from.cfa, &to.cfa) {
            (Some(Cfa(before, _)), Some(Cfa(after, offset))) if before == after && *offset >= 0 => {
                add(CfaOffset(*offset));
            }
            (Some(Cfa(_, before)), Some(Cfa(register, after))) if before == after => {
                add(CfaRegister(*register));
            }
            (_, Some(cfa)) => add(cfa.clone()),
            (_, None) => {}
        }
    }
    // The common part has no rule for such a register, so restoring it removes the rule.
    for register in from.rules.keys().filter(|register| !to.rules.contains_key(register)) {
        add(Restore(gimli::Register(*register)));
    }
    for (register, rule) in &to.rules {
        if from.rules.get(register) != Some(rule) {
            add(rule.clone());
        }
    }
    if from.arguments_size != to.arguments_size {
        add(ArgsSize(to.arguments_size));
    }
}
