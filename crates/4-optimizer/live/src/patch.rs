//! New code for a process.

use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock};

use dbdyno_relayout::{AddressMap, EntryPatch, Region, Symbol};
use serde::ser::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// Bytes to write over existing ones: a jump over code, or the address of a copy over that of the original function
/// in a virtual table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BytePatch {
    pub address: u64,
    /// The bytes before the patch.
    #[serde(with = "hex")]
    pub original: Vec<u8>,
    /// The new bytes; as many as the original ones.
    #[serde(with = "hex")]
    pub patch: Vec<u8>,
}

impl BytePatch {
    pub fn range(&self) -> Range<u64> {
        self.address..self.address + self.patch.len() as u64
    }

    /// Whether it is a jump; otherwise it is an address.
    pub const fn is_jump(&self) -> bool {
        self.patch.len() == JUMP_SIZE
    }

    /// Whether it can be written atomically: it is on one page.
    pub fn is_on_one_page(&self) -> bool {
        !self.patch.is_empty()
            && self.original.len() == self.patch.len()
            && self.address / PAGE == (self.range().end - 1) / PAGE
    }
}

pub(crate) const PAGE: u64 = 4096;
/// Size of a jump in bytes. An address has 8.
pub(crate) const JUMP_SIZE: usize = EntryPatch::SIZE as usize;

/// New code and what leads to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// Code and read-only data, inside the reserved memory.
    pub blocks: Vec<Region>,
    /// Jumps from the original code to the new code, and addresses of the new code for virtual tables.
    pub entries: Vec<BytePatch>,
    /// Addresses of `.eh_frame` sections inside the blocks, each ending with a zero length.
    pub frames: Vec<u64>,
    pub symbols: Vec<Symbol>,
    /// Jumps from the new code back to the entries, written when the new code becomes inactive: so
    /// calls between functions of the new code leave it.
    pub exits: Vec<BytePatch>,
    /// Addresses of original and copied instructions.
    pub map: AddressMap,
}

/// Bytes as hexadecimal text in JSON.
pub(crate) mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        // Thousands are written at each switch.
        let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value & 15)]);
        let text: String = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect();
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

/// Patches that are shared by all copies of a journal's record. They are thousands, and the journal is written twice
/// at each switch, so their JSON text is made once.
#[derive(Clone, Debug, Default)]
pub struct PatchList(Arc<SharedPatches>);

#[derive(Debug, Default)]
struct SharedPatches {
    patches: Vec<BytePatch>,
    json: OnceLock<Box<RawValue>>,
}

impl From<Vec<BytePatch>> for PatchList {
    fn from(patches: Vec<BytePatch>) -> Self {
        Self(Arc::new(SharedPatches { patches, json: OnceLock::new() }))
    }
}

impl Deref for PatchList {
    type Target = [BytePatch];

    fn deref(&self) -> &[BytePatch] {
        &self.0.patches
    }
}

impl PartialEq for PatchList {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || **self == **other
    }
}

impl Eq for PatchList {}

impl Serialize for PatchList {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if let Some(json) = self.0.json.get() {
            return json.serialize(to);
        }
        let json = serde_json::value::to_raw_value(&self.0.patches).map_err(S::Error::custom)?;
        self.0.json.get_or_init(|| json).serialize(to)
    }
}

impl<'de> Deserialize<'de> for PatchList {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Vec::deserialize(from).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patch_is_unchanged_after_serialization() {
        let entry = BytePatch { address: 0x1ffd, original: vec![0, 1], patch: vec![0xe9, 0xff] };
        let text = serde_json::to_string(&entry).unwrap();
        assert!(text.contains("\"e9ff\""), "{text}");
        assert_eq!(serde_json::from_str::<BytePatch>(&text).unwrap(), entry);
        assert!(entry.is_on_one_page());
        assert!(!BytePatch { address: 0x1fff, ..entry.clone() }.is_on_one_page());
        assert!(serde_json::from_str::<BytePatch>(&text.replace("e9ff", "e9f")).is_err());
    }

    #[test]
    fn list_is_written_as_its_patches_again_and_again() {
        let patch = BytePatch { address: 9, original: vec![1; 5], patch: vec![0xe9; 5] };
        let patches = vec![patch.clone(), BytePatch { address: 20, ..patch }];
        let list = PatchList::from(patches.clone());
        let expected = serde_json::to_string(&patches).unwrap();
        for _ in 0..2 {
            assert_eq!(serde_json::to_string(&list).unwrap(), expected);
            assert_eq!(serde_json::to_value(&list).unwrap()[1]["address"], 20);
        }
        let read: PatchList = serde_json::from_str(&expected).unwrap();
        assert_eq!(read, list);
        assert_ne!(read, PatchList::from(patches[..1].to_vec()));
    }
}
