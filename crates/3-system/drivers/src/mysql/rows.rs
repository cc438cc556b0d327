//! Columns and rows: their contribution to the digest, and their text.

use super::wire::{Cursor, Malformed};
use crate::{TextRow, text_digest};

/// NULL, in place of a value's length in a text row.
const TEXT_NULL: u8 = 0xfb;

/// The contribution of a value that may differ between the formats.
const NOT_NULL: u64 = 1;

/// A row in binary format.
#[inline]
pub(super) fn binary_row_digest(columns: &[ColumnType], row: &[u8]) -> Result<u64, Malformed> {
    let mut cursor = Cursor::new(row);
    // A zero byte, then the NULL bitmap, whose first two bits are unused.
    cursor.u8()?;
    let nulls = cursor.bytes((columns.len() + 9) / 8)?;
    let mut digest = 0u64;
    for (bit, column) in (2..).zip(columns) {
        if nulls[bit / 8] >> (bit % 8) & 1 == 1 {
            continue;
        }
        let value = match column {
            ColumnType::Text => text_digest(cursor.string()?),
            ColumnType::I64 => u64::from_le_bytes(cursor.array()?),
            ColumnType::I32 => i64::from(i32::from_le_bytes(cursor.array()?)) as u64,
            ColumnType::U32 => u64::from(u32::from_le_bytes(cursor.array()?)),
            ColumnType::Digits => digits(cursor.string()?),
            ColumnType::I16 => i64::from(i16::from_le_bytes(cursor.array()?)) as u64,
            ColumnType::U16 => u64::from(u16::from_le_bytes(cursor.array()?)),
            ColumnType::I8 => i64::from(i8::from_le_bytes(cursor.array()?)) as u64,
            ColumnType::U8 => u64::from(u8::from_le_bytes(cursor.array()?)),
            ColumnType::F32 => cursor.array::<4>().map(|_| NOT_NULL)?,
            ColumnType::F64 => float_digest(f64::from_le_bytes(cursor.array()?)),
            ColumnType::FixedF64 => cursor.array::<8>().map(|_| NOT_NULL)?,
            ColumnType::DateTime => binary_date_time(cursor.string()?)?,
            ColumnType::Time => binary_time(cursor.string()?)?,
        };
        digest = digest.wrapping_add(value);
    }
    Ok(digest)
}

/// A row in text format. All values count as in binary format.
#[inline]
pub(super) fn text_row_digest(columns: &[ColumnType], row: &[u8]) -> Result<u64, Malformed> {
    let mut cursor = Cursor::new(row);
    let mut digest = 0u64;
    for column in columns {
        if cursor.rest().first() == Some(&TEXT_NULL) {
            cursor.u8()?;
            continue;
        }
        let text = cursor.string()?;
        let value = match column {
            ColumnType::Text => text_digest(text),
            ColumnType::F32 | ColumnType::FixedF64 => NOT_NULL,
            ColumnType::F64 => float_digest(float(text)?),
            ColumnType::DateTime => text_date_time(text),
            ColumnType::Time => text_time(text),
            _ => digits(text),
        };
        digest = digest.wrapping_add(value);
    }
    Ok(digest)
}

/// The values of a row in text format.
pub(super) fn texts(columns: usize, row: &[u8]) -> Result<TextRow, Malformed> {
    let mut cursor = Cursor::new(row);
    (0..columns)
        .map(|_| {
            if cursor.rest().first() == Some(&TEXT_NULL) {
                return cursor.u8().map(|_| None);
            }
            cursor.string().map(|text| Some(text.to_vec()))
        })
        .collect()
}

/// The floating-point number in a text.
fn float(text: &[u8]) -> Result<f64, Malformed> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Malformed)
}

/// The contribution of a floating-point number, whose zero may have a sign.
fn float_digest(value: f64) -> u64 {
    text_digest(&(value + 0.0).to_le_bytes())
}

/// The decimal integer in a text, modulo 2⁶⁴.
#[inline]
fn digits(text: &[u8]) -> u64 {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let value = digits.iter().fold(0u64, |value, digit| {
        value.wrapping_mul(10).wrapping_add(u64::from(digit.wrapping_sub(b'0')))
    });
    if negative { value.wrapping_neg() } else { value }
}

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
/// NULL, as a parameter.
pub(super) const NULL: u8 = 0x06;
const TIMESTAMP: u8 = 0x07;
/// 64-bit integer, also as a parameter.
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

/// Microseconds in a second, and digits of their fraction.
const MICROS: u64 = 1_000_000;
const MICROS_DIGITS: usize = 6;

/// DATE, DATETIME or TIMESTAMP in binary format: its fields up to the last one that is not 0.
pub(super) fn binary_date_time(value: &[u8]) -> Result<u64, Malformed> {
    let mut cursor = Cursor::new(value);
    let (mut date, mut clock, mut micros) = ([0; 3], [0; 3], 0);
    if !cursor.rest().is_empty() {
        let year = u16::from_le_bytes(cursor.array()?);
        date = [year.into(), cursor.u8()?.into(), cursor.u8()?.into()];
    }
    if !cursor.rest().is_empty() {
        clock = cursor.array::<3>()?.map(u64::from);
    }
    if !cursor.rest().is_empty() {
        micros = u32::from_le_bytes(cursor.array()?).into();
    }
    Ok(combined(date, clock, micros))
}

/// The same in text format, such as `2024-05-06 07:08:09.012345`.
pub(super) fn text_date_time(text: &[u8]) -> u64 {
    let [year, month, day, hours, minutes, seconds] = numbers(text);
    combined([year, month, day], [hours, minutes, seconds], fraction(text))
}

/// TIME in binary format.
pub(super) fn binary_time(value: &[u8]) -> Result<u64, Malformed> {
    let mut cursor = Cursor::new(value);
    if cursor.rest().is_empty() {
        return Ok(0);
    }
    let is_negative = cursor.u8()? != 0;
    let days = u64::from(u32::from_le_bytes(cursor.array()?));
    let [hours, minutes, seconds] = cursor.array::<3>()?.map(u64::from);
    let micros =
        if cursor.rest().is_empty() { 0 } else { u32::from_le_bytes(cursor.array()?).into() };
    let time = combined([0; 3], [days * 24 + hours, minutes, seconds], micros);
    Ok(if is_negative { time.wrapping_neg() } else { time })
}

/// The same in text format, such as `-838:59:59.5`.
pub(super) fn text_time(text: &[u8]) -> u64 {
    let is_negative = text.first() == Some(&b'-');
    let time = combined([0; 3], numbers(&text[usize::from(is_negative)..]), fraction(text));
    if is_negative { time.wrapping_neg() } else { time }
}

/// One number for each value: all that a server can store fit into it. Hours of TIME have up to three
/// digits.
const fn combined(date: [u64; 3], clock: [u64; 3], micros: u64) -> u64 {
    let ([year, month, day], [hours, minutes, seconds]) = (date, clock);
    let days = year.wrapping_mul(13).wrapping_add(month).wrapping_mul(32).wrapping_add(day);
    let hours = days.wrapping_mul(1024).wrapping_add(hours);
    let seconds = hours.wrapping_mul(3600).wrapping_add(minutes * 60 + seconds);
    seconds.wrapping_mul(MICROS).wrapping_add(micros)
}

/// The first numbers in a text, before its fraction; 0 in place of missing ones.
fn numbers<const COUNT: usize>(text: &[u8]) -> [u64; COUNT] {
    let mut numbers = [0; COUNT];
    let whole = text.split(|byte| *byte == b'.').next().unwrap_or_default();
    let fields = whole.split(|byte| !byte.is_ascii_digit());
    for (number, field) in numbers.iter_mut().zip(fields) {
        *number = value(field);
    }
    numbers
}

/// The microseconds after the point.
fn fraction(text: &[u8]) -> u64 {
    let fraction = text.split(|byte| *byte == b'.').nth(1).unwrap_or_default();
    let missing = MICROS_DIGITS.saturating_sub(fraction.len());
    (0..missing).fold(value(fraction), |value, _| value.wrapping_mul(10))
}

fn value(digits: &[u8]) -> u64 {
    let digit = |byte: &u8| u64::from(byte.wrapping_sub(b'0'));
    digits.iter().fold(0u64, |value, byte| value.wrapping_mul(10).wrapping_add(digit(byte)))
}

#[cfg(test)]
mod tests {
    use dbdyno_fuzz::check_cases;
    use proptest::prelude::*;

    use super::*;
    use crate::mysql::wire::put_lenenc_string;

    /// A value on the server.
    #[derive(Clone, Debug)]
    enum Value {
        Null(ColumnType),
        Int(ColumnType, i64),
        Text(Vec<u8>),
        Float(f32),
        Double(f64),
        /// 2024-05-06 with this time of day, and a time with this number of hours.
        Temporal(ColumnType, u8),
    }

    impl Value {
        fn column(&self) -> ColumnType {
            match self {
                Self::Null(column) | Self::Int(column, _) => *column,
                Self::Text(_) => ColumnType::Text,
                Self::Float(_) => ColumnType::F32,
                Self::Double(_) => ColumnType::F64,
                Self::Temporal(column, _) => *column,
            }
        }

        /// By the definition of the digest, not by the protocol.
        fn digest(&self) -> u64 {
            match self {
                Self::Null(_) => 0,
                Self::Int(_, value) => *value as u64,
                Self::Text(text) => text_digest(text),
                Self::Float(_) => 1,
                Self::Double(value) => text_digest(&(value + 0.0).to_le_bytes()),
                Self::Temporal(_, hour) => {
                    let day = if self.column() == ColumnType::Time { 0 } else { 2024 * 416 + 166 };
                    (day * 1024 + u64::from(*hour)) * 3_600_000_000
                }
            }
        }
    }

    /// Encodes a binary row as the server's documentation specifies.
    fn binary(values: &[Value]) -> Vec<u8> {
        let mut row = vec![0; 1 + (values.len() + 7 + 2) / 8];
        for (index, value) in values.iter().enumerate() {
            match value {
                Value::Null(_) => row[1 + (index + 2) / 8] |= 1 << ((index + 2) % 8),
                Value::Int(column, value) => match column {
                    ColumnType::I8 | ColumnType::U8 => row.push(*value as u8),
                    ColumnType::I16 | ColumnType::U16 => row.extend((*value as u16).to_le_bytes()),
                    ColumnType::I32 | ColumnType::U32 => row.extend((*value as u32).to_le_bytes()),
                    ColumnType::I64 => row.extend(value.to_le_bytes()),
                    _ => put_lenenc_string(&mut row, value.to_string().as_bytes()),
                },
                Value::Text(text) => put_lenenc_string(&mut row, text),
                Value::Float(value) => row.extend(value.to_le_bytes()),
                Value::Double(value) => row.extend(value.to_le_bytes()),
                Value::Temporal(ColumnType::Time, hour) => {
                    put_lenenc_string(&mut row, &[0, 0, 0, 0, 0, *hour, 0, 0]);
                }
                Value::Temporal(_, hour) => {
                    put_lenenc_string(&mut row, &[0xe8, 0x07, 5, 6, *hour, 0, 0]);
                }
            }
        }
        row
    }

    fn text_form(values: &[Value]) -> Vec<u8> {
        let mut row = Vec::new();
        for value in values {
            match value {
                Value::Null(_) => row.push(TEXT_NULL),
                Value::Int(_, value) => put_lenenc_string(&mut row, value.to_string().as_bytes()),
                Value::Text(text) => put_lenenc_string(&mut row, text),
                Value::Float(value) => {
                    put_lenenc_string(&mut row, format!("{value:.2}").as_bytes())
                }
                Value::Double(value) => put_lenenc_string(&mut row, value.to_string().as_bytes()),
                Value::Temporal(column, hour) => {
                    let date = if *column == ColumnType::Time { "" } else { "2024-05-06 " };
                    put_lenenc_string(&mut row, format!("{date}{hour:02}:00:00").as_bytes());
                }
            }
        }
        row
    }

    fn value() -> impl Strategy<Value = Value> {
        let int = |column, value: i64| Value::Int(column, value);
        prop_oneof![
            Just(Value::Null(ColumnType::I32)),
            Just(Value::Null(ColumnType::Text)),
            any::<i8>().prop_map(move |value| int(ColumnType::I8, value.into())),
            any::<u8>().prop_map(move |value| int(ColumnType::U8, value.into())),
            any::<i16>().prop_map(move |value| int(ColumnType::I16, value.into())),
            any::<u16>().prop_map(move |value| int(ColumnType::U16, value.into())),
            any::<i32>().prop_map(move |value| int(ColumnType::I32, value.into())),
            any::<u32>().prop_map(move |value| int(ColumnType::U32, value.into())),
            any::<i64>().prop_map(move |value| int(ColumnType::I64, value)),
            any::<i64>().prop_map(move |value| int(ColumnType::Digits, value)),
            proptest::collection::vec(any::<u8>(), 0..300).prop_map(Value::Text),
            any::<f32>().prop_map(Value::Float),
            any::<f64>().prop_map(Value::Double),
            (0..24u8).prop_map(|hour| Value::Temporal(ColumnType::DateTime, hour)),
            (0..24u8).prop_map(|hour| Value::Temporal(ColumnType::Time, hour)),
        ]
    }

    proptest! {
        #[test]
        fn binary_row_digest_is_the_sum_of_its_values(
            values in proptest::collection::vec(value(), 1..30)
        ) {
            let columns: Vec<ColumnType> = values.iter().map(Value::column).collect();
            let expected = values.iter().fold(0u64, |sum, value| sum.wrapping_add(value.digest()));
            let row = binary(&values);
            prop_assert_eq!(binary_row_digest(&columns, &row), Ok(expected));
            // A truncated row is an error and is not read beyond its end.
            if !matches!(values.last(), Some(Value::Null(_))) {
                prop_assert_eq!(binary_row_digest(&columns, &row[..row.len() - 1]), Err(Malformed));
            }
        }

        #[test]
        fn text_row_has_the_same_digest(
            values in proptest::collection::vec(value(), 1..30)
        ) {
            let columns: Vec<ColumnType> = values.iter().map(Value::column).collect();
            let row = text_form(&values);
            prop_assert_eq!(
                text_row_digest(&columns, &row),
                binary_row_digest(&columns, &binary(&values))
            );
            let read = texts(values.len(), &row).unwrap();
            for (value, text) in values.iter().zip(read) {
                match value {
                    Value::Null(_) => prop_assert_eq!(text, None),
                    Value::Int(_, value) => prop_assert_eq!(text, Some(value.to_string().into_bytes())),
                    Value::Text(value) => {
                        prop_assert_eq!(text, Some(value.clone()));
                    }
                    Value::Float(_) | Value::Double(_) | Value::Temporal(..) => {}
                }
            }
        }
    }

    #[test]
    fn arbitrary_bytes_are_not_read_beyond_their_end() {
        let columns = [
            ColumnType::I64,
            ColumnType::Text,
            ColumnType::DateTime,
            ColumnType::Time,
            ColumnType::F64,
            ColumnType::Digits,
            ColumnType::I8,
        ];
        check_cases(&proptest::collection::vec(any::<u8>(), 0..40), 256, |noise| {
            let _ = binary_row_digest(&columns, &noise);
            let _ = text_row_digest(&columns, &noise);
            let _ = texts(columns.len(), &noise);
            Ok(())
        });
    }

    #[test]
    fn both_formats_of_dates_and_times_are_equal() {
        let at = |more: &[u8]| [&[0xe8, 0x07, 5, 6], more].concat();
        let cases: [(&[u8], &str); 6] = [
            (&[], "0000-00-00"),
            (&[], "0000-00-00 00:00:00.000000"),
            (&at(&[]), "2024-05-06"),
            (&at(&[]), "2024-05-06 00:00:00.000"),
            (&at(&[17, 8, 9]), "2024-05-06 17:08:09"),
            (&at(&[17, 8, 9, 0x78, 0x3f, 7, 0]), "2024-05-06 17:08:09.475"),
        ];
        for (binary, text) in cases {
            let expected = text_date_time(text.as_bytes());
            assert_eq!(binary_date_time(binary), Ok(expected), "{text}");
        }
        let cases: [(&[u8], &str); 4] = [
            (&[], "00:00:00"),
            (&[0, 0, 0, 0, 0, 7, 8, 9], "07:08:09"),
            (&[1, 34, 0, 0, 0, 22, 59, 59], "-838:59:59.00"),
            (&[1, 0, 0, 0, 0, 0, 0, 1, 0x20, 0xa1, 7, 0], "-00:00:01.500000"),
        ];
        for (binary, text) in cases {
            assert_eq!(binary_time(binary), Ok(text_time(text.as_bytes())), "{text}");
        }
    }

    #[test]
    fn other_values_differ() {
        let texts = ["2024-05-06", "2024-06-05", "2024-05-06 00:00:01", "9999-12-31 23:59:59.9"];
        let mut digests: Vec<u64> = texts.map(|text| text_date_time(text.as_bytes())).to_vec();
        digests
            .extend(["00:00:01", "-00:00:01", "00:01:00"].map(|text| text_time(text.as_bytes())));
        for (number, digest) in digests.iter().enumerate() {
            assert!(!digests[..number].contains(digest), "{number}");
        }
    }

    #[test]
    fn truncated_values_are_malformed() {
        for length in [1, 3, 5, 6, 8, 10] {
            assert_eq!(binary_date_time(&[1; 11][..length]), Err(Malformed), "{length}");
        }
        for length in [1, 7, 9, 11] {
            assert_eq!(binary_time(&[1; 12][..length]), Err(Malformed), "{length}");
        }
    }
}
