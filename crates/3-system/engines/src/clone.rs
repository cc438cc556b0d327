mod directory;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, SeekFrom, copy_file_range, ioctl_ficlone};
use rustix::io::Errno;

pub(crate) use directory::clone_directory;

/// Copying data failed.
#[derive(Debug, thiserror::Error)]
#[error("copying {} to {}: {source}", from.display(), to.display())]
pub struct CloneError {
    from: PathBuf,
    to: PathBuf,
    source: io::Error,
}

impl CloneError {
    /// Whether the disk is full.
    #[must_use]
    pub fn is_storage_full(&self) -> bool {
        self.source.kind() == io::ErrorKind::StorageFull
    }

    fn between<'a>(from: &'a Path, to: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        |source| Self { from: from.to_owned(), to: to.to_owned(), source }
    }
}

/// Copies a data file: by sharing blocks if the file system can, else with holes kept. Neither name
/// may be a symbolic link. If it fails, nothing is left.
///
/// # Errors
/// The file cannot be read, or the copy cannot be written; for example, the disk is full.
pub fn clone_file(from: &Path, to: &Path) -> Result<(), CloneError> {
    let nofollow = OFlags::NOFOLLOW.bits().cast_signed();
    let open = || {
        let source = OpenOptions::new().read(true).custom_flags(nofollow).open(from)?;
        let mode = source.metadata()?.permissions().mode();
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(mode).custom_flags(nofollow);
        io::Result::Ok((source, options.open(to)?))
    };
    let (source, target) = open().map_err(CloneError::between(from, to))?;
    copy_content(&source, &target).map_err(|error| {
        // The first error is the one to report.
        let _ = std::fs::remove_file(to);
        CloneError::between(from, to)(error)
    })
}

/// Copies content and permissions to an empty file.
fn copy_content(source: &File, target: &File) -> io::Result<()> {
    let metadata = source.metadata()?;
    if ioctl_ficlone(target, source).is_err() {
        // The file system cannot share blocks, or there are two file systems.
        copy_data(source, target, metadata.len())?;
    }
    // The mode given to open() was subject to the umask.
    let permissions = metadata.permissions().mode() & 0o777;
    target.set_permissions(std::fs::Permissions::from_mode(permissions))
}

/// Copies the parts of the source that are not holes.
fn copy_data(source: &File, target: &File, len: u64) -> io::Result<()> {
    target.set_len(len)?;
    let mut at = 0;
    while let Some(start) = seek(source, SeekFrom::Data(at))? {
        let end = seek(source, SeekFrom::Hole(start))?.unwrap_or(len);
        copy_range(source, target, start, end)?;
        at = end;
    }
    Ok(())
}

/// The offset of the next data or hole; `None` at the end of the file.
fn seek(file: &File, from: SeekFrom) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, from) {
        Ok(offset) => Ok(Some(offset)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn copy_range(source: &File, target: &File, start: u64, end: u64) -> io::Result<()> {
    let (mut read, mut write) = (start, start);
    while read < end {
        let left = usize::try_from(end - read).unwrap_or(usize::MAX);
        match copy_file_range(source, Some(&mut read), target, Some(&mut write), left) {
            // The source has become shorter.
            Ok(0) => return Ok(()),
            Ok(_) => {}
            // Two different file systems, with an older kernel.
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                return copy_through_memory(source, target, read, end);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn copy_through_memory(source: &File, target: &File, start: u64, end: u64) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    let mut at = start;
    while at < end {
        let count = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
        let read = source.read_at(&mut buffer[..count], at)?;
        if read == 0 {
            return Ok(());
        }
        target.write_all_at(&buffer[..read], at)?;
        at += read as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn bytes(count: u32) -> Vec<u8> {
        (0..count).map(|i| (i % 251) as u8).collect()
    }

    #[test]
    fn clone_has_the_same_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&from, bytes(100_000)).unwrap();
        clone_file(&from, &to).unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), bytes(100_000));
        // An existing longer file is replaced.
        std::fs::write(&from, bytes(10)).unwrap();
        clone_file(&from, &to).unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), bytes(10));
    }

    #[test]
    fn failed_clone_names_the_file_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("b");
        let error = clone_file(&dir.path().join("missing"), &to).unwrap_err();
        assert!(error.to_string().contains("missing"), "{error}");
        assert!(!to.exists());
    }

    #[test]
    fn holes_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a"), dir.path().join("b"));
        let source = File::create(&from).unwrap();
        source.write_all_at(&bytes(5_000), 1 << 20).unwrap();
        source.write_all_at(&bytes(5_000), 40 << 20).unwrap();
        source.set_len(64 << 20).unwrap();
        let target = File::create(&to).unwrap();
        // Not by `copy`, which would share blocks if the file system can.
        copy_data(&File::open(&from).unwrap(), &target, 64 << 20).unwrap();
        assert_eq!(target.metadata().unwrap().len(), 64 << 20);
        assert!(target.metadata().unwrap().blocks() * 512 < 1 << 20, "the holes were filled");
        assert!(std::fs::read(&from).unwrap() == std::fs::read(&to).unwrap());
        copy_through_memory(&File::open(&from).unwrap(), &target, 0, 64 << 20).unwrap();
        assert!(std::fs::read(&from).unwrap() == std::fs::read(&to).unwrap());
    }
}
