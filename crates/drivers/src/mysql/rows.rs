//! What rows add to an answer's digest.

use super::columns::Reading;
use super::wire::{Cursor, Malformed};
use crate::answer::text_digest;

/// Stands for NULL where a value's length stands else, in rows of texts.
pub(super) const NULL: u8 = 0xfb;

/// A row in binary form.
#[inline]
pub(super) fn binary_digest(columns: &[Reading], row: &[u8]) -> Result<u64, Malformed> {
    let mut cursor = Cursor::new(row);
    // A zero byte, then a bit per column for NULL, after two that are not used.
    cursor.u8()?;
    let nulls = cursor.bytes((columns.len() + 9) / 8)?;
    let mut digest = 0u64;
    for (bit, column) in (2..).zip(columns) {
        if nulls[bit / 8] >> (bit % 8) & 1 == 1 {
            continue;
        }
        let value = match column {
            Reading::Text => text_digest(cursor.string()?),
            Reading::I64 => u64::from_le_bytes(cursor.array()?),
            Reading::I32 => i64::from(i32::from_le_bytes(cursor.array()?)) as u64,
            Reading::U32 => u64::from(u32::from_le_bytes(cursor.array()?)),
            Reading::Digits => digits(cursor.string()?),
            Reading::I16 => i64::from(i16::from_le_bytes(cursor.array()?)) as u64,
            Reading::U16 => u64::from(u16::from_le_bytes(cursor.array()?)),
            Reading::I8 => i64::from(i8::from_le_bytes(cursor.array()?)) as u64,
            Reading::U8 => u64::from(u8::from_le_bytes(cursor.array()?)),
            Reading::F32 => text_digest(&cursor.array::<4>()?),
            Reading::F64 => text_digest(&cursor.array::<8>()?),
        };
        digest = digest.wrapping_add(value);
    }
    Ok(digest)
}

/// A row in text form. Integers and texts count as in binary form; floating-point numbers, dates
/// and times do not, as they are other bytes.
#[inline]
pub(super) fn text_form_digest(columns: &[Reading], row: &[u8]) -> Result<u64, Malformed> {
    let mut cursor = Cursor::new(row);
    let mut digest = 0u64;
    for column in columns {
        if cursor.rest().first() == Some(&NULL) {
            cursor.u8()?;
            continue;
        }
        let text = cursor.string()?;
        let value = match column {
            Reading::Text | Reading::F32 | Reading::F64 => text_digest(text),
            _ => digits(text),
        };
        digest = digest.wrapping_add(value);
    }
    Ok(digest)
}

/// A row in text form as texts.
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

/// The integer that a text of digits means, modulo 2⁶⁴.
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
    use proptest::prelude::*;

    use super::*;
    use crate::mysql::wire::put_string;

    /// A value as the server holds it.
    #[derive(Clone, Debug)]
    enum Value {
        Null(Reading),
        Int(Reading, i64),
        Text(Vec<u8>),
        Double(f64),
    }

    impl Value {
        fn column(&self) -> Reading {
            match self {
                Self::Null(column) | Self::Int(column, _) => *column,
                Self::Text(_) => Reading::Text,
                Self::Double(_) => Reading::F64,
            }
        }

        /// By the definition of the digest, not by the protocol.
        fn digest(&self) -> u64 {
            match self {
                Self::Null(_) => 0,
                Self::Int(_, value) => *value as u64,
                Self::Text(text) => text_digest(text),
                Self::Double(value) => text_digest(&value.to_le_bytes()),
            }
        }
    }

    /// As the documentation of the server writes a binary row.
    fn binary(values: &[Value]) -> Vec<u8> {
        let mut row = vec![0; 1 + (values.len() + 7 + 2) / 8];
        for (index, value) in values.iter().enumerate() {
            match value {
                Value::Null(_) => row[1 + (index + 2) / 8] |= 1 << ((index + 2) % 8),
                Value::Int(column, value) => match column {
                    Reading::I8 | Reading::U8 => row.push(*value as u8),
                    Reading::I16 | Reading::U16 => row.extend((*value as u16).to_le_bytes()),
                    Reading::I32 | Reading::U32 => row.extend((*value as u32).to_le_bytes()),
                    Reading::I64 => row.extend(value.to_le_bytes()),
                    _ => put_string(&mut row, value.to_string().as_bytes()),
                },
                Value::Text(text) => put_string(&mut row, text),
                Value::Double(value) => row.extend(value.to_le_bytes()),
            }
        }
        row
    }

    fn text_form(values: &[Value]) -> Vec<u8> {
        let mut row = Vec::new();
        for value in values {
            match value {
                Value::Null(_) => row.push(NULL),
                Value::Int(_, value) => put_string(&mut row, value.to_string().as_bytes()),
                Value::Text(text) => put_string(&mut row, text),
                Value::Double(value) => put_string(&mut row, value.to_string().as_bytes()),
            }
        }
        row
    }

    fn value() -> impl Strategy<Value = Value> {
        let int = |column, value: i64| Value::Int(column, value);
        prop_oneof![
            Just(Value::Null(Reading::I32)),
            Just(Value::Null(Reading::Text)),
            any::<i8>().prop_map(move |value| int(Reading::I8, value.into())),
            any::<u8>().prop_map(move |value| int(Reading::U8, value.into())),
            any::<i16>().prop_map(move |value| int(Reading::I16, value.into())),
            any::<u16>().prop_map(move |value| int(Reading::U16, value.into())),
            any::<i32>().prop_map(move |value| int(Reading::I32, value.into())),
            any::<u32>().prop_map(move |value| int(Reading::U32, value.into())),
            any::<i64>().prop_map(move |value| int(Reading::I64, value)),
            any::<i64>().prop_map(move |value| int(Reading::Digits, value)),
            proptest::collection::vec(any::<u8>(), 0..300).prop_map(Value::Text),
            any::<f64>().prop_map(Value::Double),
        ]
    }

    proptest! {
        #[test]
        fn a_binary_row_counts_what_was_put_in(
            values in proptest::collection::vec(value(), 1..30)
        ) {
            let columns: Vec<Reading> = values.iter().map(Value::column).collect();
            let expected = values.iter().fold(0u64, |sum, value| sum.wrapping_add(value.digest()));
            let row = binary(&values);
            prop_assert_eq!(binary_digest(&columns, &row), Ok(expected));
            // A row that is cut short is never read beyond its end, and is noticed.
            if !matches!(values.last(), Some(Value::Null(_))) {
                prop_assert_eq!(binary_digest(&columns, &row[..row.len() - 1]), Err(Malformed));
            }
        }

        #[test]
        fn a_row_of_texts_counts_the_same(
            values in proptest::collection::vec(value(), 1..30)
        ) {
            let values: Vec<Value> =
                values.into_iter().filter(|value| !matches!(value, Value::Double(_))).collect();
            let columns: Vec<Reading> = values.iter().map(Value::column).collect();
            let row = text_form(&values);
            prop_assert_eq!(
                text_form_digest(&columns, &row),
                binary_digest(&columns, &binary(&values))
            );
            let read = texts(values.len(), &row).unwrap();
            for (value, text) in values.iter().zip(read) {
                match value {
                    Value::Null(_) => prop_assert_eq!(text, None),
                    Value::Int(_, value) => prop_assert_eq!(text, Some(value.to_string())),
                    Value::Text(value) => {
                        prop_assert_eq!(text, Some(String::from_utf8_lossy(value).into_owned()));
                    }
                    Value::Double(_) => {}
                }
            }
        }

        #[test]
        fn noise_is_never_read_beyond_its_end(
            noise in proptest::collection::vec(any::<u8>(), 0..40)
        ) {
            let columns = [Reading::I64, Reading::Text, Reading::Digits, Reading::I8];
            let _ = binary_digest(&columns, &noise);
            let _ = text_form_digest(&columns, &noise);
            let _ = texts(columns.len(), &noise);
        }
    }
}
