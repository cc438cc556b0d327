//! Reading and writing little-endian and variable-length numbers.

/// Bytes by absolute address that nobody changes.
pub(crate) trait ConstantMemory {
    /// `size` bytes from `address` on.
    fn constant_bytes(&self, address: u64, size: usize) -> Option<&[u8]>;

    /// Whether absolute addresses in it are not yet what they will be in the process.
    fn is_moved(&self) -> bool;
}

/// Reads constant bytes one after the other.
pub(crate) struct Cursor<'a> {
    memory: &'a dyn ConstantMemory,
    at: u64,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(memory: &'a dyn ConstantMemory, at: u64) -> Self {
        Self { memory, at }
    }

    /// Where the next byte is.
    pub(crate) fn address(&self) -> u64 {
        self.at
    }

    /// Whether absolute addresses are not yet what they will be.
    pub(crate) fn is_moved(&self) -> bool {
        self.memory.is_moved()
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

/// Appends an unsigned number of variable length.
pub(crate) fn put_uleb(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            out.push(byte);
            return;
        }
        out.push(byte | 0x80);
    }
}

/// Appends a signed number of variable length.
pub(crate) fn put_sleb(out: &mut Vec<u8>, mut value: i64) {
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        if (value == 0 && byte & 0x40 == 0) || (value == -1 && byte & 0x40 != 0) {
            out.push(byte);
            return;
        }
        out.push(byte | 0x80);
    }
}
