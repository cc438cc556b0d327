//! Reading little-endian and LEB128 numbers from memory.

use gimli::{DW_EH_PE_indirect, DW_EH_PE_pcrel};

/// Memory whose content does not change, by absolute address.
pub(crate) trait ConstantMemory {
    /// `size` bytes at `address`; `None` where they are not available or not constant.
    fn constant_bytes(&self, address: u64, size: usize) -> Option<&[u8]>;

    /// Whether absolute addresses in it still have to be relocated by the loader.
    fn needs_relocation(&self) -> bool;
}

pub(crate) struct Cursor<'a> {
    memory: &'a dyn ConstantMemory,
    at: u64,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(memory: &'a dyn ConstantMemory, at: u64) -> Self {
        Self { memory, at }
    }

    pub(crate) fn address(&self) -> u64 {
        self.at
    }

    /// See [`ConstantMemory::needs_relocation`].
    pub(crate) fn needs_relocation(&self) -> bool {
        self.memory.needs_relocation()
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.memory.constant_bytes(self.at, N)?.try_into().ok()?;
        self.at += N as u64;
        Some(bytes)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    pub(crate) fn uleb(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub(crate) fn sleb(&mut self) -> Option<i64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            value |= i64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let negative = byte & 0x40 != 0 && shift + 7 < 64;
                return Some(if negative { value | -1 << (shift + 7) } else { value });
            }
        }
        None
    }
}

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
