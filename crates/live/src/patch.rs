//! What is put into a process.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Bytes of the program that are replaced to lead into new code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Where.
    pub address: u64,
    /// What the program has there.
    #[serde(with = "hex")]
    pub original: Vec<u8>,
    /// What leads to the new code; as long as the original.
    #[serde(with = "hex")]
    pub patch: Vec<u8>,
}

impl Entry {
    /// The addresses that it covers.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.address..self.address + self.patch.len() as u64
    }

    /// Whether it can be replaced in one go: it lies on one page.
    #[must_use]
    pub fn is_on_one_page(&self) -> bool {
        const PAGE: u64 = 4096;
        !self.patch.is_empty()
            && self.original.len() == self.patch.len()
            && self.address / PAGE == (self.range().end - 1) / PAGE
    }
}

/// New code and what leads there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// Code and read-only data with their addresses, inside the reserved region.
    pub blocks: Vec<Block>,
    /// What leads there.
    pub entries: Vec<Entry>,
    /// Addresses, inside the blocks, of unwind information in the form of `.eh_frame`, each ended
    /// by a zero length.
    pub frames: Vec<u64>,
    /// Names for the new code.
    pub names: Vec<Name>,
    /// Bytes of the new code that are replaced, when something else takes its place, to lead back
    /// to the entries: calls among functions of the new code leave it that way.
    pub exits: Vec<Entry>,
    /// Which instruction stands for which.
    pub map: Equivalence,
}

/// Instructions of the program and the equivalent ones of new code. A thread that stands at one
/// may be moved to the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Equivalence {
    /// From the program to the new code, ascending.
    pub copies: Vec<(u64, u64)>,
    /// From the new code to the program, ascending.
    pub originals: Vec<(u64, u64)>,
}

impl Equivalence {
    /// The instruction of the new code that stands for one of the program.
    #[must_use]
    pub fn to_copy(&self, original: u64) -> Option<u64> {
        find(&self.copies, original)
    }

    /// The instruction of the program that one of the new code stands for.
    #[must_use]
    pub fn to_original(&self, copy: u64) -> Option<u64> {
        find(&self.originals, copy)
    }
}

fn find(pairs: &[(u64, u64)], wanted: u64) -> Option<u64> {
    let found = pairs.binary_search_by_key(&wanted, |pair| pair.0).ok()?;
    Some(pairs[found].1)
}

/// Bytes at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where they go.
    pub address: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A name for a piece of new code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The code's addresses.
    pub range: Range<u64>,
    /// What tools call it.
    pub name: String,
}

/// Bytes as text in JSON.
pub(crate) mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        to.serialize_str(&text)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        if !text.is_ascii() || text.len() % 2 == 1 {
            return Err(D::Error::custom("an odd number of hexadecimal digits"));
        }
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).map_err(D::Error::custom))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_survives_being_stored() {
        let entry = Entry { address: 0x1ffd, original: vec![0, 1], patch: vec![0xe9, 0xff] };
        let text = serde_json::to_string(&entry).unwrap();
        assert!(text.contains("\"e9ff\""), "{text}");
        assert_eq!(serde_json::from_str::<Entry>(&text).unwrap(), entry);
        assert!(entry.is_on_one_page());
        assert!(!Entry { address: 0x1fff, ..entry.clone() }.is_on_one_page());
        assert!(serde_json::from_str::<Entry>(&text.replace("e9ff", "e9f")).is_err());
    }
}
