//! Types of result columns: their format, and their contribution to the digest.

use dbdyno_types::server::StatementMode;

use super::channel::{Fields, Malformed, NULL};
use crate::text_digest;

/// OIDs of types that are not handled as text, from PostgreSQL's `pg_type.dat`.
pub(super) mod oid {
    pub(crate) const INT8: u32 = 20;
    pub(crate) const INT2: u32 = 21;
    pub(crate) const INT4: u32 = 23;
    pub(crate) const BPCHAR: u32 = 1042;
}

/// How values of a column are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnType {
    /// Binary integer of two, four or eight bytes.
    Int,
    /// Integer as decimal digits.
    Digits,
    /// `char(n)`, which the server pads with spaces. The padding is ignored, because other systems
    /// remove it before they send the value.
    Padded,
    /// Text, or the text form of any other type.
    Text,
}

impl ColumnType {
    pub(super) fn of(kind: u32, mode: StatementMode) -> Self {
        match (kind, mode) {
            (oid::INT2 | oid::INT4 | oid::INT8, StatementMode::Prepared) => Self::Int,
            (oid::INT2 | oid::INT4 | oid::INT8, StatementMode::Text) => Self::Digits,
            (oid::BPCHAR, _) => Self::Padded,
            _ => Self::Text,
        }
    }

    /// The value's contribution to the digest; `None` if it does not have this type.
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

/// Not inlined, to keep registers free for the loop over values.
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

/// Calls `each` with the type of each column of a RowDescription.
pub(super) fn each_column(body: &[u8], mut each: impl FnMut(u32)) -> Result<(), Malformed> {
    let mut fields = Fields(body);
    for _ in 0..fields.count()? {
        fields.text()?;
        // Table OID and column number.
        fields.bytes(4 + 2)?;
        each(fields.number()?);
        // Size, modifier, format.
        fields.bytes(2 + 4 + 2)?;
    }
    Ok(())
}

/// Replaces `columns` with those of a RowDescription in text mode.
pub(super) fn read_columns(body: &[u8], columns: &mut Vec<ColumnType>) -> Result<(), Malformed> {
    columns.clear();
    each_column(body, |kind| columns.push(ColumnType::of(kind, StatementMode::Text)))
}

/// A DataRow's contribution to the digest; `None` if it does not match the columns.
#[inline(always)]
pub(super) fn row_digest(body: &[u8], columns: &[ColumnType]) -> Option<u64> {
    let (count, mut rest) = body.split_first_chunk()?;
    if usize::from(u16::from_be_bytes(*count)) != columns.len() {
        return None;
    }
    let mut sum = 0_u64;
    for column_type in columns {
        let (length, behind) = rest.split_first_chunk()?;
        rest = behind;
        let length = u32::from_be_bytes(*length);
        if length == NULL {
            continue;
        }
        let (value, behind) = rest.split_at_checked(length as usize)?;
        rest = behind;
        sum = sum.wrapping_add(column_type.digest(value)?);
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
    fn integers_are_sign_extended_in_every_format() {
        for (value, expected) in [
            (&(-7_i16).to_be_bytes()[..], -7),
            (&(-70_000_i32).to_be_bytes(), -70_000),
            (&(-7_000_000_000_i64).to_be_bytes(), -7_000_000_000_i64),
        ] {
            assert_eq!(row_digest(&row(&[Some(value)]), &[ColumnType::Int]), Some(expected as u64));
            let digits = expected.to_string();
            let body = row(&[Some(digits.as_bytes())]);
            assert_eq!(row_digest(&body, &[ColumnType::Digits]), Some(expected as u64));
        }
    }

    #[test]
    fn padding_is_ignored() {
        let padded = row(&[Some(b" ab c  ")]);
        let bare = row(&[Some(b" ab c")]);
        let text = row_digest(&bare, &[ColumnType::Text]);
        assert_eq!(row_digest(&padded, &[ColumnType::Padded]), text);
        assert_eq!(row_digest(&bare, &[ColumnType::Padded]), text);
        assert_ne!(row_digest(&padded, &[ColumnType::Text]), text);
        assert_eq!(row_digest(&row(&[Some(b"  ")]), &[ColumnType::Padded]), Some(text_digest(b"")));
    }

    #[test]
    fn nulls_are_ignored() {
        let body = row(&[None, Some(b"abc"), None, Some(&[0, 5])]);
        let column_types = [ColumnType::Int, ColumnType::Text, ColumnType::Digits, ColumnType::Int];
        assert_eq!(row_digest(&body, &column_types), Some(text_digest(b"abc").wrapping_add(5)));
    }

    #[test]
    fn invalid_rows_are_none() {
        for (body, column_types) in [
            (&row(&[Some(b"abc")])[..], &[ColumnType::Int][..]),
            (&row(&[Some(b"abc")]), &[ColumnType::Digits]),
            (&row(&[None]), &[ColumnType::Text; 2]),
            (b"\0\x01\0\0\0\x05abcd", &[ColumnType::Text]),
            (b"\0\x01\xff\xff\xff\xfe", &[ColumnType::Text]),
            (b"", &[]),
        ] {
            assert_eq!(row_digest(body, column_types), None, "{body:?}");
        }
    }
}
