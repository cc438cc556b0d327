use super::wire::Malformed;

/// How the values of a column are read; what else is known of the column does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// An integer of one byte, with a sign or without.
    I8,
    U8,
    /// Of two bytes.
    I16,
    U16,
    /// Of four bytes.
    I32,
    U32,
    /// Of eight bytes; the sign makes no difference in a sum that wraps.
    I64,
    /// A decimal number without fraction, such as a SUM of integers: sent as digits, counted as
    /// an integer, as other databases send it.
    Digits,
    /// A text, or anything else that comes after its length.
    Text,
    /// A floating-point number of four bytes, counted by its bytes.
    F32,
    /// Of eight bytes.
    F64,
}

const TINY: u8 = 0x01;
const SHORT: u8 = 0x02;
const LONG: u8 = 0x03;
const FLOAT: u8 = 0x04;
const DOUBLE: u8 = 0x05;
/// A 64-bit integer, as a parameter too.
pub(super) const LONGLONG: u8 = 0x08;
const INT24: u8 = 0x09;
const YEAR: u8 = 0x0d;
const NEWDECIMAL: u8 = 0xf6;
/// A text as a parameter.
pub(super) const VAR_STRING: u8 = 0xfd;

const UNSIGNED: u16 = 1 << 5;

impl Reading {
    /// From a column's definition. What it needs are the last bytes: the type, two of flags, the
    /// number of decimals, two of filling.
    #[inline]
    pub(super) fn of_definition(definition: &[u8]) -> Result<Self, Malformed> {
        let &[kind, low, high, decimals, _, _] = definition.last_chunk().ok_or(Malformed)?;
        let unsigned = u16::from_le_bytes([low, high]) & UNSIGNED != 0;
        Ok(match (kind, unsigned) {
            (TINY, false) => Self::I8,
            (TINY, true) => Self::U8,
            (SHORT, false) => Self::I16,
            (SHORT | YEAR, true) | (YEAR, false) => Self::U16,
            (LONG | INT24, false) => Self::I32,
            (LONG | INT24, true) => Self::U32,
            (LONGLONG, _) => Self::I64,
            (NEWDECIMAL, _) if decimals == 0 => Self::Digits,
            (FLOAT, _) => Self::F32,
            (DOUBLE, _) => Self::F64,
            // Dates and times come after their length, too. A column of NULLs has no values at all.
            _ => Self::Text,
        })
    }
}
