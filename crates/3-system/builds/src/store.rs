//! The life of a cache entry, the same for builds, profiles, sources and releases.
//!
//! Lock its name; look for a complete entry that nobody else could have changed; make it in a
//! directory that only dbdyno's user can enter; discard the permissions of its files; publish it
//! together with its description by one rename; keep a shared lock while it is used. After a kill at
//! any time there is a complete entry or none: directories in progress end with `.part` or `.raw`,
//! those being removed with `.gone`.

use std::cell::Cell;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::BuildError;
use crate::error::io_error;
use crate::trusted_tree::{self, open_folder};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Build,
    Profile,
    Source,
    Release,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Build, Self::Profile, Self::Source, Self::Release];

    /// The directory of the entries of this kind.
    pub(crate) const fn folder(self) -> &'static str {
        match self {
            Self::Build => "builds",
            Self::Profile => "profiles",
            Self::Source => "sources",
            Self::Release => "releases",
        }
    }

    /// The file in each entry that says what it was made from.
    pub(crate) const fn description(self) -> &'static str {
        match self {
            Self::Build => "build.json",
            Self::Profile => "profile.json",
            Self::Source => "source.json",
            Self::Release => "release.json",
        }
    }
}

/// The name of an entry, which may not exist.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) folder: PathBuf,
    pub(crate) lock: PathBuf,
}

/// Whether a description is that of a complete entry in a directory; else why it is made again. May
/// adapt the description.
pub(crate) type Check<'a, D> = &'a dyn Fn(&mut D, &Path) -> Result<(), String>;

pub(crate) struct Query<'a, D> {
    pub(crate) check: Check<'a, D>,
    pub(crate) cancel: &'a AtomicBool,
    /// Called at most once, when another process makes, uses or removes the entry.
    pub(crate) on_wait: &'a dyn Fn(),
    /// Gets the reason why an existing entry is made again.
    pub(crate) on_invalid: &'a dyn Fn(String),
}

#[derive(Debug)]
pub enum Lookup<P, M> {
    /// In the cache; not removed while in use.
    Found(P),
    /// To be made by the caller. Other processes that look it up wait.
    Missing(M),
    /// Cancelled while another process was making it.
    Cancelled,
}

impl<P, M> Lookup<P, M> {
    pub(crate) fn map<Q>(self, make: impl FnOnce(P) -> Q) -> Lookup<Q, M> {
        match self {
            Self::Found(found) => Lookup::Found(make(found)),
            Self::Missing(making) => Lookup::Missing(making),
            Self::Cancelled => Lookup::Cancelled,
        }
    }
}

/// A complete entry, which is not removed while it is in use.
#[derive(Clone, Debug)]
pub(crate) struct Held<D> {
    pub(crate) folder: PathBuf,
    pub(crate) about: D,
    _lock: Arc<Lock>,
}

impl Entry {
    /// Waits for the lock; `None` if cancelled.
    pub(crate) fn lock(
        &self,
        sharing: Sharing,
        cancel: &AtomicBool,
        on_wait: impl FnOnce(),
    ) -> Result<Option<Lock>, BuildError> {
        open_parent(&self.folder)?;
        Lock::wait_unless(&self.lock, sharing, cancel, on_wait)
    }

    /// Whether there is an entry, complete or not.
    pub(crate) fn exists(&self) -> bool {
        self.folder.is_dir()
    }

    /// Reads the description of a complete entry that nobody else could have changed. The error says
    /// why it must be made again; `None` if there is none.
    pub(crate) fn read<D: DeserializeOwned>(
        &self,
        check: Check<'_, D>,
    ) -> Result<D, Option<String>> {
        let text = fs::read(self.folder.join(self.kind.description())).map_err(|_| None)?;
        trusted_tree::check(&self.folder).map_err(|error| error.to_string())?;
        let damaged = |_| format!("its {} is damaged", self.kind.description());
        let mut about: D = serde_json::from_slice(&text).map_err(damaged)?;
        check(&mut about, &self.folder)?;
        Ok(about)
    }

    /// Finds a complete entry, without making it.
    pub(crate) fn find<D: DeserializeOwned>(
        self,
        check: Check<'_, D>,
        cancel: &AtomicBool,
    ) -> Result<Option<Held<D>>, BuildError> {
        if !self.exists() {
            return Ok(None);
        }
        let Some(lock) = self.lock(Sharing::Shared, cancel, || {})? else { return Ok(None) };
        let about = self.read(check).ok();
        Ok(about.map(|about| self.held(about, lock)))
    }

    fn held<D>(self, about: D, lock: Lock) -> Held<D> {
        self.note_use();
        Held { folder: self.folder, about, _lock: Arc::new(lock) }
    }

    /// Records the use of a complete entry: the least recently used ones are removed first.
    pub(crate) fn note_use(&self) {
        let json = self.folder.join(self.kind.description());
        // A read-only cache never shrinks.
        let _ = File::options()
            .append(true)
            .open(json)
            .and_then(|file| file.set_modified(SystemTime::now()));
    }

    /// Finds a complete entry, or the right to make it.
    pub(crate) fn lookup<D: DeserializeOwned>(
        self,
        query: &Query<'_, D>,
    ) -> Result<Lookup<Held<D>, Making>, BuildError> {
        let said = Cell::new(false);
        let on_wait = || {
            if !said.replace(true) {
                (query.on_wait)();
            }
        };
        // A shared lock prevents removal during use; making requires an exclusive lock.
        let Some(lock) = self.lock(Sharing::Shared, query.cancel, on_wait)? else {
            return Ok(Lookup::Cancelled);
        };
        if let Ok(about) = self.read(query.check) {
            return Ok(Lookup::Found(self.held(about, lock)));
        }
        drop(lock);
        let Some(lock) = self.lock(Sharing::Exclusive, query.cancel, on_wait)? else {
            return Ok(Lookup::Cancelled);
        };
        // Another process may have made it before the lock was acquired.
        match self.read(query.check) {
            Ok(about) => {
                lock.share().map_err(io_error("locking", &self.lock))?;
                Ok(Lookup::Found(self.held(about, lock)))
            }
            Err(reason) => {
                reason.into_iter().for_each(query.on_invalid);
                Ok(Lookup::Missing(Making { entry: self, lock: Arc::new(lock) }))
            }
        }
    }
}

/// The exclusive right to make an entry. Dropping it removes what was not published.
#[derive(Debug)]
pub(crate) struct Making {
    entry: Entry,
    lock: Arc<Lock>,
}

impl Making {
    /// The directory to make it in. Its path depends only on the name of the entry, so that paths
    /// recorded by compilers are reproducible.
    pub(crate) fn part(&self) -> PathBuf {
        sibling(&self.entry.folder, "part")
    }

    /// The directory for raw data of a training.
    pub(crate) fn raw(&self) -> PathBuf {
        sibling(&self.entry.folder, "raw")
    }

    pub(crate) fn lock(&self) -> &Lock {
        &self.lock
    }

    /// Creates the directory to make it in, empty. Until the permissions of its files are discarded,
    /// only dbdyno's user can enter it: an archive may contain files that everybody can write to.
    pub(crate) fn begin(&self) -> Result<PathBuf, BuildError> {
        let part = self.part();
        make_private(&part).map_err(io_error("creating", &part))?;
        Ok(part)
    }

    /// Publishes `from`, which is in [`Self::part`] or is that directory, as the entry. Other
    /// processes can then use it.
    pub(crate) fn publish<D: Serialize>(
        &self,
        from: &Path,
        about: D,
    ) -> Result<Held<D>, BuildError> {
        let Entry { kind, folder, .. } = &self.entry;
        let json = from.join(kind.description());
        serde_json::to_vec_pretty(&about)
            .map_err(io::Error::other)
            .and_then(|text| fs::write(&json, text))
            .map_err(io_error("writing", &json))?;
        // An existing directory of that name is incomplete, or there would be no right to make it.
        trusted_tree::discard_permissions(from)
            .and_then(|_| remove_whole(folder))
            .and_then(|()| fs::rename(from, folder))
            .and_then(|()| self.lock.share())
            .map_err(io_error("finishing", folder))?;
        Ok(Held { folder: folder.clone(), about, _lock: Arc::clone(&self.lock) })
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        for incomplete in [self.raw(), self.part()] {
            let _ = remove(&incomplete);
        }
    }
}

fn open_parent(path: &Path) -> Result<(), BuildError> {
    let folder = path.parent().unwrap_or(path);
    open_folder(folder).map_err(io_error("creating", folder))
}

/// Makes an empty directory that only dbdyno's user can enter.
pub(crate) fn make_private(folder: &Path) -> io::Result<()> {
    remove(folder)?;
    DirBuilder::new().mode(0o700).create(folder)
}

/// The suffix of entries that are being removed.
pub(crate) const GONE: &str = "gone";

/// Whether a path is not that of a complete entry.
pub(crate) fn is_unfinished(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    [GONE, "part", "raw"].contains(&ending)
}

/// Removes a directory or a file, if it exists. It is renamed first: a kill at any moment leaves no
/// incomplete entry. The caller must have exclusive access.
pub(crate) fn remove_whole(path: &Path) -> io::Result<()> {
    let gone = sibling(path, GONE);
    // Left by a process that was killed.
    remove(&gone)?;
    absent_is_fine(fs::rename(path, &gone))?;
    remove(&gone)
}

fn sibling(path: &Path, ending: &str) -> PathBuf {
    let mut sibling = path.as_os_str().to_owned();
    sibling.push(format!(".{ending}"));
    sibling.into()
}

/// Removes a directory or a file in place, if it exists.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let is_folder = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
    absent_is_fine(if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) })
}

fn absent_is_fine(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The entries of a directory; none if it does not exist.
pub(crate) fn listed(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

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
    Exclusive,
    Shared,
}

/// The poll interval while waiting for a lock.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A process that another thread is just starting has all files open until exec. For this time a
/// lock may be taken although it has no holder.
const START_TIME: Duration = Duration::from_millis(200);

impl Lock {
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
        let file = File::options().read(true).append(true).create(true).open(path)?;
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
    ) -> Result<Option<Self>, BuildError> {
        open_parent(path)?;
        let mut on_wait = Some(on_wait);
        let start = Instant::now();
        while !cancel.load(Ordering::Relaxed) {
            if let Some(lock) = Self::try_as(path, sharing).map_err(io_error("locking", path))? {
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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn exclusive_lock_has_one_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = Lock::try_now(&path).unwrap().unwrap();
        assert!(Lock::try_now(&path).unwrap().is_none());
        drop(lock);
        Lock::try_now(&path).unwrap().unwrap();
    }

    #[test]
    fn waiting_ends_when_cancelled() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let _lock = Lock::try_now(&path).unwrap().unwrap();
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
        let lock = Lock::try_now(&path).unwrap().unwrap();
        let mut child =
            Command::new("sleep").arg("60").stdin(lock.as_stdin().unwrap()).spawn().unwrap();
        drop(lock);
        assert!(Lock::try_now(&path).unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        Lock::try_now(&path).unwrap().unwrap();
    }

    #[test]
    fn remains_of_a_killed_removal_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (build, gone) = (dir.path().join("a"), dir.path().join("a.gone"));
        for folder in [&build, &gone] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("file"), "x").unwrap();
        }
        remove_whole(&build).unwrap();
        assert!(!build.exists() && !gone.exists());
        remove_whole(&build).unwrap();
        fs::write(&build, "x").unwrap();
        remove_whole(&build).unwrap();
        assert!(!build.exists());
    }
}
