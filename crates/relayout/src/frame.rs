//! Frame descriptions: what they say at each address.

use std::collections::BTreeMap;

use gimli::{CallFrameInstruction, Pointer, UnwindSection};

use crate::exceptions::ExceptionTable;
use crate::module::Function;
use crate::{Module, RejectReason};

/// How the caller's frame is found at some address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FrameState {
    pub(crate) cfa: Cfa,
    /// Rules by register. A register without a rule has never been mentioned.
    pub(crate) rules: BTreeMap<u16, Rule>,
    pub(crate) arguments_size: u64,
}

/// Where the frame is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Cfa {
    #[default]
    Unset,
    Register(u16, i64),
    Expression(Vec<u8>),
}

/// Where the caller's value of a register is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rule {
    Undefined,
    SameValue,
    Offset(i64),
    ValOffset(i64),
    Register(u16),
    Expression(Vec<u8>),
    ValExpression(Vec<u8>),
}

/// A pointer that is either the value or where the value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Reference {
    pub(crate) address: u64,
    pub(crate) indirect: bool,
}

/// A function's frame description.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) personality: Option<Reference>,
    pub(crate) return_register: u16,
    pub(crate) data_alignment: i64,
    /// What holds before the first instruction of the function's own description.
    pub(crate) initial: FrameState,
    /// First address and state, by address; the first is the function's first address.
    rows: Vec<(u64, FrameState)>,
    pub(crate) exceptions: Option<ExceptionTable>,
}

impl Frame {
    /// Reads the description of a function.
    pub(crate) fn read(module: &Module, function: &Function) -> Result<Self, RejectReason> {
        let offset = function.frame.ok_or(RejectReason::NoUnwindInfo)?;
        Reader::new(module).read(offset)
    }

    /// The index of the state that holds at an address.
    pub(crate) fn row_at(&self, address: u64) -> usize {
        self.rows.partition_point(|row| row.0 <= address).max(1) - 1
    }

    /// The state of a row.
    pub(crate) fn state(&self, row: usize) -> &FrameState {
        &self.rows[row].1
    }
}

type Slice<'a> = gimli::EndianSlice<'a, gimli::LittleEndian>;

struct Reader<'a> {
    module: &'a Module,
    section: gimli::EhFrame<Slice<'a>>,
    bases: gimli::BaseAddresses,
}

impl<'a> Reader<'a> {
    fn new(module: &'a Module) -> Self {
        let frames = module.frames();
        Self {
            module,
            section: gimli::EhFrame::new(&frames.bytes, gimli::LittleEndian),
            bases: gimli::BaseAddresses::default().set_eh_frame(frames.address),
        }
    }

    fn read(&self, offset: usize) -> Result<Frame, RejectReason> {
        let frame = self
            .section
            .fde_from_offset(&self.bases, offset.into(), |section, bases, at| {
                section.cie_from_offset(bases, at)
            })
            .map_err(|_| RejectReason::BadUnwindInfo)?;
        if frame.is_signal_trampoline() {
            return Err(RejectReason::SignalFrame);
        }
        let cie = frame.cie();
        let personality = match cie.personality_with_encoding() {
            None => None,
            Some((encoding, pointer)) => {
                // An absolute pointer is one that the loader has changed, unless nothing moved.
                let fixed = encoding.application() == gimli::DW_EH_PE_pcrel;
                if !fixed && self.module.bias() != 0 {
                    return Err(RejectReason::BadUnwindInfo);
                }
                Some(reference(pointer))
            }
        };
        let exceptions = match frame.lsda() {
            None => None,
            Some(Pointer::Indirect(_)) => return Err(RejectReason::BadUnwindInfo),
            Some(Pointer::Direct(0)) => None,
            Some(Pointer::Direct(at)) => {
                let start = frame.initial_address();
                Some(ExceptionTable::read(self.module, at, start)?)
            }
        };
        let data_alignment = cie.data_alignment_factor();
        let mut state = FrameState::default();
        let mut machine = Machine {
            reader: self,
            alignment: data_alignment,
            code_alignment: cie.code_alignment_factor(),
            at: frame.initial_address(),
            stack: Vec::new(),
            initial: None,
            rows: Vec::new(),
        };
        machine.run(cie.instructions(&self.section, &self.bases), &mut state)?;
        let initial = state.clone();
        machine.initial = Some(initial.clone());
        machine.rows.clear();
        machine.run(frame.instructions(&self.section, &self.bases), &mut state)?;
        machine.push(&state);
        let rows = machine.rows;
        let return_register = cie.return_address_register().0;
        Ok(Frame { personality, return_register, data_alignment, initial, rows, exceptions })
    }
}

fn reference(pointer: Pointer) -> Reference {
    match pointer {
        Pointer::Direct(address) => Reference { address, indirect: false },
        Pointer::Indirect(address) => Reference { address, indirect: true },
    }
}

/// Executes frame instructions.
struct Machine<'r, 'a> {
    reader: &'r Reader<'a>,
    alignment: i64,
    code_alignment: u64,
    at: u64,
    stack: Vec<FrameState>,
    initial: Option<FrameState>,
    rows: Vec<(u64, FrameState)>,
}

impl<'a> Machine<'_, 'a> {
    fn push(&mut self, state: &FrameState) {
        match self.rows.last_mut() {
            Some(row) if row.0 == self.at => row.1 = state.clone(),
            _ => self.rows.push((self.at, state.clone())),
        }
    }

    fn bytes(&self, expression: gimli::UnwindExpression<usize>) -> Result<Vec<u8>, RejectReason> {
        let expression =
            expression.get(&self.reader.section).map_err(|_| RejectReason::BadUnwindInfo)?;
        Ok(expression.0.slice().to_vec())
    }

    fn scale(&self, factored: i64) -> i64 {
        factored.wrapping_mul(self.alignment)
    }

    fn run(
        &mut self,
        mut instructions: gimli::CallFrameInstructionIter<'_, Slice<'a>>,
        state: &mut FrameState,
    ) -> Result<(), RejectReason> {
        use CallFrameInstruction as I;
        while let Some(instruction) =
            instructions.next().map_err(|_| RejectReason::BadUnwindInfo)?
        {
            match instruction {
                I::SetLoc { address } => {
                    self.push(state);
                    self.at = address;
                }
                I::AdvanceLoc { delta } => {
                    self.push(state);
                    let step = u64::from(delta).wrapping_mul(self.code_alignment);
                    self.at = self.at.wrapping_add(step);
                }
                I::DefCfa { register, offset } => {
                    state.cfa = Cfa::Register(register.0, offset.cast_signed());
                }
                I::DefCfaSf { register, factored_offset } => {
                    state.cfa = Cfa::Register(register.0, self.scale(factored_offset));
                }
                I::DefCfaRegister { register } => {
                    let Cfa::Register(_, offset) = state.cfa else {
                        return Err(RejectReason::BadUnwindInfo);
                    };
                    state.cfa = Cfa::Register(register.0, offset);
                }
                I::DefCfaOffset { offset } => set_offset(state, offset.cast_signed())?,
                I::DefCfaOffsetSf { factored_offset } => {
                    set_offset(state, self.scale(factored_offset))?;
                }
                I::DefCfaExpression { expression } => {
                    state.cfa = Cfa::Expression(self.bytes(expression)?);
                }
                I::Undefined { register } => {
                    state.rules.insert(register.0, Rule::Undefined);
                }
                I::SameValue { register } => {
                    state.rules.insert(register.0, Rule::SameValue);
                }
                I::Offset { register, factored_offset } => {
                    let offset = self.scale(factored_offset.cast_signed());
                    state.rules.insert(register.0, Rule::Offset(offset));
                }
                I::OffsetExtendedSf { register, factored_offset } => {
                    let offset = self.scale(factored_offset);
                    state.rules.insert(register.0, Rule::Offset(offset));
                }
                I::ValOffset { register, factored_offset } => {
                    let offset = self.scale(factored_offset.cast_signed());
                    state.rules.insert(register.0, Rule::ValOffset(offset));
                }
                I::ValOffsetSf { register, factored_offset } => {
                    let offset = self.scale(factored_offset);
                    state.rules.insert(register.0, Rule::ValOffset(offset));
                }
                I::Register { dest_register, src_register } => {
                    state.rules.insert(dest_register.0, Rule::Register(src_register.0));
                }
                I::Expression { register, expression } => {
                    let bytes = self.bytes(expression)?;
                    state.rules.insert(register.0, Rule::Expression(bytes));
                }
                I::ValExpression { register, expression } => {
                    let bytes = self.bytes(expression)?;
                    state.rules.insert(register.0, Rule::ValExpression(bytes));
                }
                I::Restore { register } => {
                    let initial = self.initial.as_ref().ok_or(RejectReason::BadUnwindInfo)?;
                    match initial.rules.get(&register.0) {
                        Some(rule) => state.rules.insert(register.0, rule.clone()),
                        None => state.rules.remove(&register.0),
                    };
                }
                I::RememberState => self.stack.push(state.clone()),
                I::RestoreState => {
                    let arguments_size = state.arguments_size;
                    *state = self.stack.pop().ok_or(RejectReason::BadUnwindInfo)?;
                    // It belongs to the place, not to the rules.
                    state.arguments_size = arguments_size;
                }
                I::ArgsSize { size } => state.arguments_size = size,
                I::Nop => {}
                _ => return Err(RejectReason::BadUnwindInfo),
            }
        }
        Ok(())
    }
}

fn set_offset(state: &mut FrameState, offset: i64) -> Result<(), RejectReason> {
    let Cfa::Register(register, _) = state.cfa else { return Err(RejectReason::BadUnwindInfo) };
    state.cfa = Cfa::Register(register, offset);
    Ok(())
}
