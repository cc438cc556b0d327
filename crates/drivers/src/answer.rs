/// What one execution returned, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Rows returned.
    pub rows: u64,
    /// Rows changed, for a statement that returns none.
    pub affected: u64,
    /// A sum over all values returned: integers as they are, texts by their length and first
    /// eight bytes. It does not depend on the order of the rows. Two databases with the same data
    /// that answer the same query have the same digest.
    pub digest: u64,
}

/// What a text adds to [`Answer::digest`].
#[inline(always)]
pub(crate) fn text_digest(text: &[u8]) -> u64 {
    let head = match text.first_chunk::<8>() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => text.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    };
    head.wrapping_add(text.len() as u64)
}
