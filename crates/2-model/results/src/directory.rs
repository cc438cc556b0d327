//! The files of a run directory: their paths, whether they are this user's own, the lock, and copies.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError, read_dir, symlink_metadata};
use std::io::{self, Error, ErrorKind, Read, Seek, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use rustix::fs::OFlags;
use rustix::process::geteuid;

use crate::error::{ResultsError, database_error};

/// Paths in a run directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDirectory(PathBuf);

impl RunDirectory {
    /// The run directory at `path`, which does not have to exist.
    pub fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn database(&self) -> PathBuf {
        self.0.join("run.sqlite")
    }

    /// The file that the writer locks.
    pub fn lock(&self) -> PathBuf {
        self.0.join("run.lock")
    }

    /// The directory for the data of all instances.
    pub fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    /// The directory for the workers' error output.
    pub fn logs(&self) -> PathBuf {
        self.0.join("logs")
    }
}

/// Why a file or directory of a run is not written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOwn {
    /// A symbolic link.
    #[error("is a symbolic link, and dbdyno writes to nothing that a link leads to: remove it")]
    Link,
    /// It belongs to another user.
    #[error(
        "belongs to user {owner}, and dbdyno runs as user {}: run it as that user, or copy the run \
         directory",
        geteuid().as_raw()
    )]
    Owner { owner: u32 },
    /// All users can write to it.
    #[error("has mode {0:04o}, with which all users can write to it: use `chmod o-w`")]
    Writable(u32),
    /// A directory where a file should be, or the reverse, or neither.
    #[error("is not a {0}: remove it")]
    Kind(&'static str),
}

impl RunDirectory {
    /// Checks that what dbdyno writes to belongs to this user, and that no symbolic link leads
    /// elsewhere. What does not exist is not checked.
    ///
    /// The link `data/servers` is checked by the code that opens it. The inside of the servers' own
    /// directories, which may belong to their user, is not checked.
    ///
    /// # Errors
    /// Names the file or directory and what to do, or something cannot be read.
    pub fn check_own(&self) -> Result<(), ResultsError> {
        // The path to it may contain links, which are the user's own.
        let path = self.path();
        let io = |source| ResultsError::Io { path: path.to_owned(), source };
        check_directory(path, &path.metadata().map_err(io)?)?;
        for name in ["", "-wal", "-shm", "-journal", ".new", ".new-journal", ".new-wal", ".new-shm"]
        {
            check_file(&path.join(format!("run.sqlite{name}")))?;
        }
        check_file(&self.lock())?;
        check_tree(&self.logs(), 0, None)?;
        // data/NAME, data/servers/NAME and what is in them.
        check_tree(&self.data(), 2, Some(&self.data().join("servers")))
    }

    /// Checks that an open directory, to which this path led, is a run of this user. Whoever can change the path cannot
    /// lead what is written to the open directory elsewhere.
    ///
    /// # Errors
    /// [`ResultsError::NotOwn`] if it is not.
    pub fn check_held(&self, held: BorrowedFd<'_>) -> Result<(), ResultsError> {
        let path = self.path();
        let held = Path::new("/proc/self/fd").join(held.as_raw_fd().to_string());
        let io = |source| ResultsError::Io { path: path.to_owned(), source };
        check_owner(path, &held.metadata().map_err(io)?)?;
        // A directory of the user that is no run could be anything.
        match stat(&held.join("run.sqlite"))? {
            Some(metadata) if metadata.is_file() => check_owner(path, &metadata),
            _ => Err(refused(path, NotOwn::Kind("run"))),
        }
    }
}

/// Checks a directory and what is in it, and the same of directories that are up to `levels` deeper.
fn check_tree(path: &Path, levels: u32, permitted: Option<&Path>) -> Result<(), ResultsError> {
    let Some(metadata) = stat(path)? else { return Ok(()) };
    check_directory(path, &metadata)?;
    let io = |source| ResultsError::Io { path: path.to_owned(), source };
    for entry in read_dir(path).map_err(io)? {
        let path = entry.map_err(io)?.path();
        // A process that is still ending may remove its files.
        let Some(metadata) = stat(&path)? else { continue };
        if metadata.is_symlink() && permitted != Some(&path) {
            return Err(refused(&path, NotOwn::Link));
        }
        if metadata.is_dir() && levels > 0 {
            check_tree(&path, levels - 1, None)?;
        }
    }
    Ok(())
}

fn check_directory(path: &Path, metadata: &Metadata) -> Result<(), ResultsError> {
    if metadata.is_symlink() {
        return Err(refused(path, NotOwn::Link));
    }
    if !metadata.is_dir() {
        return Err(refused(path, NotOwn::Kind("directory")));
    }
    if metadata.mode() & 0o002 != 0 {
        return Err(refused(path, NotOwn::Writable(metadata.mode() & 0o7777)));
    }
    check_owner(path, metadata)
}

fn check_file(path: &Path) -> Result<(), ResultsError> {
    match stat(path)? {
        None => Ok(()),
        Some(metadata) if metadata.is_symlink() => Err(refused(path, NotOwn::Link)),
        Some(metadata) if !metadata.is_file() => Err(refused(path, NotOwn::Kind("regular file"))),
        Some(metadata) => check_owner(path, &metadata),
    }
}

fn check_owner(path: &Path, metadata: &Metadata) -> Result<(), ResultsError> {
    match metadata.uid() {
        owner if owner == geteuid().as_raw() => Ok(()),
        owner => Err(refused(path, NotOwn::Owner { owner })),
    }
}

/// The metadata of a file or link; `None` if it does not exist.
fn stat(path: &Path) -> Result<Option<Metadata>, ResultsError> {
    match symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ResultsError::Io { path: path.to_owned(), source }),
    }
}

fn refused(path: &Path, why: NotOwn) -> ResultsError {
    ResultsError::NotOwn { path: PathBuf::from(path), why }
}

/// How often the lock is tried: [`lock_holder`] holds it for a moment.
const ATTEMPTS: u32 = 5;

/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Locks a run directory for this process, and stores its process ID.
///
/// # Errors
/// Another process holds the lock, or the file cannot be written or has other content.
pub(crate) fn lock(directory: &RunDirectory) -> Result<File, ResultsError> {
    let path = directory.lock();
    let io = |source| ResultsError::writing(path.clone(), source);
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true);
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    let mut file = options.open(&path).map_err(io)?;
    // The kernel releases the lock when the file is closed, even if the process is killed.
    let mut attempts = 1;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::Error(source)) => return Err(io(source)),
            Err(TryLockError::WouldBlock) if attempts < ATTEMPTS => {
                attempts += 1;
                std::thread::sleep(PAUSE);
            }
            Err(TryLockError::WouldBlock) => {
                // The process ID is only used in the error message.
                let pid = read_pid(&mut file).unwrap_or_default();
                return Err(ResultsError::InUse { path: directory.path().to_owned(), pid });
            }
        }
    }
    // It may be another name of a file with another purpose.
    if read_pid(&mut file).map_err(io)?.is_none() && file.metadata().map_err(io)?.len() > 0 {
        return Err(io(Error::other("it has other content than a process ID: remove it")));
    }
    file.set_len(0).and_then(|()| file.rewind()).map_err(io)?;
    writeln!(file, "{}", std::process::id()).map_err(io)?;
    Ok(file)
}

/// The process that holds the lock; `None` if there is none, or if it is unknown, for example because
/// this user may not read the file.
pub(crate) fn lock_holder(directory: &RunDirectory) -> Option<u32> {
    let mut options = OpenOptions::new();
    // Without waiting: the run may be somebody else's, and the file a pipe.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options.read(true).custom_flags(flags.bits().cast_signed());
    let mut file = options.open(directory.lock()).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => read_pid(&mut file).ok()?,
        Ok(()) | Err(TryLockError::Error(_)) => None,
    }
}

/// The process ID in a lock file; `None` if it contains anything else.
fn read_pid(file: &mut File) -> io::Result<Option<u32>> {
    let mut content = Vec::new();
    // Longer than any process ID.
    file.take(32).read_to_end(&mut content)?;
    Ok(std::str::from_utf8(&content).ok().and_then(|text| text.trim().parse().ok()))
}

/// Writes a copy of the run in `directory` to the file `to`, which is replaced when the copy is complete
/// and stored. The copy has all slices that are committed. Only for runs of this user: see
/// [`RunDirectory::check_own`].
///
/// # Errors
/// The run cannot be read, or the file cannot be written.
pub fn snapshot(directory: &Path, to: &Path) -> Result<(), ResultsError> {
    let mut new = to.as_os_str().to_owned();
    new.push(".new");
    let new = Path::new(&new);
    let io = |source| ResultsError::writing(to.to_owned(), source);
    let remove = || match fs::remove_file(new) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(io(error)),
        _ => Ok(()),
    };
    remove()?;
    let run = RunDirectory::at(directory);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let copied = Connection::open_with_flags(run.database(), flags).and_then(|database| {
        database.busy_timeout(Duration::from_secs(10))?;
        database.execute("VACUUM INTO ?1", [new.to_string_lossy()])
    });
    let stored = copied
        .map_err(|source| database_error(directory, "copying the run", source))
        .and_then(|_| File::open(new).and_then(|file| file.sync_all()).map_err(io))
        .and_then(|()| fs::rename(new, to).map_err(io));
    if stored.is_err() {
        // The error is more useful than that of removing it.
        let _ = fs::remove_file(new);
    }
    stored
}
