use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Copying a data file failed.
#[derive(Debug, thiserror::Error)]
#[error("cloning {} to {}: {source}", from.display(), to.display())]
pub struct CloneError {
    from: PathBuf,
    to: PathBuf,
    source: io::Error,
}

impl CloneError {
    /// Whether the disk was full.
    #[must_use]
    pub fn is_storage_full(&self) -> bool {
        self.source.kind() == io::ErrorKind::StorageFull
    }
}

/// Copies one file of data: sharing its blocks where the file system can, else byte by byte.
/// A copy that fails leaves nothing behind.
///
/// # Errors
/// The file cannot be read, or the copy not be written; a full disk among the reasons.
pub fn clone_file(from: &Path, to: &Path) -> Result<(), CloneError> {
    copy(from, to).map_err(|source| {
        // What is half a copy is of no use to anyone; that there may be none is fine.
        let _ = std::fs::remove_file(to);
        CloneError { from: from.to_owned(), to: to.to_owned(), source }
    })
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let source = File::open(from)?;
    let target = File::create(to)?;
    // SAFETY: both descriptors are open; FICLONE takes the source's descriptor as its argument.
    let cloned = unsafe { libc::ioctl(target.as_raw_fd(), libc::FICLONE, source.as_raw_fd()) };
    if cloned == 0 {
        return Ok(());
    }
    // Not a file system with shared blocks, or two of them.
    std::fs::copy(from, to).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_has_the_same_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a"), dir.path().join("b"));
        let bytes: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
        std::fs::write(&from, &bytes).unwrap();
        clone_file(&from, &to).unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), bytes);
    }

    #[test]
    fn a_failed_clone_says_what_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("b");
        let error = clone_file(&dir.path().join("missing"), &to).unwrap_err();
        assert!(error.to_string().contains("missing"), "{error}");
        assert!(!to.exists());
    }
}
