//! The patches of a generation, in the journal.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::ser::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::patch::BytePatch;

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
