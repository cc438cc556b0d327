//! The address maps of a process's generations, in files beside its journal.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dbdyno_relayout::AddressMap;

use crate::LiveError;

/// The maps by number of the generation. Each file is read once, because every switch needs all of them.
#[derive(Debug)]
pub(crate) struct AddressMaps {
    directory: PathBuf,
    known: Mutex<BTreeMap<u32, Arc<AddressMap>>>,
}

impl AddressMaps {
    /// The maps in a directory.
    pub(crate) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), known: Mutex::default() }
    }

    /// Stores the map of a generation.
    ///
    /// # Errors
    /// It could not be written.
    pub(crate) fn store(&self, number: u32, map: &AddressMap) -> Result<(), LiveError> {
        let path = path(&self.directory, number);
        let written = postcard::to_allocvec(map)
            .map_err(std::io::Error::other)
            .and_then(|bytes| fs::write(&path, bytes));
        written.map_err(LiveError::file("writing", &path))?;
        self.known().insert(number, Arc::new(map.clone()));
        Ok(())
    }

    /// The map of a generation; empty if none is stored.
    pub(crate) fn get(&self, number: u32) -> Arc<AddressMap> {
        let read = || Arc::new(read(&self.directory, number));
        self.known().entry(number).or_insert_with(read).clone()
    }

    /// Removes the map of a generation.
    pub(crate) fn remove(&self, number: u32) {
        self.known().remove(&number);
        // If it fails, the file stays until the process exits.
        let _ = fs::remove_file(path(&self.directory, number));
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<AddressMap>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The map of a generation in the directory of any process; empty if none is stored.
pub(crate) fn read(directory: &Path, number: u32) -> AddressMap {
    let bytes = fs::read(path(directory, number)).unwrap_or_default();
    postcard::from_bytes(&bytes).unwrap_or_default()
}

fn path(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("map-{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_is_found_by_this_and_other_readers_until_it_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let map = AddressMap::new(vec![(1, 2)], vec![(2, 1)]);
        let maps = AddressMaps::new(directory.path());
        assert_eq!(*maps.get(1), AddressMap::default());
        maps.store(1, &map).unwrap();
        assert_eq!(*maps.get(1), map);
        assert_eq!(*AddressMaps::new(directory.path()).get(1), map);
        maps.remove(1);
        assert_eq!(*maps.get(1), AddressMap::default());
        assert_eq!(read(directory.path(), 1), AddressMap::default());
    }
}
