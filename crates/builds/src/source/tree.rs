//! Checksum of a directory.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sha2::Digest;

use crate::Sha256;

/// Computes the checksum of all files with their names, except `.git`.
pub(super) fn sha256(folder: &Path) -> io::Result<Sha256> {
    let mut hasher = sha2::Sha256::new();
    let mut waiting = vec![PathBuf::new()];
    // In reverse order, because the last one is processed next.
    while let Some(inner) = waiting.pop() {
        let mut names: Vec<_> = fs::read_dir(folder.join(&inner))?
            .map(|entry| Ok(entry?.file_name()))
            .collect::<io::Result<_>>()?;
        names.sort_unstable();
        for name in names.into_iter().rev().filter(|name| name != ".git") {
            let path = inner.join(name);
            let whole = folder.join(&path);
            let kind = fs::symlink_metadata(&whole)?.file_type();
            let content = if kind.is_dir() {
                waiting.push(path);
                continue;
            } else if kind.is_symlink() {
                Sha256::of(fs::read_link(&whole)?.as_os_str().as_bytes())
            } else if kind.is_file() {
                Sha256::of_file(&whole)?
            } else {
                continue;
            };
            let name = path.as_os_str().as_bytes();
            hasher.update((name.len() as u64).to_le_bytes());
            hasher.update(name);
            hasher.update([u8::from(kind.is_symlink())]);
            hasher.update(content.as_bytes());
        }
    }
    Ok(Sha256::finish(hasher))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_depends_on_names_and_contents_but_not_on_git() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            sha256(folder.path()).unwrap()
        };
        let first = write("a/b.c", "int x;");
        let second = write("a/b.c", "int y;");
        assert_ne!(first, second);
        assert_eq!(write("a/b.c", "int x;"), first);
        assert_eq!(write(".git/index", "anything"), first);
        assert_ne!(write("a/c.c", "int x;"), first);
        fs::remove_file(folder.path().join("a/b.c")).unwrap();
        assert_ne!(sha256(folder.path()).unwrap(), first);
    }
}
