/// The parameters of one execution; reused for the next one without allocating.
#[derive(Clone, Debug, Default)]
pub struct Params {
    values: Vec<Param>,
    text: Vec<u8>,
}

/// A parameter; a text refers to the bytes in its [`Params`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Param {
    /// A 64-bit integer.
    Int(i64),
    Null,
    Text {
        /// Offset of its first byte.
        start: u32,
        /// Length in bytes.
        len: u32,
    },
}

impl Params {
    /// Removes all values and keeps the memory.
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

    /// Appends NULL.
    #[inline]
    pub fn push_null(&mut self) {
        self.values.push(Param::Null);
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
    /// If `start` and `len` are not from this list.
    #[inline]
    #[must_use]
    pub fn text(&self, start: u32, len: u32) -> &[u8] {
        &self.text[start as usize..(start + len) as usize]
    }
}
