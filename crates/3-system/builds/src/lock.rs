use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A file lock against other processes and threads, released on drop.
///
/// The kernel releases the lock when the last process that has the file open exits, so there are no
/// stale locks, unlike with PID files. Lock files are empty and never removed: removing one while
/// another process waits for it would allow two holders.
#[derive(Debug)]
pub(crate) struct Lock(File);

/// Whether others may hold the lock concurrently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Exclusive: for making, changing or removing.
    Exclusive,
    /// Shared: for using.
    Shared,
}

/// The poll interval while waiting for a lock.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A process that another thread is just starting has all files open until exec. For this time a
/// lock may be taken although it has no holder.
const START_TIME: Duration = Duration::from_millis(200);

impl Lock {
    /// Waits without a limit; for short critical sections.
    pub(crate) fn wait(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        file.lock()?;
        Ok(Self(file))
    }

    /// `None` if another holder has it, after [`START_TIME`].
    pub(crate) fn try_now(path: &Path) -> io::Result<Option<Self>> {
        let start = Instant::now();
        loop {
            let lock = Self::try_as(path, Sharing::Exclusive)?;
            if lock.is_some() || start.elapsed() > START_TIME {
                return Ok(lock);
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// One attempt; `None` if another holder has it in a conflicting mode.
    fn try_as(path: &Path, sharing: Sharing) -> io::Result<Option<Self>> {
        let file = open(path)?;
        let locked = match sharing {
            Sharing::Exclusive => file.try_lock(),
            Sharing::Shared => file.try_lock_shared(),
        };
        match locked {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Waits until the lock is free; `None` if `cancel` is set meanwhile. Calls `on_wait` once if
    /// it is not free after [`START_TIME`].
    pub(crate) fn wait_unless(
        path: &Path,
        sharing: Sharing,
        cancel: &AtomicBool,
        on_wait: impl FnOnce(),
    ) -> io::Result<Option<Self>> {
        let mut on_wait = Some(on_wait);
        let start = Instant::now();
        while !cancel.load(Ordering::Relaxed) {
            if let Some(lock) = Self::try_as(path, sharing)? {
                return Ok(Some(lock));
            }
            if start.elapsed() > START_TIME
                && let Some(on_wait) = on_wait.take()
            {
                on_wait();
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(None)
    }

    /// Converts it to a shared lock.
    pub(crate) fn share(&self) -> io::Result<()> {
        self.0.lock_shared()
    }

    /// The lock file as a compiler's standard input, so that the compiler and its children hold the
    /// lock, too: if dbdyno is killed, the next one waits until the compiler has exited. The file
    /// is empty.
    pub(crate) fn as_stdin(&self) -> io::Result<Stdio> {
        Ok(self.0.try_clone()?.into())
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).append(true).create(true).open(path)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn exclusive_lock_has_one_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = Lock::wait(&path).unwrap();
        assert!(Lock::try_now(&path).unwrap().is_none());
        drop(lock);
        Lock::wait(&path).unwrap();
    }

    #[test]
    fn waiting_ends_when_cancelled() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let _lock = Lock::wait(&path).unwrap();
        let cancel = AtomicBool::new(false);
        for sharing in [Sharing::Exclusive, Sharing::Shared] {
            cancel.store(false, Ordering::Relaxed);
            let stop = || cancel.store(true, Ordering::Relaxed);
            assert!(Lock::wait_unless(&path, sharing, &cancel, stop).unwrap().is_none());
        }
    }

    #[test]
    fn shared_lock_excludes_exclusive_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let share = || Lock::try_as(&path, Sharing::Shared).unwrap();
        let (first, second) = (share().unwrap(), share().unwrap());
        assert!(Lock::try_now(&path).unwrap().is_none());
        drop(first);
        assert!(Lock::try_now(&path).unwrap().is_none());
        drop(second);
        let alone = Lock::try_now(&path).unwrap().unwrap();
        assert!(share().is_none());
        drop(alone);
    }

    #[test]
    fn child_keeps_the_lock_of_a_dead_parent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = Lock::wait(&path).unwrap();
        let mut child =
            Command::new("sleep").arg("60").stdin(lock.as_stdin().unwrap()).spawn().unwrap();
        drop(lock);
        assert!(Lock::try_now(&path).unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        Lock::wait(&path).unwrap();
    }
}
