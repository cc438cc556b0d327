//! Checksum of a directory.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::Digest;

use crate::Sha256;

/// Computes the checksum of all files with their names, except `.git`.
pub(super) fn sha256(folder: &Path) -> io::Result<Sha256> {
    let mut hasher = sha2::Sha256::new();
    visit(folder, &mut |path, meta| {
        let whole = folder.join(path);
        let content = if meta.is_symlink() {
            Sha256::of(fs::read_link(&whole)?.as_os_str().as_bytes())
        } else if meta.is_file() {
            Sha256::of_file(&whole)?
        } else {
            return Ok(());
        };
        let name = path.as_os_str().as_bytes();
        hasher.update((name.len() as u64).to_le_bytes());
        hasher.update(name);
        hasher.update([u8::from(meta.is_symlink())]);
        hasher.update(content.as_bytes());
        Ok(())
    })?;
    Ok(Sha256::finish(hasher))
}

/// When a file was last written, renamed or created, or its permissions were changed; except in
/// `.git`. Unlike the modification time, this cannot be set back.
pub(super) fn last_change(folder: &Path) -> io::Result<SystemTime> {
    let mut last = SystemTime::UNIX_EPOCH;
    visit(folder, &mut |_, meta| {
        let seconds = u64::try_from(meta.ctime()).unwrap_or(0);
        let nanos = u32::try_from(meta.ctime_nsec()).unwrap_or(0);
        last = last.max(SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos));
        Ok(())
    })?;
    Ok(last)
}

/// Calls `each` with the relative path of everything but directories, in a fixed order.
fn visit(
    folder: &Path,
    each: &mut dyn FnMut(&Path, &Metadata) -> io::Result<()>,
) -> io::Result<()> {
    let mut waiting = vec![PathBuf::new()];
    // In reverse order, because the last one is processed next.
    while let Some(inner) = waiting.pop() {
        let mut names: Vec<_> = fs::read_dir(folder.join(&inner))?
            .map(|entry| Ok(entry?.file_name()))
            .collect::<io::Result<_>>()?;
        names.sort_unstable();
        for name in names.into_iter().rev().filter(|name| name != ".git") {
            let path = inner.join(name);
            let meta = fs::symlink_metadata(folder.join(&path))?;
            if meta.is_dir() {
                waiting.push(path);
            } else {
                each(&path, &meta)?;
            }
        }
    }
    Ok(())
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
