//! The files of profiles: raw counts, and stored profiles.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use sha2::Digest;

use rustix::fs::{Mode, OFlags};

use super::ProfileWriter;
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
        let _ = fs::remove_dir_all(path);
        let own = || match writer {
            Some(ProfileWriter { uid, gid }) => lchown(path, Some(*uid), Some(*gid)),
            None => Ok(()),
        };
        fs::create_dir_all(path)
            .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o700)))
            .and_then(|()| own())
            .map_err(|error| BuildError::io("making", path, error))
    }
}

/// Copies a regular file written by another user, without following symbolic links.
pub(crate) fn copy_regular(from: &Path, to: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(from, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no regular file"));
    }
    io::copy(&mut file, &mut File::create(to)?).map(drop)
}

/// All regular files below a directory, by relative path. Symbolic links are skipped, because their
/// targets are not part of the profile.
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn symbolic_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (raw, secret) = (dir.path().join("raw"), dir.path().join("secret"));
        fs::create_dir_all(raw.join("inner")).unwrap();
        fs::create_dir(&secret).unwrap();
        fs::write(secret.join("key"), "geheim").unwrap();
        fs::write(raw.join("inner/a.gcda"), "counts").unwrap();
        symlink(secret.join("key"), raw.join("b.gcda")).unwrap();
        symlink(&secret, raw.join("folder")).unwrap();
        let names: Vec<String> = files(&raw).unwrap().into_keys().collect();
        assert_eq!(names, ["inner/a.gcda"]);
        let to = dir.path().join("copy");
        copy_regular(&raw.join("inner/a.gcda"), &to).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"counts");
        assert!(copy_regular(&raw.join("b.gcda"), &to).is_err());
        assert!(copy_regular(Path::new("/dev/zero"), &to).is_err());
    }
}
