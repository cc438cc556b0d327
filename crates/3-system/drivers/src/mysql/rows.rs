//! Rows: their contribution to the digest, and their text.

use super::column_type::ColumnType;
use super::temporal::{binary_date_time, binary_time, text_date_time, text_time};
use super::wire::{Cursor, Malformed};
use crate::answer::text_digest;

/// NULL, in place of a value's length in a text row.
pub(super) const NULL: u8 = 0xfb;

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
        if cursor.rest().first() == Some(&NULL) {
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
pub(super) fn texts(columns: usize, row: &[u8]) -> Result<Vec<Option<String>>, Malformed> {
    let mut cursor = Cursor::new(row);
    (0..columns)
        .map(|_| {
            if cursor.rest().first() == Some(&NULL) {
                return cursor.u8().map(|_| None);
            }
            cursor.string().map(|text| Some(String::from_utf8_lossy(text).into_owned()))
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
                Value::Null(_) => row.push(NULL),
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
                    Value::Int(_, value) => prop_assert_eq!(text, Some(value.to_string())),
                    Value::Text(value) => {
                        prop_assert_eq!(text, Some(String::from_utf8_lossy(value).into_owned()));
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
}
