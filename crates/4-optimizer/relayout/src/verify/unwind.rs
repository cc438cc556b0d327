//! Proof that unwinding and exception handling in the copy are equivalent to the original.

use std::collections::HashMap;

use gimli::UnwindSection;

use super::{Difference, DifferenceKind, Verifier};
use crate::bytes::ConstantMemory;
use crate::frame::ExceptionTable;

type Slice<'a> = gimli::EndianSlice<'a, gimli::LittleEndian>;

/// A row of a frame description, without references into its section.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    end: u64,
    start: u64,
    rule: String,
}

/// A frame description of the original or the copy.
#[derive(Debug)]
struct Description {
    start: u64,
    end: u64,
    rows: Vec<Row>,
    /// Sizes of pushed arguments in bytes, and the addresses from which on they hold.
    arguments: Vec<(u64, u64)>,
    /// Personality and return register, formatted.
    common: String,
    exceptions: Option<ExceptionTable>,
}

impl Description {
    fn rule_at(&self, address: u64) -> Option<&str> {
        let next = self.rows.partition_point(|row| row.start <= address);
        let row = &self.rows[next.checked_sub(1)?];
        (address < row.end).then_some(row.rule.as_str())
    }

    fn arguments_at(&self, address: u64) -> u64 {
        let next = self.arguments.partition_point(|(start, _)| *start <= address);
        next.checked_sub(1).map_or(0, |index| self.arguments[index].1)
    }
}

/// An `.eh_frame` section.
struct Section<'a> {
    section: gimli::EhFrame<Slice<'a>>,
    address: u64,
    bases: gimli::BaseAddresses,
    memory: &'a dyn ConstantMemory,
}

impl<'a> Section<'a> {
    fn new(bytes: &'a [u8], address: u64, memory: &'a dyn ConstantMemory) -> Self {
        Self {
            section: gimli::EhFrame::new(bytes, gimli::LittleEndian),
            address,
            bases: gimli::BaseAddresses::default().set_eh_frame(address),
            memory,
        }
    }

    fn all(&self) -> Result<Vec<Description>, DifferenceKind> {
        let mut found = Vec::new();
        let mut entries = self.section.entries(&self.bases);
        while let Some(entry) = entries.next()? {
            if let gimli::CieOrFde::Fde(partial) = entry {
                found.push(self.describe(partial.offset().into())?);
            }
        }
        found.sort_by_key(|description| description.start);
        Ok(found)
    }

    fn describe(&self, offset: gimli::EhFrameOffset) -> Result<Description, DifferenceKind> {
        let frame = self.section.fde_from_offset(&self.bases, offset, |section, bases, at| {
            section.cie_from_offset(bases, at)
        })?;
        let mut context = gimli::UnwindContext::new();
        let mut table = frame.rows(&self.section, &self.bases, &mut context)?;
        let mut rows = Vec::new();
        while let Some(row) = table.next_row()? {
            let rule = self.format_row(row)?;
            rows.push(Row { start: row.start_address(), end: row.end_address(), rule });
        }
        let arguments = self.arguments(&frame)?;
        let exceptions = ExceptionTable::of(self.memory, self.address, &frame)
            .map_err(|_| DifferenceKind::Other("an exception table cannot be read"))?;
        let cie = frame.cie();
        Ok(Description {
            start: frame.initial_address(),
            end: frame.end_address(),
            rows,
            arguments,
            common: format!("{:?} {:?}", cie.personality(), cie.return_address_register()),
            exceptions,
        })
    }

    /// As gcc writes it and libgcc reads it, the size of pushed arguments is not part of the state that
    /// `DW_CFA_restore_state` restores. In gimli's rows it is.
    fn arguments(
        &self,
        frame: &gimli::FrameDescriptionEntry<Slice<'a>>,
    ) -> Result<Vec<(u64, u64)>, gimli::Error> {
        let mut found = Vec::new();
        let mut at = frame.initial_address();
        let mut instructions = frame.instructions(&self.section, &self.bases);
        while let Some(instruction) = instructions.next()? {
            match instruction {
                gimli::CallFrameInstruction::SetLoc { address } => at = address,
                gimli::CallFrameInstruction::AdvanceLoc { delta } => {
                    let step = u64::from(delta).wrapping_mul(frame.cie().code_alignment_factor());
                    at = at.wrapping_add(step);
                }
                gimli::CallFrameInstruction::ArgsSize { size } => found.push((at, size)),
                _ => {}
            }
        }
        Ok(found)
    }

    /// A row, formatted, with the bytes of expressions.
    fn format_row(&self, row: &gimli::UnwindTableRow<usize>) -> Result<String, gimli::Error> {
        let bytes = |expression: &gimli::UnwindExpression<usize>| {
            Ok::<_, gimli::Error>(format!("{:?}", expression.get(&self.section)?.0.slice()))
        };
        let mut text = match row.cfa() {
            gimli::CfaRule::Expression(expression) => bytes(expression)?,
            rule => format!("{rule:?}"),
        };
        let mut registers: Vec<_> = row.registers().collect();
        registers.sort_by_key(|(register, _)| register.0);
        for (register, rule) in registers {
            use gimli::RegisterRule as R;
            let rule = match rule {
                R::Expression(expression) => format!("at {}", bytes(expression)?),
                R::ValExpression(expression) => format!("is {}", bytes(expression)?),
                rule => format!("{rule:?}"),
            };
            text += &format!(" {}:{rule}", register.0);
        }
        Ok(text)
    }
}

/// Compares frame descriptions and exception handling at all copied instructions.
pub(super) fn check(verifier: &Verifier) -> Result<(), Difference> {
    let relayout = verifier.relayout;
    let mut copies = Vec::new();
    for section in &relayout.frames {
        let unreadable = |kind| verifier.difference(section.address, section.address, kind);
        let size = usize::try_from(section.size).unwrap_or(usize::MAX);
        let bytes = relayout
            .constant_bytes(section.address, size)
            .ok_or_else(|| unreadable(DifferenceKind::Other("no unwind information there")))?;
        let parsed = Section::new(bytes, section.address, relayout).all();
        copies.extend(parsed.map_err(unreadable)?);
    }
    copies.sort_by_key(|description| description.start);
    let mut originals: HashMap<u64, Description> = HashMap::new();
    for (original, copy) in relayout.map.pairs() {
        let fail = |kind| verifier.difference(original, copy, kind);
        let missing = |what| fail(DifferenceKind::Other(what));
        let module = verifier.module(original).ok_or_else(|| missing("no module"))?;
        let function = module.function_at(original).ok_or_else(|| missing("no function"))?;
        let expected = match originals.entry(function.start) {
            std::collections::hash_map::Entry::Occupied(found) => found.into_mut(),
            std::collections::hash_map::Entry::Vacant(free) => {
                let frames = module.frames();
                let section = Section::new(&frames.bytes, frames.address, module);
                let offset = function.frame.ok_or_else(|| missing("no frame description"))?;
                free.insert(section.describe(offset.into()).map_err(fail)?)
            }
        };
        let next = copies.partition_point(|description| description.start <= copy);
        let Some(found) = next.checked_sub(1).map(|index| &copies[index]) else {
            return Err(missing("no frame description"));
        };
        // An instruction that was elided at the end has no own address.
        let is_elided = relayout.map.to_original(copy) != Some(original);
        if is_elided {
            continue;
        }
        if copy >= found.end {
            return Err(missing("no frame description"));
        }
        compare(verifier, expected, found, original, copy).map_err(fail)?;
    }
    Ok(())
}

fn compare(
    verifier: &Verifier,
    expected: &Description,
    found: &Description,
    original: u64,
    copy: u64,
) -> Result<(), DifferenceKind> {
    if expected.common != found.common {
        return Err(DifferenceKind::changed(&expected.common, &found.common));
    }
    let rules = (expected.rule_at(original), found.rule_at(copy));
    if rules.0 != rules.1 || rules.0.is_none() {
        return Err(DifferenceKind::changed(rules.0, rules.1));
    }
    let arguments = (expected.arguments_at(original), found.arguments_at(copy));
    if arguments.0 != arguments.1 {
        return Err(DifferenceKind::changed(arguments.0, arguments.1));
    }
    match (&expected.exceptions, &found.exceptions) {
        (None, None) => Ok(()),
        (Some(expected), Some(found)) => match (expected.site_at(original), found.site_at(copy)) {
            (None, None) => Ok(()),
            (Some(site), Some(copied)) => {
                let handlers = expected.handlers(site.action);
                if handlers.is_none() || handlers != found.handlers(copied.action) {
                    return Err(DifferenceKind::Other("an exception's handlers differ"));
                }
                match (site.landing, copied.landing) {
                    (None, None) => Ok(()),
                    (Some(expected), Some(found)) => {
                        verifier.expect_equivalent(expected, found, "exceptions are handled at")
                    }
                    _ => Err(DifferenceKind::Other("exceptions are handled on one side only")),
                }
            }
            _ => Err(DifferenceKind::Other("exceptions are handled differently")),
        },
        _ => Err(DifferenceKind::Other("an exception table on one side only")),
    }
}
