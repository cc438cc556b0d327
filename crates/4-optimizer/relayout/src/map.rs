//! Addresses of original and copied instructions.

use serde::{Deserialize, Serialize};

/// Maps original instructions to their copies and back.
///
/// Jumps that were added to a copy have no original instruction; [`AddressMap::to_original`] maps
/// them to the instruction that they jump to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressMap {
    /// Original address and copy address, by original address.
    copies: Vec<(u64, u64)>,
    /// Copy address and original address, by copy address.
    originals: Vec<(u64, u64)>,
}

impl AddressMap {
    /// A map from pairs (original, copy) of all copied instructions, and pairs (copy, original) of
    /// all instructions that exist in the copy.
    pub fn new(mut copies: Vec<(u64, u64)>, mut originals: Vec<(u64, u64)>) -> Self {
        copies.sort_unstable();
        originals.sort_unstable();
        Self { copies, originals }
    }

    /// The copy of the instruction at `original`.
    pub fn to_copy(&self, original: u64) -> Option<u64> {
        find(&self.copies, original)
    }

    /// The original of the instruction at `copy`.
    pub fn to_original(&self, copy: u64) -> Option<u64> {
        find(&self.originals, copy)
    }

    /// All pairs (original, copy), by original address.
    pub fn pairs(&self) -> impl ExactSizeIterator<Item = (u64, u64)> + '_ {
        self.copies.iter().copied()
    }
}

fn find(pairs: &[(u64, u64)], address: u64) -> Option<u64> {
    let found = pairs.binary_search_by_key(&address, |pair| pair.0).ok()?;
    Some(pairs[found].1)
}
