//! Which copied instruction stands for which original one.

use serde::{Deserialize, Serialize};

/// Which copied instruction stands for which original one, and back.
///
/// Jumps that were added to a copy belong to no original instruction; [`AddressMap::to_original`]
/// leads them to the instruction they jump to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressMap {
    /// Original address, address in the copy; by original address.
    copies: Vec<(u64, u64)>,
    /// Address in the copy, original address; by address in the copy.
    originals: Vec<(u64, u64)>,
}

impl AddressMap {
    /// A map of pairs (original, copy) of all copied instructions, and of pairs (copy, original)
    /// of all code that is really there.
    pub fn new(mut copies: Vec<(u64, u64)>, mut originals: Vec<(u64, u64)>) -> Self {
        copies.sort_unstable();
        originals.sort_unstable();
        Self { copies, originals }
    }

    /// The address in the copy of the instruction at `original`.
    pub fn to_copy(&self, original: u64) -> Option<u64> {
        let found = self.copies.binary_search_by_key(&original, |pair| pair.0).ok()?;
        Some(self.copies[found].1)
    }

    /// The original address of the instruction at `copy`.
    pub fn to_original(&self, copy: u64) -> Option<u64> {
        let found = self.originals.binary_search_by_key(&copy, |pair| pair.0).ok()?;
        Some(self.originals[found].1)
    }

    /// All pairs (original address, address in the copy), by original address.
    pub fn pairs(&self) -> impl ExactSizeIterator<Item = (u64, u64)> + '_ {
        self.copies.iter().copied()
    }

    /// Whether nothing was copied.
    pub fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }
}
