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
    /// A map of the given pairs (original, copy), and of places in the copy that stand for an
    /// original address without being its copy (added jumps; copy, original).
    pub(crate) fn new(mut copies: Vec<(u64, u64)>, added: &[(u64, u64)]) -> Self {
        copies.sort_unstable();
        let mut originals: Vec<_> =
            copies.iter().map(|&(original, copy)| (copy, original)).collect();
        originals.extend_from_slice(added);
        // Elided instructions share an address with what follows them; the one that is really
        // there comes last in the original order.
        originals.sort_unstable();
        originals.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                earlier.1 = later.1;
            }
            same
        });
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
