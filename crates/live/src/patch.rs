//! New code for a process.

use std::ops::Range;

use dbdyno_relayout::AddressMap;
use serde::{Deserialize, Serialize};

/// A jump to write over existing code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JumpPatch {
    /// Address of the jump.
    pub address: u64,
    /// The bytes before the patch.
    #[serde(with = "hex")]
    pub original: Vec<u8>,
    /// The jump; as long as the original bytes.
    #[serde(with = "hex")]
    pub patch: Vec<u8>,
}

impl JumpPatch {
    /// The patched addresses.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.address..self.address + self.patch.len() as u64
    }

    /// Whether it can be written atomically: it is on one page.
    #[must_use]
    pub fn is_on_one_page(&self) -> bool {
        const PAGE: u64 = 4096;
        !self.patch.is_empty()
            && self.original.len() == self.patch.len()
            && self.address / PAGE == (self.range().end - 1) / PAGE
    }
}

/// New code and the jumps to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// Code and read-only data, inside the reserved memory.
    pub blocks: Vec<MemoryBlock>,
    /// Jumps from the original code to the new code.
    pub entries: Vec<JumpPatch>,
    /// Addresses of `.eh_frame` sections inside the blocks, each ending with a zero length.
    pub frames: Vec<u64>,
    /// Symbols of the new code.
    pub symbols: Vec<CodeSymbol>,
    /// Jumps from the new code back to the entries, written when the new code becomes inactive: so
    /// calls between functions of the new code leave it.
    pub exits: Vec<JumpPatch>,
    /// Addresses of original and copied instructions.
    pub map: AddressMap,
}

/// Bytes at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryBlock {
    /// Start address.
    pub address: u64,
    /// Content.
    pub bytes: Vec<u8>,
}

/// A symbol of the new code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeSymbol {
    /// Address range.
    pub range: Range<u64>,
    /// Name in tools.
    pub name: String,
}

/// Bytes as hexadecimal text in JSON.
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
    fn jump_patch_is_unchanged_after_serialization() {
        let entry = JumpPatch { address: 0x1ffd, original: vec![0, 1], patch: vec![0xe9, 0xff] };
        let text = serde_json::to_string(&entry).unwrap();
        assert!(text.contains("\"e9ff\""), "{text}");
        assert_eq!(serde_json::from_str::<JumpPatch>(&text).unwrap(), entry);
        assert!(entry.is_on_one_page());
        assert!(!JumpPatch { address: 0x1fff, ..entry.clone() }.is_on_one_page());
        assert!(serde_json::from_str::<JumpPatch>(&text.replace("e9ff", "e9f")).is_err());
    }
}
