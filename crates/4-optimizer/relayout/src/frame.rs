//! Frame descriptions: the state at each address.

use std::collections::BTreeMap;

use gimli::write::{CallFrameInstruction as Instruction, Expression};
use gimli::{CallFrameInstruction, Pointer, Register, UnwindSection};

use crate::bytes::Reference;
use crate::exceptions::ExceptionTable;
use crate::module::Function;
use crate::{Module, RejectReason};

/// How the caller's frame is found at some address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FrameState {
    /// The instruction that sets this address of the frame (CFA).
    pub(crate) cfa: Option<Instruction>,
    /// The instruction that sets each register's rule. A register without one was never mentioned.
    pub(crate) rules: BTreeMap<u16, Instruction>,
    pub(crate) arguments_size: u32,
}

/// A function's frame description.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) personality: Option<Reference>,
    pub(crate) return_register: Register,
    pub(crate) data_alignment: i8,
    /// The state before the first instruction of the function's own description.
    pub(crate) initial: FrameState,
    /// First address and state, by address. The first row starts at the function's start.
    rows: Vec<(u64, FrameState)>,
    pub(crate) exceptions: Option<ExceptionTable>,
}

impl Frame {
    /// Reads the description of a function.
    pub(crate) fn read(module: &Module, function: &Function) -> Result<Self, RejectReason> {
        let offset = function.frame.ok_or(RejectReason::NoUnwindInfo)?;
        Reader::new(module).read(offset)
    }

    /// The index of the row that applies to an address.
    pub(crate) fn row_at(&self, address: u64) -> usize {
        self.rows.partition_point(|row| row.0 <= address).max(1) - 1
    }

    /// The state of a row.
    pub(crate) fn state(&self, row: usize) -> &FrameState {
        &self.rows[row].1
    }
}

/// The landing pads of a function; none if its description cannot be read.
pub(crate) fn landings(module: &Module, function: &Function) -> Vec<u64> {
    let reader = Reader::new(module);
    let frame = function.frame.and_then(|offset| reader.description(offset).ok());
    let table = frame.and_then(|frame| reader.exceptions(&frame).ok().flatten());
    table.iter().flat_map(ExceptionTable::landings).collect()
}

type Slice<'a> = gimli::EndianSlice<'a, gimli::LittleEndian>;
type Description<'a> = gimli::FrameDescriptionEntry<Slice<'a>>;

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

    fn description(&self, offset: usize) -> Result<Description<'a>, RejectReason> {
        self.section
            .fde_from_offset(&self.bases, offset.into(), |section, bases, at| {
                section.cie_from_offset(bases, at)
            })
            .map_err(|_| RejectReason::BadUnwindInfo)
    }

    fn exceptions(&self, frame: &Description) -> Result<Option<ExceptionTable>, RejectReason> {
        match frame.lsda() {
            None | Some(Pointer::Direct(0)) => Ok(None),
            Some(Pointer::Indirect(_)) => Err(RejectReason::BadUnwindInfo),
            Some(Pointer::Direct(at)) => {
                ExceptionTable::read(self.module, at, frame.initial_address()).map(Some)
            }
        }
    }

    fn read(&self, offset: usize) -> Result<Frame, RejectReason> {
        let frame = self.description(offset)?;
        if frame.is_signal_trampoline() {
            return Err(RejectReason::SignalFrame);
        }
        let cie = frame.cie();
        let personality = match cie.personality_with_encoding() {
            None => None,
            Some((encoding, pointer)) => {
                // The loader relocates absolute pointers, unless the module is at its link-time
                // address.
                let fixed = encoding.application() == gimli::DW_EH_PE_pcrel;
                if !fixed && self.module.bias() != 0 {
                    return Err(RejectReason::BadUnwindInfo);
                }
                Some(reference(pointer))
            }
        };
        let exceptions = self.exceptions(&frame)?;
        let data_alignment = i8::try_from(cie.data_alignment_factor())
            .ok()
            .filter(|alignment| *alignment != 0)
            .ok_or(RejectReason::BadUnwindInfo)?;
        let mut state = FrameState::default();
        let mut machine = Machine {
            reader: self,
            alignment: data_alignment.into(),
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
        let return_register = cie.return_address_register();
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

    fn expression(
        &self,
        expression: gimli::UnwindExpression<usize>,
    ) -> Result<Expression, RejectReason> {
        let expression =
            expression.get(&self.reader.section).map_err(|_| RejectReason::BadUnwindInfo)?;
        Ok(Expression::raw(expression.0.slice().to_vec()))
    }

    fn scale(&self, factored: i64) -> Result<i32, RejectReason> {
        let offset = factored.checked_mul(self.alignment).map(i32::try_from);
        offset.and_then(Result::ok).ok_or(RejectReason::BadUnwindInfo)
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
                    state.cfa = Some(Instruction::Cfa(register, unscaled(offset)?));
                }
                I::DefCfaSf { register, factored_offset } => {
                    state.cfa = Some(Instruction::Cfa(register, self.scale(factored_offset)?));
                }
                I::DefCfaRegister { register } => {
                    let Some(Instruction::Cfa(_, offset)) = state.cfa else {
                        return Err(RejectReason::BadUnwindInfo);
                    };
                    state.cfa = Some(Instruction::Cfa(register, offset));
                }
                I::DefCfaOffset { offset } => state.set_offset(unscaled(offset)?)?,
                I::DefCfaOffsetSf { factored_offset } => {
                    state.set_offset(self.scale(factored_offset)?)?;
                }
                I::DefCfaExpression { expression } => {
                    state.cfa = Some(Instruction::CfaExpression(self.expression(expression)?));
                }
                I::Undefined { register } => {
                    state.set_rule(register, Instruction::Undefined(register));
                }
                I::SameValue { register } => {
                    state.set_rule(register, Instruction::SameValue(register));
                }
                I::Offset { register, factored_offset } => {
                    let offset = self.scale(factored_offset.cast_signed())?;
                    state.set_rule(register, Instruction::Offset(register, offset));
                }
                I::OffsetExtendedSf { register, factored_offset } => {
                    let offset = self.scale(factored_offset)?;
                    state.set_rule(register, Instruction::Offset(register, offset));
                }
                I::ValOffset { register, factored_offset } => {
                    let offset = self.scale(factored_offset.cast_signed())?;
                    state.set_rule(register, Instruction::ValOffset(register, offset));
                }
                I::ValOffsetSf { register, factored_offset } => {
                    let offset = self.scale(factored_offset)?;
                    state.set_rule(register, Instruction::ValOffset(register, offset));
                }
                I::Register { dest_register, src_register } => {
                    let rule = Instruction::Register(dest_register, src_register);
                    state.set_rule(dest_register, rule);
                }
                I::Expression { register, expression } => {
                    let expression = self.expression(expression)?;
                    state.set_rule(register, Instruction::Expression(register, expression));
                }
                I::ValExpression { register, expression } => {
                    let expression = self.expression(expression)?;
                    state.set_rule(register, Instruction::ValExpression(register, expression));
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
                    // The size belongs to the address, not to the rules.
                    state.arguments_size = arguments_size;
                }
                I::ArgsSize { size } => {
                    let size = u32::try_from(size).map_err(|_| RejectReason::BadUnwindInfo)?;
                    state.arguments_size = size;
                }
                I::Nop => {}
                _ => return Err(RejectReason::BadUnwindInfo),
            }
        }
        Ok(())
    }
}

impl FrameState {
    fn set_rule(&mut self, register: Register, rule: Instruction) {
        self.rules.insert(register.0, rule);
    }

    fn set_offset(&mut self, offset: i32) -> Result<(), RejectReason> {
        let Some(Instruction::Cfa(register, _)) = self.cfa else {
            return Err(RejectReason::BadUnwindInfo);
        };
        self.cfa = Some(Instruction::Cfa(register, offset));
        Ok(())
    }
}

fn unscaled(offset: u64) -> Result<i32, RejectReason> {
    i32::try_from(offset).map_err(|_| RejectReason::BadUnwindInfo)
}
