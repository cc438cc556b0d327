//! The files of profiles: raw counts, and stored profiles.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use sha2::Digest;

use super::ProfileWriter;
use crate::removal::remove;
use crate::{BuildError, Sha256};

/// A directory for counts, accessible only to the user that writes them.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) path: PathBuf,
    pub(crate) writer: Option<ProfileWriter>,
}

impl Raw {
    /// Recreates the directory, empty. No program may be writing to it.
    pub(crate) fn empty(&self) -> Result<(), BuildError> {
        let Self { path, writer } = self;
        let own = || match writer {
            Some(ProfileWriter { uid, gid }) => lchown(path, Some(*uid), Some(*gid)),
            None => Ok(()),
        };
        // The writer may have other processes, which add files; then this fails.
        remove(path)
            .and_then(|()| fs::create_dir(path))
            .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o700)))
            .and_then(|()| own())
            .map_err(|error| BuildError::io("making", path, error))
    }
}

/// All regular files below a directory of the cache, by relative path.
pub(super) fn files(folder: &Path) -> io::Result<BTreeMap<String, PathBuf>> {
    let mut all = BTreeMap::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(inner) = waiting.pop() {
        for entry in fs::read_dir(inner)? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() {
                waiting.push(path);
            } else if kind.is_file() {
                let name = path.strip_prefix(folder).unwrap_or(&path);
                all.insert(name.to_string_lossy().into_owned(), path);
            }
        }
    }
    Ok(all)
}

/// The checksum of a profile's files.
pub(super) fn content(data: &Path) -> io::Result<Sha256> {
    let mut hasher = sha2::Sha256::new();
    for (name, path) in files(data)? {
        hasher.update((name.len() as u64).to_le_bytes());
        hasher.update(name);
        hasher.update(Sha256::of_file(&path)?.as_bytes());
    }
    Ok(Sha256::finish(hasher))
}
