//! Reading little-endian and LEB128 numbers from memory, and writing LEB128.

/// Memory whose content does not change, by absolute address.
pub(crate) trait ConstantMemory {
    /// `size` bytes at `address`; `None` where they are not available or not constant.
    fn constant_bytes(&self, address: u64, size: usize) -> Option<&[u8]>;

    /// Whether absolute addresses in it still have to be relocated by the loader.
    fn needs_relocation(&self) -> bool;
}

/// Reads constant memory sequentially.
pub(crate) struct Cursor<'a> {
    memory: &'a dyn ConstantMemory,
    at: u64,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(memory: &'a dyn ConstantMemory, at: u64) -> Self {
        Self { memory, at }
    }

    /// Address of the next byte.
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

/// Appends an unsigned LEB128 number.
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
