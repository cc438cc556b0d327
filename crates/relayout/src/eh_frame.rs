//! Writing an `.eh_frame` section for copied code.

use std::collections::BTreeMap;

use crate::bytes::{put_sleb, put_uleb};
use crate::frame::{Cfa, Frame, FrameState, Reference, Rule};

/// Pointers relative to their own place, 4 bytes.
const PC_RELATIVE_4: u8 = 0x1b;
const INDIRECT: u8 = 0x80;

/// Builds an `.eh_frame` section at a known address.
pub(crate) struct Writer {
    address: u64,
    bytes: Vec<u8>,
    common: BTreeMap<Vec<u8>, u64>,
}

/// One piece of copied code.
pub(crate) struct FrameFragment<'a> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) frame: &'a Frame,
    /// Where the piece's exception table is.
    pub(crate) exceptions: Option<u64>,
    /// First address and row of the original's description, by address.
    pub(crate) rows: &'a [(u64, usize)],
}

impl Writer {
    /// A section that will be at `address`.
    pub(crate) fn new(address: u64) -> Self {
        Self { address, bytes: Vec::new(), common: BTreeMap::new() }
    }

    fn at(&self) -> u64 {
        self.address + self.bytes.len() as u64
    }

    /// Appends 4 bytes that lead from their own place to `target`. `None`: too far.
    fn put_relative(&mut self, target: u64) -> Option<()> {
        let distance = i32::try_from(target.wrapping_sub(self.at()).cast_signed()).ok()?;
        self.bytes.extend_from_slice(&distance.to_le_bytes());
        Some(())
    }

    /// Adds a description. `None`: something is too far away.
    pub(crate) fn add(&mut self, piece: &FrameFragment) -> Option<()> {
        let common = self.common(piece.frame, piece.exceptions.is_some());
        let start = self.begin();
        let back = u32::try_from(self.at() - common).ok()?;
        self.bytes.extend_from_slice(&back.to_le_bytes());
        self.put_relative(piece.start)?;
        let size = u32::try_from(piece.end - piece.start).ok()?;
        self.bytes.extend_from_slice(&size.to_le_bytes());
        match piece.exceptions {
            None => self.bytes.push(0),
            Some(table) => {
                self.bytes.push(4);
                self.put_relative(table)?;
            }
        }
        let alignment = piece.frame.data_alignment;
        let mut at = piece.start;
        let mut state = &piece.frame.initial;
        for &(address, row) in piece.rows {
            let next = piece.frame.state(row);
            if next == state {
                continue;
            }
            put_advance(&mut self.bytes, address - at);
            put_change(&mut self.bytes, state, next, alignment);
            (at, state) = (address, next);
        }
        self.end(start);
        Some(())
    }

    /// Begins an entry: its length comes at the end.
    fn begin(&mut self) -> usize {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        start
    }

    fn end(&mut self, start: usize) {
        while !(self.bytes.len() - start).is_multiple_of(8) {
            self.bytes.push(0);
        }
        let length = (self.bytes.len() - start - 4) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// Where the common part for such descriptions is.
    fn common(&mut self, frame: &Frame, has_exceptions: bool) -> u64 {
        let mut body = vec![0, 0, 0, 0, 1];
        body.extend_from_slice(match (frame.personality, has_exceptions) {
            (None, false) => b"zR\0",
            (Some(_), false) => b"zPR\0",
            (None, true) => b"zLR\0",
            (Some(_), true) => b"zPLR\0",
        });
        put_uleb(&mut body, 1);
        put_sleb(&mut body, frame.data_alignment);
        body.push(frame.return_register as u8);
        let mut augmentation = Vec::new();
        if let Some(Reference { address, indirect }) = frame.personality {
            augmentation.push(if indirect { INDIRECT } else { 0 });
            augmentation.extend_from_slice(&address.to_le_bytes());
        }
        if has_exceptions {
            augmentation.push(PC_RELATIVE_4);
        }
        augmentation.push(PC_RELATIVE_4);
        put_uleb(&mut body, augmentation.len() as u64);
        body.extend_from_slice(&augmentation);
        put_change(&mut body, &FrameState::default(), &frame.initial, frame.data_alignment);
        if let Some(&at) = self.common.get(&body) {
            return at;
        }
        let at = self.at();
        let start = self.begin();
        self.bytes.extend_from_slice(&body);
        self.end(start);
        self.common.insert(body, at);
        at
    }

    /// The section, with its terminator.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes
    }
}

fn put_advance(out: &mut Vec<u8>, delta: u64) {
    match delta {
        0 => {}
        1..0x40 => out.push(0x40 | delta as u8),
        0x40..0x100 => out.extend_from_slice(&[0x02, delta as u8]),
        0x100..0x1_0000 => {
            out.push(0x03);
            out.extend_from_slice(&(delta as u16).to_le_bytes());
        }
        _ => {
            out.push(0x04);
            out.extend_from_slice(&(delta as u32).to_le_bytes());
        }
    }
}

/// The instructions that lead from one state to another.
fn put_change(out: &mut Vec<u8>, from: &FrameState, to: &FrameState, alignment: i64) {
    if from.cfa != to.cfa {
        match (&from.cfa, &to.cfa) {
            (_, Cfa::Unset) => {}
            (Cfa::Register(before, _), Cfa::Register(after, offset))
                if before == after && *offset >= 0 =>
            {
                out.push(0x0e);
                put_uleb(out, offset.cast_unsigned());
            }
            (Cfa::Register(_, before), Cfa::Register(register, after)) if before == after => {
                out.push(0x0d);
                put_uleb(out, u64::from(*register));
            }
            (_, Cfa::Register(register, offset)) if *offset >= 0 => {
                out.push(0x0c);
                put_uleb(out, u64::from(*register));
                put_uleb(out, offset.cast_unsigned());
            }
            (_, Cfa::Register(register, offset)) => {
                out.push(0x12);
                put_uleb(out, u64::from(*register));
                put_sleb(out, offset / alignment);
            }
            (_, Cfa::Expression(expression)) => {
                out.push(0x0f);
                put_block(out, expression);
            }
        }
    }
    for register in from.rules.keys().filter(|register| !to.rules.contains_key(register)) {
        put_restore(out, *register);
    }
    for (&register, rule) in &to.rules {
        if from.rules.get(&register) != Some(rule) {
            put_rule(out, register, rule, alignment);
        }
    }
    if from.arguments_size != to.arguments_size {
        out.push(0x2e);
        put_uleb(out, to.arguments_size);
    }
}

/// Back to what the common part says, which is nothing for a register without a rule.
fn put_restore(out: &mut Vec<u8>, register: u16) {
    match u8::try_from(register) {
        Ok(register) if register < 0x40 => out.push(0xc0 | register),
        _ => {
            out.push(0x06);
            put_uleb(out, u64::from(register));
        }
    }
}

fn put_rule(out: &mut Vec<u8>, register: u16, rule: &Rule, alignment: i64) {
    let number = u64::from(register);
    match rule {
        Rule::Undefined => {
            out.push(0x07);
            put_uleb(out, number);
        }
        Rule::SameValue => {
            out.push(0x08);
            put_uleb(out, number);
        }
        Rule::Offset(offset) => match u64::try_from(offset / alignment) {
            Ok(factored) if register < 0x40 => {
                out.push(0x80 | register as u8);
                put_uleb(out, factored);
            }
            _ => {
                out.push(0x11);
                put_uleb(out, number);
                put_sleb(out, offset / alignment);
            }
        },
        Rule::ValOffset(offset) => {
            out.push(0x15);
            put_uleb(out, number);
            put_sleb(out, offset / alignment);
        }
        Rule::Register(from) => {
            out.push(0x09);
            put_uleb(out, number);
            put_uleb(out, u64::from(*from));
        }
        Rule::Expression(expression) => {
            out.push(0x10);
            put_uleb(out, number);
            put_block(out, expression);
        }
        Rule::ValExpression(expression) => {
            out.push(0x16);
            put_uleb(out, number);
            put_block(out, expression);
        }
    }
}

fn put_block(out: &mut Vec<u8>, bytes: &[u8]) {
    put_uleb(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
