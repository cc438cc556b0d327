//! Writing an `.eh_frame` section for copied code.

use gimli::write::{
    Address, CallFrameInstruction, CieId, CommonInformationEntry, EhFrame, EndianVec,
    FrameDescriptionEntry, FrameTable,
};
use gimli::{DW_EH_PE_absptr, DW_EH_PE_indirect, DW_EH_PE_pcrel, DW_EH_PE_sdata4, DwEhPe};

use crate::frame::{Frame, FrameState};

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
