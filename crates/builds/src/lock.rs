use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Holds a file locked against other processes and threads until it is dropped.
///
/// The kernel releases the lock when the last process that has the file open ends, however it
/// ends: a lock is never left behind, which a file with a process id in it would be. Lock files
/// are empty and stay: removing one while another process waits for it would let two in.
#[derive(Debug)]
pub(crate) struct Lock(File);

/// Whether others may hold the same file at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Nobody: it is being made, changed or removed.
    Alone,
    /// Those who share it, too: it is being used.
    Shared,
}

/// How often a waiting builder looks again, and whether it was cancelled.
const PATIENCE: Duration = Duration::from_millis(50);

impl Lock {
    /// Waits as long as it takes; for work that is done in a moment.
    pub(crate) fn wait(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        file.lock()?;
        Ok(Self(file))
    }

    /// `None` if somebody else holds it.
    pub(crate) fn try_now(path: &Path) -> io::Result<Option<Self>> {
        Self::try_as(path, Sharing::Alone)
    }

    /// `None` if somebody else holds it in a way that does not go with this one.
    pub(crate) fn try_as(path: &Path, sharing: Sharing) -> io::Result<Option<Self>> {
        let file = open(path)?;
        let locked = match sharing {
            Sharing::Alone => file.try_lock(),
            Sharing::Shared => file.try_lock_shared(),
        };
        match locked {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Waits until it is free or `cancel` is set, which gives `None`. `on_wait` is called once if
    /// somebody else holds it for more than a moment: a process that another thread is just
    /// starting has all our files open until it becomes the compiler.
    pub(crate) fn wait_unless(
        path: &Path,
        sharing: Sharing,
        cancel: &AtomicBool,
        on_wait: impl FnOnce(),
    ) -> io::Result<Option<Self>> {
        let mut on_wait = Some(on_wait);
        for attempt in 0_u64.. {
            if cancel.load(Ordering::Relaxed) {
                break;
            }
            if let Some(lock) = Self::try_as(path, sharing)? {
                return Ok(Some(lock));
            }
            if attempt > 0
                && let Some(on_wait) = on_wait.take()
            {
                on_wait();
            }
            thread::sleep(PATIENCE);
        }
        Ok(None)
    }

    /// Lets others share it from now on.
    pub(crate) fn share(&self) -> io::Result<()> {
        self.0.lock_shared()
    }

    /// A standard input for a compiler, by which it and all its children hold the lock too: if
    /// dbdyno is killed, the next one waits until the compiler it left behind is done writing.
    /// The file is empty, so reading it is like reading nothing.
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
    fn one_holder_at_a_time() {
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
        let _held = Lock::wait(&path).unwrap();
        let cancel = AtomicBool::new(false);
        for sharing in [Sharing::Alone, Sharing::Shared] {
            cancel.store(false, Ordering::Relaxed);
            let stop = || cancel.store(true, Ordering::Relaxed);
            assert!(Lock::wait_unless(&path, sharing, &cancel, stop).unwrap().is_none());
        }
    }

    #[test]
    fn users_share_it_and_keep_a_remover_out() {
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
    fn a_child_keeps_the_lock_of_a_dead_parent() {
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
