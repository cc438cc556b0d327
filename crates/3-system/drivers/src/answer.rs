/// Counts and digest of the result of one execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Rows returned.
    pub rows: u64,
    /// Rows changed by a statement that returns no rows.
    pub affected: u64,
    /// Wrapping sum over all values: integers as they are, texts as length plus first eight bytes.
    /// Independent of the order of rows. The same query on the same data has the same digest.
    pub digest: u64,
}

/// A text's contribution to [`Answer::digest`].
#[inline(always)]
pub(crate) fn text_digest(text: &[u8]) -> u64 {
    let head = match text.first_chunk::<8>() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => text.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    };
    head.wrapping_add(text.len() as u64)
}
