//! Encoded pointers of unwind information (`DW_EH_PE_…`).

use gimli::{DW_EH_PE_indirect, DW_EH_PE_pcrel};

use crate::bytes::Cursor;

/// A pointer to a value, or to a pointer to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Reference {
    pub(crate) address: u64,
    /// Whether the value's address is stored at `address`.
    pub(crate) indirect: bool,
}

/// Bytes of a pointer in a type table. `None`: its length varies.
pub(crate) fn size_of(encoding: u8) -> Option<u64> {
    match encoding & 0x0f {
        0x00 | 0x04 | 0x0c => Some(8),
        0x02 | 0x0a => Some(2),
        0x03 | 0x0b => Some(4),
        _ => None,
    }
}

/// Reads an encoded number.
pub(crate) fn value(cursor: &mut Cursor, encoding: u8) -> Option<u64> {
    match encoding {
        0x00 | 0x04 | 0x0c => cursor.u64(),
        0x01 => cursor.uleb(),
        0x09 => cursor.sleb().map(i64::cast_unsigned),
        0x02 => cursor.u16().map(u64::from),
        0x0a => cursor.u16().map(|value| i64::from(value.cast_signed()).cast_unsigned()),
        0x03 => cursor.u32().map(u64::from),
        0x0b => cursor.u32().map(|value| i64::from(value.cast_signed()).cast_unsigned()),
        _ => None,
    }
}

/// Reads an encoded pointer; the inner `None` is the null pointer.
pub(crate) fn pointer(cursor: &mut Cursor, encoding: u8) -> Option<Option<Reference>> {
    let at = cursor.address();
    let raw = value(cursor, encoding & 0x0f)?;
    if raw == 0 {
        return Some(None);
    }
    let indirect = encoding & DW_EH_PE_indirect.0 != 0;
    match encoding & 0x70 {
        relative if relative == DW_EH_PE_pcrel.0 => {
            Some(Some(Reference { address: at.wrapping_add(raw), indirect }))
        }
        // The loader relocates absolute pointers, unless the module is at its link-time address.
        0 if !cursor.needs_relocation() => Some(Some(Reference { address: raw, indirect })),
        _ => None,
    }
}
