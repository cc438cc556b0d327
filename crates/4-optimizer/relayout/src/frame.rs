//! Frame descriptions: the state at each address; and exception tables (the language-specific data of gcc's and clang's
//! C++, C and Rust).

use std::collections::BTreeMap;

use gimli::leb128::write::Leb128;
use gimli::write::{CallFrameInstruction as Instruction, Expression};
use gimli::{
    CallFrameInstruction, EndianSlice, LittleEndian, Pointer, Reader as _, Register, UnwindSection,
};

use crate::bytes::{ConstantMemory, Cursor, Reference, pointer, size_of, value};
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

type Slice<'a> = EndianSlice<'a, LittleEndian>;
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
            section: gimli::EhFrame::new(&frames.bytes, LittleEndian),
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
        ExceptionTable::of(self.module, self.module.frames().address, frame)
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

const OMIT: u8 = gimli::DW_EH_PE_omit.0;
const INDIRECT: u8 = gimli::DW_EH_PE_indirect.0;
const UDATA4: u8 = gimli::DW_EH_PE_udata4.0;
/// Size of the field that has the length of a frame description, in bytes.
const LENGTH_FIELD: u64 = 4;

/// How a function handles exceptions that pass through it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExceptionTable {
    /// By first address, without overlaps. An exception thrown outside of all sites ends the
    /// program.
    pub(crate) sites: Vec<Site>,
    /// The action records, as in the file.
    actions: Vec<u8>,
    /// The types that actions refer to, from number 1 on.
    types: Vec<Option<Reference>>,
    /// The lists of types that negative action numbers refer to, as in the file.
    filters: Vec<u8>,
    has_types: bool,
}

/// A range of code with the same exception handling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The landing pad. `None`: exceptions pass through.
    pub(crate) landing: Option<u64>,
    /// 0, or 1 more than the offset of the first action.
    pub(crate) action: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Handler {
    /// The landing pad cleans up and resumes unwinding.
    Cleanup,
    /// The landing pad handles exceptions of this type; `None`: of any type.
    Catch(Option<Reference>),
    /// Only exceptions of these types may pass.
    Allow(Vec<Option<Reference>>),
}

impl ExceptionTable {
    /// Reads the table that a frame description refers to, if any. The description's section starts at the address
    /// `section`.
    pub(crate) fn of(
        memory: &dyn ConstantMemory,
        section: u64,
        frame: &Description,
    ) -> Result<Option<Self>, RejectReason> {
        let at = match frame.lsda() {
            None | Some(Pointer::Direct(0)) => return Ok(None),
            Some(Pointer::Indirect(_)) => return Err(RejectReason::BadUnwindInfo),
            Some(Pointer::Direct(at)) => at,
        };
        // gcc before version 4.4 gives all functions of a file a pointer, if one of them has a table. That of the
        // others is 0: no table, also if pointers are relative. gimli adds the field's address to it, so that it
        // seems to refer to itself.
        let start = section.wrapping_add(frame.offset() as u64);
        if at.wrapping_sub(start) < LENGTH_FIELD + frame.entry_len() as u64 {
            let encoding = frame.cie().lsda_encoding().ok_or(RejectReason::BadUnwindInfo)?;
            return match pointer(&mut Cursor::new(memory, at), encoding.0) {
                Some(None) => Ok(None),
                _ => Err(RejectReason::BadUnwindInfo),
            };
        }
        let table = Self::parse(memory, at, frame.initial_address());
        table.map(Some).ok_or(RejectReason::BadUnwindInfo)
    }

    /// Reads the table at `at` for the function that starts at `function`.
    fn parse(memory: &dyn ConstantMemory, at: u64, function: u64) -> Option<Self> {
        let mut cursor = Cursor::new(memory, at);
        let landing_encoding = cursor.u8()?;
        let landing_base = match landing_encoding {
            OMIT => function,
            encoding => pointer(&mut cursor, encoding)??.address,
        };
        let type_encoding = cursor.u8()?;
        let type_base = match type_encoding {
            OMIT => None,
            _ => {
                let offset = cursor.uleb()?;
                Some(cursor.address().checked_add(offset)?)
            }
        };
        let site_encoding = cursor.u8()?;
        let size = cursor.uleb()?;
        let actions_start = cursor.address().checked_add(size)?;
        let mut sites: Vec<Site> = Vec::new();
        while cursor.address() < actions_start {
            let start = function.wrapping_add(value(&mut cursor, site_encoding)?);
            let end = start.checked_add(value(&mut cursor, site_encoding)?)?;
            let landing = value(&mut cursor, site_encoding)?;
            let landing = (landing != 0).then(|| landing_base.wrapping_add(landing));
            let action = cursor.uleb()?;
            if sites.last().is_some_and(|last| last.end > start) {
                return None;
            }
            sites.push(Site { start, end, landing, action });
        }
        let mut table = Self {
            sites,
            actions: Vec::new(),
            types: Vec::new(),
            filters: Vec::new(),
            has_types: type_base.is_some(),
        };
        let (last_type, filters) = table.read_actions(memory, actions_start)?;
        if let Some(base) = type_base {
            let size = size_of(type_encoding)?;
            for number in 1..=last_type {
                let mut cursor = Cursor::new(memory, base.checked_sub(number.checked_mul(size)?)?);
                table.types.push(pointer(&mut cursor, type_encoding)?);
            }
            table.read_filters(memory, base, &filters, type_encoding)?;
        } else if last_type > 0 || !filters.is_empty() {
            return None;
        }
        Some(table)
    }

    /// Follows all chains of actions. Returns the highest type number and all filter numbers.
    fn read_actions(&mut self, memory: &dyn ConstantMemory, start: u64) -> Option<(u64, Vec<u64>)> {
        let mut pending: Vec<u64> = self
            .sites
            .iter()
            .filter_map(|site| start.checked_add(site.action.checked_sub(1)?))
            .collect();
        let mut seen = std::collections::BTreeSet::new();
        let (mut end, mut last_type, mut filters) = (start, 0, Vec::new());
        while let Some(at) = pending.pop() {
            if at < start || !seen.insert(at) {
                continue;
            }
            let mut cursor = Cursor::new(memory, at);
            let number = cursor.sleb()?;
            let next_at = cursor.address();
            let next = cursor.sleb()?;
            end = end.max(cursor.address());
            match u64::try_from(number) {
                Ok(number) => last_type = last_type.max(number),
                Err(_) => filters.push(number.unsigned_abs()),
            }
            if next != 0 {
                pending.push(next_at.wrapping_add_signed(next));
            }
        }
        self.actions = between(memory, start, end)?;
        Some((last_type, filters))
    }

    /// Reads the zero-terminated lists of type numbers that follow the type table.
    fn read_filters(
        &mut self,
        memory: &dyn ConstantMemory,
        base: u64,
        filters: &[u64],
        encoding: u8,
    ) -> Option<()> {
        let mut end = base;
        let mut last_type = self.types.len() as u64;
        for filter in filters {
            let mut cursor = Cursor::new(memory, base.checked_add(filter.checked_sub(1)?)?);
            loop {
                match cursor.uleb()? {
                    0 => break,
                    number => last_type = last_type.max(number),
                }
            }
            end = end.max(cursor.address());
        }
        let size = size_of(encoding)?;
        for number in self.types.len() as u64 + 1..=last_type {
            let mut cursor = Cursor::new(memory, base.checked_sub(number.checked_mul(size)?)?);
            self.types.push(pointer(&mut cursor, encoding)?);
        }
        self.filters = between(memory, base, end)?;
        Some(())
    }

    pub(crate) fn landings(&self) -> impl Iterator<Item = u64> + '_ {
        self.sites.iter().filter_map(|site| site.landing)
    }

    pub(crate) fn site_at(&self, address: u64) -> Option<&Site> {
        let behind = self.sites.partition_point(|site| site.start <= address);
        let site = &self.sites[behind.checked_sub(1)?];
        (address < site.end).then_some(site)
    }

    /// The handlers of a site's action, in order. `None`: the table is damaged.
    pub(crate) fn handlers(&self, action: u64) -> Option<Vec<Handler>> {
        let mut handlers = Vec::new();
        let Some(mut at) = action.checked_sub(1) else { return Some(handlers) };
        // A longer chain contains a cycle.
        while handlers.len() <= self.actions.len() {
            let mut reader = reader_at(&self.actions, at)?;
            let number = reader.read_sleb128().ok()?;
            let next_at = (self.actions.len() - reader.len()) as u64;
            let next = reader.read_sleb128().ok()?;
            handlers.push(match u64::try_from(number) {
                Ok(0) => Handler::Cleanup,
                Ok(number) => Handler::Catch(self.type_numbered(number)?),
                Err(_) => Handler::Allow(self.filter(number.unsigned_abs())?),
            });
            if next == 0 {
                return Some(handlers);
            }
            at = next_at.checked_add_signed(next)?;
        }
        None
    }

    fn type_numbered(&self, number: u64) -> Option<Option<Reference>> {
        self.types.get(usize::try_from(number.checked_sub(1)?).ok()?).copied()
    }

    fn filter(&self, number: u64) -> Option<Vec<Option<Reference>>> {
        let mut allowed = Vec::new();
        let mut reader = reader_at(&self.filters, number.checked_sub(1)?)?;
        loop {
            match reader.read_uleb128().ok()? {
                0 => return Some(allowed),
                number => allowed.push(self.type_numbered(number)?),
            }
        }
    }

    /// Encodes a table with the same actions and types for other sites.
    ///
    /// All pointers are absolute, so the result may be placed anywhere. `None`: a landing pad is
    /// more than 4 GiB from the others.
    pub(crate) fn encode(&self, function: u64, sites: &[Site]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let base = sites.iter().filter_map(|site| site.landing).min().map(|first| first - 1);
        match base {
            None => out.push(OMIT),
            Some(base) => {
                out.push(0);
                out.extend_from_slice(&base.to_le_bytes());
            }
        }
        let mut table = Vec::new();
        for site in sites {
            let offset = |from: u64, to: u64| u32::try_from(to.checked_sub(from)?).ok();
            table.extend_from_slice(&offset(function, site.start)?.to_le_bytes());
            table.extend_from_slice(&offset(site.start, site.end)?.to_le_bytes());
            let landing = match (site.landing, base) {
                (Some(landing), Some(base)) => offset(base, landing)?,
                _ => 0,
            };
            table.extend_from_slice(&landing.to_le_bytes());
            table.extend_from_slice(Leb128::unsigned(site.action).bytes());
        }
        let mut rest = vec![UDATA4];
        rest.extend_from_slice(Leb128::unsigned(table.len() as u64).bytes());
        rest.extend_from_slice(&table);
        rest.extend_from_slice(&self.actions);
        if self.has_types {
            let indirect = self.types.iter().flatten().any(|reference| reference.indirect);
            for reference in self.types.iter().rev() {
                let address = reference.map_or(0, |reference| reference.address);
                rest.extend_from_slice(&address.to_le_bytes());
            }
            out.push(if indirect { INDIRECT } else { 0 });
            out.extend_from_slice(Leb128::unsigned(rest.len() as u64).bytes());
        } else {
            out.push(OMIT);
        }
        out.extend_from_slice(&rest);
        out.extend_from_slice(&self.filters);
        Some(out)
    }
}

fn reader_at(bytes: &[u8], at: u64) -> Option<EndianSlice<'_, LittleEndian>> {
    let rest = bytes.get(usize::try_from(at).ok()?..)?;
    Some(EndianSlice::new(rest, LittleEndian))
}

/// The bytes from `start` to `end`. An empty range may also start at the end of a segment.
fn between(memory: &dyn ConstantMemory, start: u64, end: u64) -> Option<Vec<u8>> {
    match usize::try_from(end.checked_sub(start)?).ok()? {
        0 => Some(Vec::new()),
        size => memory.constant_bytes(start, size).map(<[u8]>::to_vec),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTION: u64 = 0x1000;

    struct Memory(Vec<u8>);

    impl ConstantMemory for Memory {
        fn constant_bytes(&self, address: u64, size: usize) -> Option<&[u8]> {
            let start = usize::try_from(address.checked_sub(SECTION)?).ok()?;
            self.0.get(start..start.checked_add(size)?)
        }

        fn needs_relocation(&self) -> bool {
            false
        }
    }

    /// The exception table of a function whose description has this pointer to it. A table without sites is 7 bytes
    /// behind the pointer, the function's address 9 bytes before it.
    fn table_of(pointer: i32) -> Result<Option<ExceptionTable>, RejectReason> {
        let mut bytes: Vec<u8> = vec![20, 0, 0, 0, 0, 0, 0, 0, 1];
        bytes.extend(b"zLR\0");
        bytes.extend([1, 0x78, 16, 2, 0x1b, 0x1b, 0x0c, 7, 8, 0x90, 1]);
        let description = bytes.len();
        bytes.extend([20, 0, 0, 0, 28, 0, 0, 0, 0xf0, 0xff, 0xff, 0xff, 16, 0, 0, 0, 4]);
        bytes.extend(pointer.to_le_bytes());
        bytes.extend([0; 3]);
        bytes.extend([OMIT, OMIT, 1, 0]);
        let section = gimli::EhFrame::new(&bytes, LittleEndian);
        let bases = gimli::BaseAddresses::default().set_eh_frame(SECTION);
        let frame = section
            .fde_from_offset(&bases, description.into(), |section, bases, at| {
                section.cie_from_offset(bases, at)
            })
            .unwrap();
        ExceptionTable::of(&Memory(bytes.clone()), SECTION, &frame)
    }

    #[test]
    fn null_pointer_to_an_exception_table_is_none() {
        assert_eq!(table_of(0), Ok(None));
        let empty = table_of(7).unwrap().unwrap();
        assert!(empty.sites.is_empty());
        assert_eq!(table_of(-9), Err(RejectReason::BadUnwindInfo));
    }
}
