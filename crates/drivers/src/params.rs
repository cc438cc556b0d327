/// The parameters of one execution, reused from execution to execution without allocating.
#[derive(Clone, Debug, Default)]
pub struct Params {
    values: Vec<Param>,
    text: Vec<u8>,
}

/// One parameter; a text is a part of its [`Params`]' text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Param {
    /// A 64-bit integer.
    Int(i64),
    /// A text: where it starts and how long it is.
    Text {
        /// Offset of its first byte.
        start: u32,
        /// Bytes.
        len: u32,
    },
}

impl Params {
    /// Forgets all values and keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.values.clear();
        self.text.clear();
    }

    /// Appends an integer.
    #[inline]
    pub fn push_int(&mut self, value: i64) {
        self.values.push(Param::Int(value));
    }

    /// Appends a text.
    #[inline]
    pub fn push_text(&mut self, text: &[u8]) {
        self.values.push(Param::Text { start: self.text.len() as u32, len: text.len() as u32 });
        self.text.extend_from_slice(text);
    }

    /// The values in order.
    #[inline]
    #[must_use]
    pub fn values(&self) -> &[Param] {
        &self.values
    }

    /// The bytes of a text among the values.
    ///
    /// # Panics
    /// When `start` and `len` are not of this list.
    #[inline]
    #[must_use]
    pub fn text(&self, start: u32, len: u32) -> &[u8] {
        &self.text[start as usize..(start + len) as usize]
    }
}
