//! What is put into a process.

use std::ops::Range;

use dbdyno_relayout::AddressMap;
use serde::{Deserialize, Serialize};

/// Bytes of the program that are replaced to lead into new code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JumpPatch {
    /// Where.
    pub address: u64,
    /// What the program has there.
    #[serde(with = "hex")]
    pub original: Vec<u8>,
    /// What leads to the new code; as long as the original.
    #[serde(with = "hex")]
    pub patch: Vec<u8>,
}

impl JumpPatch {
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
    pub blocks: Vec<MemoryBlock>,
    /// What leads there.
    pub entries: Vec<JumpPatch>,
    /// Addresses, inside the blocks, of unwind information in the form of `.eh_frame`, each ended
    /// by a zero length.
    pub frames: Vec<u64>,
    /// Names for the new code.
    pub names: Vec<CodeSymbol>,
    /// Bytes of the new code that are replaced, when something else takes its place, to lead back
    /// to the entries: calls among functions of the new code leave it that way.
    pub exits: Vec<JumpPatch>,
    /// Which instruction stands for which.
    pub map: AddressMap,
}

/// Bytes at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryBlock {
    /// Where they go.
    pub address: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A name for a piece of new code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeSymbol {
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
        let entry = JumpPatch { address: 0x1ffd, original: vec![0, 1], patch: vec![0xe9, 0xff] };
        let text = serde_json::to_string(&entry).unwrap();
        assert!(text.contains("\"e9ff\""), "{text}");
        assert_eq!(serde_json::from_str::<JumpPatch>(&text).unwrap(), entry);
        assert!(entry.is_on_one_page());
        assert!(!JumpPatch { address: 0x1fff, ..entry.clone() }.is_on_one_page());
        assert!(serde_json::from_str::<JumpPatch>(&text.replace("e9ff", "e9f")).is_err());
    }
}
