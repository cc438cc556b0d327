use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

/// Copying data failed.
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

    fn between<'a>(from: &'a Path, to: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        |source| Self { from: from.to_owned(), to: to.to_owned(), source }
    }
}

/// Files that are of one running server, or that tell it from its copies.
const NOT_COPIED: [&str; 3] = ["auto.cnf", "postmaster.pid", "postmaster.opts"];

/// Copies one file of data: sharing its blocks where the file system can, else byte by byte with
/// holes kept as holes. A copy that fails leaves nothing behind.
///
/// # Errors
/// The file cannot be read, or the copy not be written; a full disk among the reasons.
pub fn clone_file(from: &Path, to: &Path) -> Result<(), CloneError> {
    copy(from, to).map(drop).map_err(|source| {
        // What is half a copy is of no use to anyone; that there may be none is fine.
        let _ = std::fs::remove_file(to);
        CloneError::between(from, to)(source)
    })
}

/// Copies a server's data directory to `to`, where nothing may be: every file as [`clone_file`]
/// does, with its mode and its owner, and brought to storage. Sockets and what belongs to one
/// server alone (its process number, its identity) are left out. A copy that fails leaves
/// nothing behind.
///
/// # Errors
/// A file cannot be read or written, or is neither a file nor a directory; a full disk among the
/// reasons.
pub(crate) fn clone_directory(from: &Path, to: &Path) -> Result<(), CloneError> {
    let made = std::fs::symlink_metadata(from)
        .and_then(|metadata| make_directory(to, &metadata))
        .map_err(CloneError::between(from, to));
    // What was there before stays.
    made?;
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
        if NOT_COPIED.iter().any(|left_out| name == *left_out) {
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
            make_directory(&to, &metadata).map_err(error)?;
            copy_entries(&from, &to)?;
        } else if kind.is_file() {
            copy(&from, &to)
                .and_then(|copy| {
                    lchown(&to, Some(metadata.uid()), Some(metadata.gid()))?;
                    copy.sync_all()
                })
                .map_err(error)?;
        } else if kind.is_symlink() {
            // The copy would share what the link leads to.
            return Err(error(io::Error::other("a symbolic link leads out of the data directory")));
        }
    }
    Ok(())
}

fn make_directory(path: &Path, like: &Metadata) -> io::Result<()> {
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
    // SAFETY: both descriptors are open; FICLONE takes the source's descriptor as its argument.
    let cloned = unsafe { libc::ioctl(target.as_raw_fd(), libc::FICLONE, source.as_raw_fd()) };
    if cloned != 0 {
        // Not a file system with shared blocks, or two of them.
        copy_data(&source, &target, metadata.len())?;
    }
    // The mode above was subject to the mask.
    target.set_permissions(metadata.permissions())?;
    Ok(target)
}

/// Copies the parts of the source that have data.
fn copy_data(source: &File, target: &File, len: u64) -> io::Result<()> {
    target.set_len(len)?;
    let mut at = 0;
    while let Some(start) = seek(source, at, libc::SEEK_DATA)? {
        let end = seek(source, start, libc::SEEK_HOLE)?.unwrap_or(len);
        copy_range(source, target, start, end)?;
        at = end;
    }
    Ok(())
}

/// The next offset from `at` that has data, or is a hole; none behind the last one.
fn seek(file: &File, at: u64, whence: libc::c_int) -> io::Result<Option<u64>> {
    // SAFETY: takes numbers only; the descriptor is open.
    let offset = unsafe { libc::lseek(file.as_raw_fd(), at.cast_signed(), whence) };
    if offset >= 0 {
        return Ok(Some(offset.cast_unsigned()));
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENXIO) { Ok(None) } else { Err(error) }
}

fn copy_range(source: &File, target: &File, start: u64, end: u64) -> io::Result<()> {
    let (mut read, mut write) = (start.cast_signed(), start.cast_signed());
    while read.cast_unsigned() < end {
        let left = usize::try_from(end - read.cast_unsigned()).unwrap_or(usize::MAX);
        // SAFETY: both descriptors are open, and both offsets are ours.
        let copied = unsafe {
            libc::copy_file_range(
                source.as_raw_fd(),
                &raw mut read,
                target.as_raw_fd(),
                &raw mut write,
                left,
                0,
            )
        };
        match copied {
            // The source became shorter.
            0 => return Ok(()),
            1.. => {}
            _ => {
                let error = io::Error::last_os_error();
                let unable = matches!(
                    error.raw_os_error(),
                    Some(libc::EXDEV | libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP)
                );
                if !unable {
                    return Err(error);
                }
                // Two file systems of different kinds, on an older kernel.
                return copy_through_memory(source, target, read.cast_unsigned(), end);
            }
        }
    }
    Ok(())
}

fn copy_through_memory(source: &File, target: &File, start: u64, end: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let mut buffer = vec![0; 1 << 20];
    let mut at = start;
    while at < end {
        let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
        let read = source.read_at(&mut buffer[..want], at)?;
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
    use std::os::unix::fs::FileExt;

    use super::*;

    fn bytes(count: u32) -> Vec<u8> {
        (0..count).map(|i| (i % 251) as u8).collect()
    }

    #[test]
    fn a_clone_has_the_same_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&from, bytes(100_000)).unwrap();
        clone_file(&from, &to).unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), bytes(100_000));
        // Over what was longer, too.
        std::fs::write(&from, bytes(10)).unwrap();
        clone_file(&from, &to).unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), bytes(10));
    }

    #[test]
    fn a_failed_clone_says_what_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("b");
        let error = clone_file(&dir.path().join("missing"), &to).unwrap_err();
        assert!(error.to_string().contains("missing"), "{error}");
        assert!(!to.exists());
    }

    #[test]
    fn holes_stay_holes() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a"), dir.path().join("b"));
        let source = File::create(&from).unwrap();
        source.write_all_at(&bytes(5_000), 1 << 20).unwrap();
        source.write_all_at(&bytes(5_000), 40 << 20).unwrap();
        source.set_len(64 << 20).unwrap();
        let target = File::create(&to).unwrap();
        // By hand: a file system with shared blocks would leave nothing to copy.
        copy_data(&source_again(&from), &target, 64 << 20).unwrap();
        assert_eq!(target.metadata().unwrap().len(), 64 << 20);
        assert!(target.metadata().unwrap().blocks() * 512 < 1 << 20, "the holes were filled");
        assert!(std::fs::read(&from).unwrap() == std::fs::read(&to).unwrap());
        copy_through_memory(&source_again(&from), &target, 0, 64 << 20).unwrap();
        assert!(std::fs::read(&from).unwrap() == std::fs::read(&to).unwrap());
    }

    fn source_again(path: &Path) -> File {
        File::open(path).unwrap()
    }

    #[test]
    fn a_directory_is_cloned_with_modes_and_without_what_is_one_servers_own() {
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
        assert!(to.join("inner/data").exists(), "what was there was removed");

        std::os::unix::fs::symlink("/etc", from.join("link")).unwrap();
        let error = clone_directory(&from, &dir.path().join("c")).unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{error}");
        assert!(!dir.path().join("c").exists());
    }
}
