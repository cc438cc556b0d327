use super::wire::Malformed;

/// How values of a column are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnType {
    /// Integer of one byte, signed or unsigned.
    I8,
    U8,
    /// Two bytes.
    I16,
    U16,
    /// Four bytes.
    I32,
    U32,
    /// Eight bytes; the sign does not matter in a wrapping sum.
    I64,
    /// Decimal without fraction, such as a SUM of integers: sent as digits, counted as an integer, as
    /// other systems send it.
    Digits,
    /// Text, or any other length-prefixed value.
    Text,
    /// Floating-point number of four bytes. Its text is rounded, so that only the number of values
    /// counts.
    F32,
    /// Eight bytes. Its text has all digits: counted by the bytes of the number.
    F64,
    /// Eight bytes, with a fixed number of decimals in its text: counted as `F32`.
    FixedF64,
    /// Date, or date and time: sent as fields or as text, counted by the fields.
    DateTime,
    /// Time, the same.
    Time,
}

const TINY: u8 = 0x01;
const SHORT: u8 = 0x02;
const LONG: u8 = 0x03;
const FLOAT: u8 = 0x04;
const DOUBLE: u8 = 0x05;
/// 64-bit integer, also as a parameter.
pub(super) const NULL: u8 = 0x06;
const TIMESTAMP: u8 = 0x07;
pub(super) const LONGLONG: u8 = 0x08;
const INT24: u8 = 0x09;
const DATE: u8 = 0x0a;
const TIME: u8 = 0x0b;
const DATETIME: u8 = 0x0c;
const YEAR: u8 = 0x0d;
const NEWDECIMAL: u8 = 0xf6;
/// Text, as a parameter.
pub(super) const VAR_STRING: u8 = 0xfd;

const UNSIGNED: u16 = 1 << 5;

/// The number of decimals of a floating-point number that has as many as it needs.
const ALL_DECIMALS: u8 = 31;

impl ColumnType {
    /// From a column definition, which ends with type, flags (two bytes), decimals, and two filler bytes.
    #[inline]
    pub(super) fn from_definition(definition: &[u8]) -> Result<Self, Malformed> {
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
            (DOUBLE, _) if decimals < ALL_DECIMALS => Self::FixedF64,
            (DOUBLE, _) => Self::F64,
            (DATE | DATETIME | TIMESTAMP, _) => Self::DateTime,
            (TIME, _) => Self::Time,
            // A column of type NULL has no values.
            _ => Self::Text,
        })
    }
}
