use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown,
};
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, copy_file_range, ioctl_ficlone};
use rustix::io::Errno;

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

/// Files that belong to one running server, or identify a server.
const NOT_COPIED: [&str; 3] = ["auto.cnf", "postmaster.pid", "postmaster.opts"];

/// Copies a data file: by sharing blocks if the file system can, else with holes kept. If it fails,
/// nothing is left.
///
/// # Errors
/// The file cannot be read, or the copy cannot be written; for example, the disk is full.
pub fn clone_file(from: &Path, to: &Path) -> Result<(), CloneError> {
    copy(from, to).map(drop).map_err(|source| {
        // There may be no copy yet; the first error is the one to report.
        let _ = std::fs::remove_file(to);
        CloneError::between(from, to)(source)
    })
}

/// Copies a server's data directory to `to`, which must not exist: each file as [`clone_file`] does,
/// with mode and owner, and synced. Sockets, and files that belong to one server (its process id, its
/// identity), are left out. If it fails, nothing is left.
///
/// # Errors
/// A file cannot be read or written, or is a symbolic link; for example, the disk is full.
pub(crate) fn clone_directory(from: &Path, to: &Path) -> Result<(), CloneError> {
    std::fs::symlink_metadata(from)
        .and_then(|metadata| create_dir_like(to, &metadata))
        .map_err(CloneError::between(from, to))?;
    let copied = copy_entries(from, to);
    if copied.is_err() {
        let _ = std::fs::remove_dir_all(to);
    }
    copied
}

fn copy_entries(from: &Path, to: &Path) -> Result<(), CloneError> {
    for entry in std::fs::read_dir(from).map_err(CloneError::between(from, to))? {
        let entry = entry.map_err(CloneError::between(from, to))?;
        let name = entry.file_name();
        if NOT_COPIED.iter().any(|excluded| name == *excluded) {
            continue;
        }
        let (from, to) = (entry.path(), to.join(&name));
        let error = CloneError::between(&from, &to);
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            Err(source) => return Err(error(source)),
        };
        let kind = metadata.file_type();
        if kind.is_dir() {
            create_dir_like(&to, &metadata).map_err(error)?;
            copy_entries(&from, &to)?;
        } else if kind.is_file() {
            copy(&from, &to)
                .and_then(|copy| {
                    lchown(&to, Some(metadata.uid()), Some(metadata.gid()))?;
                    copy.sync_all()
                })
                .map_err(error)?;
        } else if kind.is_symlink() {
            // Both servers would share the link's target.
            return Err(error(io::Error::other("a symbolic link leads out of the data directory")));
        }
    }
    Ok(())
}

fn create_dir_like(path: &Path, like: &Metadata) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)?;
    lchown(path, Some(like.uid()), Some(like.gid()))?;
    std::fs::set_permissions(path, like.permissions())
}

fn copy(from: &Path, to: &Path) -> io::Result<File> {
    let source = File::open(from)?;
    let metadata = source.metadata()?;
    let target = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(metadata.permissions().mode())
        .open(to)?;
    if ioctl_ficlone(&target, &source).is_err() {
        // The file system cannot share blocks, or there are two file systems.
        copy_data(&source, &target, metadata.len())?;
    }
    // The mode given to open() was subject to the umask.
    target.set_permissions(metadata.permissions())?;
    Ok(target)
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

    #[test]
    fn directory_is_cloned_with_modes_and_without_server_identity() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::create_dir_all(from.join("inner")).unwrap();
        std::fs::write(from.join("inner/data"), bytes(9_000)).unwrap();
        std::fs::write(from.join("auto.cnf"), "server_uuid").unwrap();
        let closed = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(from.join("inner/data"), closed).unwrap();
        std::fs::set_permissions(&from, std::fs::Permissions::from_mode(0o750)).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(from.join("socket")).unwrap();
        clone_directory(&from, &to).unwrap();
        assert_eq!(std::fs::read(to.join("inner/data")).unwrap(), bytes(9_000));
        let mode = |path: PathBuf| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(to.clone()), mode(to.join("inner/data"))), (0o750, 0o600));
        assert!(!to.join("auto.cnf").exists() && !to.join("socket").exists());

        let again = clone_directory(&from, &to).unwrap_err();
        assert!(again.to_string().contains("exists"), "{again}");
        assert!(to.join("inner/data").exists(), "the existing directory was removed");

        std::os::unix::fs::symlink("/etc", from.join("link")).unwrap();
        let error = clone_directory(&from, &dir.path().join("c")).unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{error}");
        assert!(!dir.path().join("c").exists());
    }
}
