//! Columns of a result: how they are asked for, and what their values add to the digest.

use dbdyno_record::server::StatementMode;

use super::wire::{Fields, Malformed, NULL};
use crate::answer::text_digest;

/// The numbers of the types that are more than text to us, fixed in PostgreSQL's `pg_type.dat`.
pub(super) mod oid {
    pub(crate) const INT8: u32 = 20;
    pub(crate) const INT2: u32 = 21;
    pub(crate) const INT4: u32 = 23;
    pub(crate) const BPCHAR: u32 = 1042;
}

/// How the values of a column are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// An integer of two, four or eight bytes.
    Int,
    /// An integer in digits.
    Digits,
    /// A text of fixed length, which the server fills up with spaces. They mean nothing, and other
    /// systems take them off before they send the value.
    Padded,
    /// A text; also the text form of any other type.
    Text,
}

impl Reading {
    pub(super) fn of(kind: u32, mode: StatementMode) -> Self {
        match (kind, mode) {
            (oid::INT2 | oid::INT4 | oid::INT8, StatementMode::Prepared) => Self::Int,
            (oid::INT2 | oid::INT4 | oid::INT8, StatementMode::Text) => Self::Digits,
            (oid::BPCHAR, _) => Self::Padded,
            _ => Self::Text,
        }
    }

    /// What one value adds to the digest; `None` where it cannot be of this kind.
    #[inline(always)]
    fn digest(self, value: &[u8]) -> Option<u64> {
        match self {
            Self::Text => Some(text_digest(value)),
            Self::Int => match value.len() {
                4 => value.first_chunk().map(|bytes| i32::from_be_bytes(*bytes) as u64),
                8 => value.first_chunk().map(|bytes| u64::from_be_bytes(*bytes)),
                2 => value.first_chunk().map(|bytes| i16::from_be_bytes(*bytes) as u64),
                _ => None,
            },
            Self::Digits => digits(value),
            Self::Padded => Some(text_digest(without_padding(value))),
        }
    }
}

/// Not inlined, to leave the loop over values its registers.
#[inline(never)]
fn digits(value: &[u8]) -> Option<u64> {
    let value: i64 = std::str::from_utf8(value).ok()?.parse().ok()?;
    Some(value as u64)
}

#[inline(always)]
fn without_padding(value: &[u8]) -> &[u8] {
    let end = value.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
    &value[..end]
}

/// Hands out the types of the columns of a RowDescription.
pub(super) fn each_column(body: &[u8], mut each: impl FnMut(u32)) -> Result<(), Malformed> {
    let mut fields = Fields(body);
    for _ in 0..fields.count()? {
        fields.text()?;
        // The table, and the column in it.
        fields.bytes(4 + 2)?;
        each(fields.number()?);
        // Size, modifier, format.
        fields.bytes(2 + 4 + 2)?;
    }
    Ok(())
}

/// Replaces `columns` by those of a RowDescription in text mode; keeps their memory.
pub(super) fn read_columns(body: &[u8], columns: &mut Vec<Reading>) -> Result<(), Malformed> {
    columns.clear();
    each_column(body, |kind| columns.push(Reading::of(kind, StatementMode::Text)))
}

/// What a DataRow adds to the digest; `None` where it is not a row of these columns.
#[inline(always)]
pub(super) fn row_digest(body: &[u8], columns: &[Reading]) -> Option<u64> {
    let (count, mut rest) = body.split_first_chunk()?;
    if usize::from(u16::from_be_bytes(*count)) != columns.len() {
        return None;
    }
    let mut sum = 0_u64;
    for reading in columns {
        let (length, behind) = rest.split_first_chunk()?;
        rest = behind;
        let length = u32::from_be_bytes(*length);
        if length == NULL {
            continue;
        }
        let (value, behind) = rest.split_at_checked(length as usize)?;
        rest = behind;
        sum = sum.wrapping_add(reading.digest(value)?);
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[Option<&[u8]>]) -> Vec<u8> {
        let mut body = (values.len() as u16).to_be_bytes().to_vec();
        for value in values {
            match value {
                None => body.extend_from_slice(&(-1_i32).to_be_bytes()),
                Some(value) => {
                    body.extend_from_slice(&(value.len() as i32).to_be_bytes());
                    body.extend_from_slice(value);
                }
            }
        }
        body
    }

    #[test]
    fn integers_are_extended_by_their_sign_in_every_form() {
        for (value, expected) in [
            (&(-7_i16).to_be_bytes()[..], -7),
            (&(-70_000_i32).to_be_bytes(), -70_000),
            (&(-7_000_000_000_i64).to_be_bytes(), -7_000_000_000_i64),
        ] {
            assert_eq!(row_digest(&row(&[Some(value)]), &[Reading::Int]), Some(expected as u64));
            let digits = expected.to_string();
            let body = row(&[Some(digits.as_bytes())]);
            assert_eq!(row_digest(&body, &[Reading::Digits]), Some(expected as u64));
        }
    }

    #[test]
    fn padding_adds_nothing() {
        let padded = row(&[Some(b" ab c  ")]);
        let bare = row(&[Some(b" ab c")]);
        let text = row_digest(&bare, &[Reading::Text]);
        assert_eq!(row_digest(&padded, &[Reading::Padded]), text);
        assert_eq!(row_digest(&bare, &[Reading::Padded]), text);
        assert_ne!(row_digest(&padded, &[Reading::Text]), text);
        assert_eq!(row_digest(&row(&[Some(b"  ")]), &[Reading::Padded]), Some(text_digest(b"")));
    }

    #[test]
    fn nulls_add_nothing() {
        let body = row(&[None, Some(b"abc"), None, Some(&[0, 5])]);
        let readings = [Reading::Int, Reading::Text, Reading::Digits, Reading::Int];
        assert_eq!(row_digest(&body, &readings), Some(text_digest(b"abc").wrapping_add(5)));
    }

    #[test]
    fn rows_that_cannot_be_are_none() {
        for (body, readings) in [
            (&row(&[Some(b"abc")])[..], &[Reading::Int][..]),
            (&row(&[Some(b"abc")]), &[Reading::Digits]),
            (&row(&[None]), &[Reading::Text; 2]),
            (b"\0\x01\0\0\0\x05abcd", &[Reading::Text]),
            (b"\0\x01\xff\xff\xff\xfe", &[Reading::Text]),
            (b"", &[]),
        ] {
            assert_eq!(row_digest(body, readings), None, "{body:?}");
        }
    }
}
