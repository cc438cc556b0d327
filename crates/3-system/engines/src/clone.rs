//! Copies of data files and data directories.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{
    DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown,
};
use std::path::{Path, PathBuf};

use dbdyno_machine::safe_files::{Refusal, SafeDir};
use dbdyno_units::Bytes;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, SeekFrom, copy_file_range, ioctl_ficlone, mkdirat,
    statat, syncfs,
};
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
    pub fn is_storage_full(&self) -> bool {
        self.source.kind() == io::ErrorKind::StorageFull
    }

    fn between<'a>(from: &'a Path, to: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        |source| Self { from: from.to_owned(), to: to.to_owned(), source }
    }
}

/// Copies a data file: by sharing blocks if the file system can, else with holes kept. Neither name
/// may be a symbolic link. If it fails, nothing is left.
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
    target.set_permissions(Permissions::from_mode(permissions))
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

/// Files that belong to one running server, or identify a server.
const NOT_COPIED: [&str; 3] = ["auto.cnf", "postmaster.pid", "postmaster.opts"];

/// Each level has open descriptors.
const DEEPEST: usize = 100;

/// Copies a server's data directory to `to`, which must not exist: each file as
/// [`clone_file`](super::clone_file) does, with permissions and owner. Sockets, and files that belong to one
/// server (its process id, its identity), are left out. If it fails, nothing is left.
///
/// The file system is synced once at the end, so that the copy is not written back while something is
/// measured. Syncing each file would commit the journal of the file system for each of the about 1,000
/// files of a PostgreSQL server: seconds, with a disk of others.
///
/// If dbdyno is root, the data belongs to the server's user, who could add links and files while it is
/// copied. So everything is opened by descriptor without following links, only what the owner of the
/// data owns is copied, and the copy is closed to that user until it is complete. Only the parent
/// directories of `from` and `to` must belong to dbdyno's user.
pub(crate) fn clone_directory(from: &Path, to: &Path) -> Result<(), CloneError> {
    let source = open_top(from).map_err(CloneError::between(from, to))?;
    DirBuilder::new().mode(0o700).create(to).map_err(CloneError::between(from, to))?;
    let copied = open_top(to)
        .and_then(|target| Ok((target, source.metadata()?.uid())))
        .map_err(CloneError::between(from, to))
        .and_then(|(target, owner)| {
            let all = target.try_clone().map_err(CloneError::between(from, to))?;
            fill(Level { source, target, from, to, depth: 0, owner })?;
            syncfs(&all).map_err(|error| CloneError::between(from, to)(error.into()))
        });
    if copied.is_err() {
        // The first error is the one to report.
        let _ = std::fs::remove_dir_all(to);
    }
    copied
}

/// Two open directories, with their paths for messages.
struct Level<'a> {
    source: File,
    target: File,
    from: &'a Path,
    to: &'a Path,
    depth: usize,
    /// The user ID of the owner of the data.
    owner: u32,
}

/// Copies what is in a directory, then gives the copy its permissions and its owner.
fn fill(level: Level<'_>) -> Result<(), CloneError> {
    let Level { source, target, from, to, depth, owner } = level;
    let error = || CloneError::between(from, to);
    let metadata = source.metadata().map_err(error())?;
    check_owner(&metadata, owner).map_err(error())?;
    let source = SafeDir::from(OwnedFd::from(source));
    let inside = SafeDir::from(OwnedFd::from(target.try_clone().map_err(error())?));
    for entry in Dir::read_from(&source).map_err(|e| error()(e.into()))? {
        let entry = entry.map_err(|e| error()(e.into()))?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if [".", ".."].iter().chain(&NOT_COPIED).any(|excluded| name == *excluded) {
            continue;
        }
        let (from, to) = (from.join(name), to.join(name));
        let error = || CloneError::between(&from, &to);
        match kind(&source, &entry).map_err(error())? {
            FileType::Directory => {
                let (source, target) =
                    create_directory(&source, &inside, name, depth).map_err(error())?;
                let (from, to, depth) = (&from, &to, depth + 1);
                fill(Level { source, target, from, to, depth, owner })?;
            }
            FileType::RegularFile => {
                copy_file(&source, &inside, name, owner).map_err(error())?;
            }
            FileType::Symlink => {
                // Both servers would share the link's target.
                let reason = "a symbolic link leads out of the data directory";
                return Err(error()(io::Error::other(reason)));
            }
            _ => {}
        }
    }
    give(&target, &metadata).map_err(error())
}

fn copy_file(source: &SafeDir, target: &SafeDir, name: &OsStr, owner: u32) -> io::Result<()> {
    let file = source.file(Path::new(name), Bytes::from_bytes(u64::MAX))?;
    let metadata = file.metadata()?;
    check_owner(&metadata, owner)?;
    let create = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let copy = target.open_beneath(Path::new(name), create, Mode::RUSR | Mode::WUSR)?;
    let copy = File::from(copy);
    copy_content(&file, &copy)?;
    give(&copy, &metadata)
}

/// Refuses what another user owns: a hard link that the owner of the data made to a file that it
/// may not read.
fn check_owner(metadata: &Metadata, owner: u32) -> io::Result<()> {
    let uid = metadata.uid();
    if uid == owner {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("it belongs to user {uid}, and the data to user {owner}"),
    ))
}

/// Opens a directory whose parent is dbdyno's.
fn open_top(path: &Path) -> io::Result<File> {
    open_directory(&SafeDir::open(path)?, OsStr::new("."))
}

fn open_directory(parent: &SafeDir, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    parent.open_beneath(Path::new(name), flags, Mode::empty()).map(File::from)
}

/// Opens a directory in `source` and creates the one for its copy.
fn create_directory(
    source: &SafeDir,
    target: &SafeDir,
    name: &OsStr,
    depth: usize,
) -> io::Result<(File, File)> {
    if depth == DEEPEST {
        return Err(Refusal::TooDeep(DEEPEST).into());
    }
    let opened = open_directory(source, name)?;
    mkdirat(target, name, Mode::RWXU)?;
    Ok((opened, open_directory(target, name)?))
}

/// Gives a copy the permissions and the owner of the original.
fn give(copy: &File, original: &Metadata) -> io::Result<()> {
    copy.set_permissions(Permissions::from_mode(original.mode() & 0o777))?;
    fchown(copy, Some(original.uid()), Some(original.gid()))
}

fn kind(dir: &SafeDir, entry: &rustix::fs::DirEntry) -> io::Result<FileType> {
    match entry.file_type() {
        // Some file systems do not store types in directories.
        FileType::Unknown => {
            let stat = statat(dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(FileType::from_raw_mode(stat.st_mode))
        }
        kind => Ok(kind),
    }
}

#[cfg(test)]
mod directory_tests;

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
