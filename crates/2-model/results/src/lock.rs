//! The lock of a run directory: held by the process that writes to the run.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Error, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use rustix::fs::OFlags;

use crate::directory::RunDirectory;
use crate::error::ResultsError;

/// How often the lock is tried: [`holder`] holds it for a moment.
const ATTEMPTS: u32 = 5;

/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Locks a run directory for this process, and stores its process ID.
///
/// # Errors
/// Another process holds the lock, or the file cannot be written or has other content.
pub(crate) fn acquire(directory: &RunDirectory) -> Result<File, ResultsError> {
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
pub(crate) fn holder(directory: &RunDirectory) -> Option<u32> {
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
