use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use dbdyno_units::Bytes;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, openat, openat2, statat,
};
use rustix::io::Errno;

use super::Refusal;

/// A directory by descriptor. Whatever is opened beneath it is reached without following a symbolic
/// link, so that nobody who can write to the directory can redirect it to files elsewhere.
#[derive(Debug)]
pub struct SafeDir {
    fd: OwnedFd,
}

impl SafeDir {
    /// Opens a directory. The components before the last one are followed and must be trusted by
    /// the caller; the last one must not be a symbolic link.
    pub fn open(path: &Path) -> io::Result<Self> {
        let fd = openat(CWD, path, DIRECTORY, Mode::empty());
        fd.map(Self::from).map_err(|error| explain(error, CWD, path.as_os_str()))
    }

    /// Opens anything beneath the directory, with additional flags and the mode for `O_CREAT`. The
    /// path is relative and contains no `..`.
    ///
    /// # Errors
    /// A [`Refusal`] if the path leads out or contains a symbolic link; otherwise the error of
    /// opening it.
    pub fn open_beneath(&self, inner: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let names = names(inner)?;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match openat2(&self.fd, inner, flags, mode, resolve) {
            // An old kernel, or a container's filter of system calls.
            Err(Errno::NOSYS | Errno::PERM) => self.open_stepwise(&names, flags, mode),
            Err(Errno::LOOP | Errno::XDEV) => Err(Refusal::Link.into()),
            Err(error) => Err(error.into()),
            Ok(fd) => Ok(fd),
        }
    }

    /// Does the same without `openat2`.
    fn open_stepwise(&self, names: &[&OsStr], flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let open = |dir: BorrowedFd<'_>, name: &OsStr, flags| {
            openat(dir, name, flags, mode).map_err(|error| explain(error, dir, name))
        };
        let Some((last, parents)) = names.split_last() else {
            return open(self.as_fd(), OsStr::new("."), flags);
        };
        let mut parent: Option<OwnedFd> = None;
        for name in parents {
            let dir = parent.as_ref().map_or(self.as_fd(), AsFd::as_fd);
            parent = Some(open(dir, name, DIRECTORY)?);
        }
        open(parent.as_ref().map_or(self.as_fd(), AsFd::as_fd), last, flags)
    }

    /// Opens a directory beneath this one.
    pub fn dir(&self, inner: &Path) -> io::Result<Self> {
        self.open_beneath(inner, DIRECTORY, Mode::empty()).map(Self::from)
    }

    /// Opens a regular file beneath the directory for reading. Never blocks.
    ///
    /// # Errors
    /// A [`Refusal`] if it is not a regular file, is larger than `limit`, or is reached through a
    /// symbolic link; otherwise the error of opening it.
    pub fn file(&self, inner: &Path, limit: Bytes) -> io::Result<File> {
        // Without NONBLOCK, opening a pipe would wait for its writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(self.open_beneath(inner, flags, Mode::empty())?);
        check_regular(&file, limit)?;
        Ok(file)
    }

    /// Reads a regular file beneath the directory.
    pub fn read(&self, inner: &Path, limit: Bytes) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        limited(self.file(inner, limit)?, limit).read_to_end(&mut content)?;
        check_size(content.len() as u64, limit)?;
        Ok(content)
    }

    /// Copies a regular file beneath the directory to a new file with the given mode. `target` is
    /// in a trusted directory. Returns its size.
    pub fn copy(&self, inner: &Path, target: &Path, mode: u32, limit: Bytes) -> io::Result<Bytes> {
        let file = self.file(inner, limit)?;
        let mut new = OpenOptions::new().write(true).create_new(true).mode(mode).open(target)?;
        let size = io::copy(&mut limited(file, limit), &mut new)?;
        check_size(size, limit)?;
        Ok(Bytes::from_bytes(size))
    }
}

impl From<OwnedFd> for SafeDir {
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

impl From<SafeDir> for OwnedFd {
    fn from(dir: SafeDir) -> Self {
        dir.fd
    }
}

impl AsFd for SafeDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens a directory as a place, which needs no permission to list it.
const DIRECTORY: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Checks that an open file is a regular one and at most as large as `limit`.
pub fn check_regular(file: &File, limit: Bytes) -> io::Result<()> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(Refusal::NotRegular.into());
    }
    check_size(metadata.len(), limit)
}

fn check_size(size: u64, limit: Bytes) -> io::Result<()> {
    if size > limit.as_bytes() { Err(Refusal::TooLarge(limit).into()) } else { Ok(()) }
}

/// Ends one byte after the limit, in case the file grows while it is read.
fn limited(file: File, limit: Bytes) -> io::Take<File> {
    file.take(limit.as_bytes().saturating_add(1))
}

/// The components of a path beneath a directory.
fn names(inner: &Path) -> io::Result<Vec<&OsStr>> {
    let names = inner.components().filter_map(|component| match component {
        Component::CurDir => None,
        Component::Normal(name) => Some(Ok(name)),
        _ => Some(Err(Refusal::Outside.into())),
    });
    names.collect()
}

/// The error of opening a component. Opening a symbolic link without following it fails with
/// `ENOTDIR` if a directory is expected.
fn explain(error: Errno, dir: impl AsFd, name: &OsStr) -> io::Error {
    let is_link = || {
        let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
    };
    match error {
        Errno::LOOP => Refusal::Link.into(),
        Errno::NOTDIR if is_link() => Refusal::Link.into(),
        error => error.into(),
    }
}

/// A file or directory in a listed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkEntry {
    pub path: PathBuf,
    /// Whether it is a regular file, a directory, a symbolic link or something else.
    pub kind: FileType,
}

/// Each level has an open descriptor.
const DEEPEST: usize = 100;

impl SafeDir {
    /// Lists everything beneath the directory, sorted by name, each directory before its content.
    /// Symbolic links are listed and not followed.
    ///
    /// # Errors
    /// A directory cannot be read, or a [`Refusal`] if there are more than `limit` entries or very
    /// deep directories.
    pub fn walk(&self, limit: usize) -> io::Result<Vec<WalkEntry>> {
        let mut found = Vec::new();
        self.walk_into(Path::new(""), 0, limit, &mut found)?;
        Ok(found)
    }

    fn walk_into(
        &self,
        inner: &Path,
        depth: usize,
        limit: usize,
        found: &mut Vec<WalkEntry>,
    ) -> io::Result<()> {
        if depth > DEEPEST {
            return Err(Refusal::TooDeep(DEEPEST).into());
        }
        let left = limit.saturating_sub(found.len());
        for WalkEntry { path: name, kind } in self.read_entries(left, limit)? {
            let path = inner.join(&name);
            found.push(WalkEntry { path: path.clone(), kind });
            if kind == FileType::Directory {
                let dir = self.dir(&name)?;
                dir.walk_into(&path, depth + 1, limit, found)?;
            }
        }
        Ok(())
    }

    /// Lists the directory, sorted by name.
    ///
    /// # Errors
    /// It cannot be read, or a [`Refusal`] if there are more than `limit` entries.
    pub fn entries(&self, limit: usize) -> io::Result<Vec<WalkEntry>> {
        self.read_entries(limit, limit)
    }

    fn read_entries(&self, left: usize, limit: usize) -> io::Result<Vec<WalkEntry>> {
        let mut entries = Vec::new();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        for entry in Dir::new(openat(self, ".", flags, Mode::empty())?)? {
            let entry = entry?;
            let name = entry.file_name();
            if [c".", c".."].contains(&name) {
                continue;
            }
            if entries.len() == left {
                return Err(Refusal::TooMany(limit).into());
            }
            let kind = match entry.file_type() {
                // Some file systems do not store types in directories.
                FileType::Unknown => {
                    let stat = statat(self, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    FileType::from_raw_mode(stat.st_mode)
                }
                kind => kind,
            };
            let path = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
            entries.push(WalkEntry { path, kind });
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    const LIMIT: Bytes = Bytes::from_kib(1);

    fn refusal<T>(result: io::Result<T>) -> Option<Refusal> {
        result.err()?.get_ref()?.downcast_ref().copied()
    }

    fn planted() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("safe/inner")).unwrap();
        fs::create_dir(dir.path().join("secret")).unwrap();
        fs::write(dir.path().join("secret/key"), "private").unwrap();
        fs::write(dir.path().join("safe/inner/file"), "counts").unwrap();
        symlink("inner", dir.path().join("safe/within")).unwrap();
        symlink("../secret", dir.path().join("safe/out")).unwrap();
        symlink("../../secret/key", dir.path().join("safe/inner/key")).unwrap();
        symlink("/proc/self/root", dir.path().join("safe/magic")).unwrap();
        dir
    }

    #[test]
    fn no_component_is_followed_with_or_without_openat2() {
        let dir = planted();
        let safe = SafeDir::open(&dir.path().join("safe")).unwrap();
        for with_openat2 in [true, false] {
            let open = |inner: &str| {
                let (inner, none) = (Path::new(inner), Mode::empty());
                if with_openat2 {
                    return safe.open_beneath(inner, OFlags::RDONLY, none);
                }
                safe.open_stepwise(&names(inner)?, OFlags::RDONLY | OFlags::NOFOLLOW, none)
            };
            assert!(open("inner/file").is_ok() && open("./inner").is_ok() && open(".").is_ok());
            let links = ["within/file", "within", "out/key", "out", "inner/key", "magic/etc"];
            for link in links {
                assert_eq!(refusal(open(link)), Some(Refusal::Link), "{link}");
            }
            for outside in ["../secret/key", "inner/../../secret/key", "/etc/passwd"] {
                assert_eq!(refusal(open(outside)), Some(Refusal::Outside), "{outside}");
            }
            assert_eq!(open("none").unwrap_err().kind(), io::ErrorKind::NotFound);
            assert_eq!(open("inner/file/x").unwrap_err().kind(), io::ErrorKind::NotADirectory);
        }
        assert_eq!(refusal(SafeDir::open(&dir.path().join("safe/within"))), Some(Refusal::Link));
    }

    #[test]
    fn only_regular_files_up_to_the_limit_are_read() {
        let dir = planted();
        let safe = SafeDir::open(&dir.path().join("safe")).unwrap();
        assert_eq!(safe.read(Path::new("inner/file"), LIMIT).unwrap(), b"counts");
        let _socket = UnixListener::bind(dir.path().join("safe/socket")).unwrap();
        let pipe = dir.path().join("safe/pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert_eq!(refusal(safe.read(Path::new("pipe"), LIMIT)), Some(Refusal::NotRegular));
        assert_eq!(refusal(safe.read(Path::new("inner"), LIMIT)), Some(Refusal::NotRegular));
        assert!(safe.read(Path::new("socket"), LIMIT).is_err());
        let small = Bytes::from_bytes(5);
        let large = refusal(safe.read(Path::new("inner/file"), small));
        assert_eq!(large, Some(Refusal::TooLarge(small)));
    }

    #[test]
    fn copies_are_new_files_with_a_mode_of_their_own() {
        let dir = planted();
        let safe = SafeDir::open(&dir.path().join("safe")).unwrap();
        let from = dir.path().join("safe/inner/file");
        fs::set_permissions(&from, fs::Permissions::from_mode(0o4777)).unwrap();
        let target = dir.path().join("copy");
        let size = safe.copy(Path::new("inner/file"), &target, 0o600, LIMIT).unwrap();
        assert_eq!(size, Bytes::from_bytes(6));
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o7777, 0o600);
        let again = safe.copy(Path::new("inner/file"), &target, 0o600, LIMIT);
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let link = dir.path().join("link");
        symlink(dir.path().join("secret/new"), &link).unwrap();
        assert!(safe.copy(Path::new("inner/file"), &link, 0o600, LIMIT).is_err());
        assert!(!dir.path().join("secret/new").exists());
        assert_eq!(
            refusal(safe.copy(Path::new("inner/key"), &dir.path().join("x"), 0o600, LIMIT)),
            Some(Refusal::Link)
        );
    }

    #[test]
    fn walk_lists_links_without_entering_them() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("b/c")).unwrap();
        fs::write(dir.path().join("b/c/d"), "").unwrap();
        symlink("/etc", dir.path().join("a")).unwrap();
        let safe = SafeDir::open(dir.path()).unwrap();
        let found = safe.walk(4).unwrap();
        let found: Vec<_> =
            found.iter().map(|entry| (entry.path.to_str().unwrap(), entry.kind)).collect();
        let (link, folder, file) = (FileType::Symlink, FileType::Directory, FileType::RegularFile);
        assert_eq!(found, [("a", link), ("b", folder), ("b/c", folder), ("b/c/d", file)]);
        assert_eq!(refusal(safe.walk(3)), Some(Refusal::TooMany(3)));
    }

    #[test]
    fn walk_refuses_very_deep_directories() {
        let dir = tempfile::tempdir().unwrap();
        let deep: PathBuf = std::iter::repeat_n("d", DEEPEST + 2).collect();
        fs::create_dir_all(dir.path().join(deep)).unwrap();
        let walked = SafeDir::open(dir.path()).unwrap().walk(1000);
        assert_eq!(refusal(walked), Some(Refusal::TooDeep(DEEPEST)));
    }
}
