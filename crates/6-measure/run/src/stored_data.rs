//! The data of a run that is still stored: for an interrupted run, to resume it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use dbdyno_engines::server::external_servers;
use dbdyno_results::RunDirectory;
use dbdyno_units::Bytes;

/// The unit of `st_blocks`.
const BLOCK: u64 = 512;

/// Databases of a run in directories of this machine. What is on existing servers is not included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredData {
    /// Directories with files, and the disk space of these.
    pub places: Vec<(PathBuf, Bytes)>,
}

impl StoredData {
    /// The stored data of the run in a directory, as far as this user may read it. Links are not
    /// followed, except that to the servers' data, if dbdyno made it.
    #[must_use]
    pub fn of(run: &Path) -> Self {
        let data = RunDirectory::at(run).data();
        let external = external_servers(&data);
        let mut places = Vec::new();
        for place in std::iter::once(data).chain(external) {
            // Files beside the directories of databases, such as the one that names the run, are no data.
            let size = subdirectories(&place).iter().map(|one| size_of(one)).sum();
            if size > 0 {
                places.push((place, Bytes::from_bytes(size)));
            }
        }
        Self { places }
    }

    /// The disk space of everything.
    #[must_use]
    pub fn total(&self) -> Bytes {
        Bytes::from_bytes(self.places.iter().map(|(_, size)| size.as_bytes()).sum())
    }
}

fn subdirectories(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|one| one.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|one| one.path()).collect()
}

/// The disk space of all files in a directory; 0 if it does not exist. Files that are copies may share
/// blocks with others, and count in full.
fn size_of(directory: &Path) -> u64 {
    let mut size = 0;
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries {
        let Ok(metadata) = entry.path().symlink_metadata() else { continue };
        if metadata.is_dir() {
            size += size_of(&entry.path());
        } else if metadata.is_file() {
            size += metadata.blocks() * BLOCK;
        }
    }
    size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_data_of_the_run_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        assert_eq!(StoredData::of(dir.path()), StoredData::default());
        fs::create_dir_all(data.join("a/empty")).unwrap();
        fs::write(data.join("run.txt"), "no data").unwrap();
        // A link that dbdyno did not make is not followed.
        let other = tempfile::tempdir().unwrap();
        fs::write(other.path().join("precious"), [1; 100_000]).unwrap();
        std::os::unix::fs::symlink(other.path(), data.join("servers")).unwrap();
        assert_eq!(StoredData::of(dir.path()), StoredData::default());
        fs::write(data.join("a/test.sqlite"), [1; 100_000]).unwrap();
        let stored = StoredData::of(dir.path());
        assert_eq!(stored.places[0].0, data);
        assert!(stored.total() >= Bytes::from_bytes(100_000), "{stored:?}");
        assert!(stored.total() < Bytes::from_bytes(200_000), "{stored:?}");
    }
}
