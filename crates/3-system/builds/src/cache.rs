use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use crate::build_dir::open_folder;
use crate::lock::{Lock, Sharing};
use crate::removal::{is_unfinished, listed, remove, remove_whole};
use crate::{Build, BuildError, CacheDir, Fingerprint, Sha256, recipe};

/// The file name of the compile database in the directory of a build.
pub(crate) const DATABASE: &str = "compile_commands.json";

/// The file in a build's directory whose modification time is that of the last use.
pub(crate) const USED: &str = "used";

/// The build cache.
///
/// ```text
/// sources/, downloads/, apt/   sources: see [`crate::Sources`]
/// releases/                    see [`crate::Releases`]
/// builds/<fingerprint>/        a finished build: a library or a server, build.json, log.txt,
///                              compile_commands.json
/// builds/<fingerprint>.part/   an incomplete build
/// work/<fingerprint>/tree/     build directory of a server, with its objects
/// work/<fingerprint>/done      the completed steps
/// work/<fingerprint>/started   an empty file, as old as the first attempt
/// failed/<fingerprint>/        the log of a library that failed to compile
/// profiles/                    see [`crate::Profiles`]
/// locks/<fingerprint>          lock for making, using or removing that build
/// <name>.gone                  an entry being removed
/// ```
/// A build is renamed to its final name when it is complete, and to `.gone` before it is removed.
/// After a kill at any time there is either a complete build, or a `.part` or `.gone` entry, which
/// is ignored.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The cache in this directory.
    #[must_use]
    pub fn new(root: &CacheDir) -> Self {
        Self { root: root.path().to_owned() }
    }

    /// The directory of unpacked sources.
    #[must_use]
    pub fn sources(&self) -> PathBuf {
        self.root.join("sources")
    }

    /// The directory of unpacked releases.
    pub(crate) fn releases(&self) -> PathBuf {
        self.root.join("releases")
    }

    /// The directory of a finished build.
    #[must_use]
    pub fn folder(&self, fingerprint: &Fingerprint) -> PathBuf {
        self.root.join("builds").join(fingerprint.to_string())
    }

    /// A finished build whose artifact matches its checksum; `None` if there is none.
    #[must_use]
    pub fn get(&self, fingerprint: &Fingerprint) -> Option<Build> {
        let folder = self.folder(fingerprint);
        let text = fs::read(folder.join("build.json")).ok()?;
        let mut build: Build = serde_json::from_slice(&text).ok()?;
        // The cache may have been moved since.
        let moved = build.folder != folder;
        build.artifact = folder.join(recipe::artifact(build.system));
        build.folder = folder;
        let whole = build.fingerprint == *fingerprint
            && Sha256::of_file(&build.artifact).is_ok_and(|sha256| sha256 == build.artifact_sha256);
        // Files that BOLT did not rewrite contain the directory of the base build.
        let based = build.bolt.as_ref().is_none_or(|bolt| self.folder(&bolt.base).is_dir());
        // A server's programs contain the directory that it was installed into.
        (whole && based && !(moved && build.system.is_server())).then_some(build)
    }

    /// The finished builds whose names start with `start`.
    #[must_use]
    pub fn named(&self, start: &str) -> Vec<Build> {
        let folders = listed(&self.root.join("builds")).filter(|path| !is_unfinished(path));
        let names = folders.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
        let mut names: Vec<String> = names.filter(|name| name.starts_with(start)).collect();
        names.sort();
        let builds = names.iter().filter_map(|name| {
            let text = fs::read(self.root.join("builds").join(name).join("build.json")).ok()?;
            self.get(&serde_json::from_slice::<Build>(&text).ok()?.fingerprint)
        });
        builds.collect()
    }

    /// Prevents the removal of a build and its objects until the lease is dropped. Waits while
    /// another process makes or removes it; `None` if `cancel` is set meanwhile.
    ///
    /// # Errors
    /// The cache cannot be written to.
    pub fn lease(
        &self,
        fingerprint: &Fingerprint,
        cancel: &AtomicBool,
    ) -> io::Result<Option<CacheLease>> {
        open_folder(&self.root.join("locks"))?;
        let path = self.lock_path(&fingerprint.to_string());
        let lock = Lock::wait_unless(&path, Sharing::Shared, cancel, || {})?;
        Ok(lock.map(|lock| CacheLease { _lock: lock }))
    }

    /// Records the use of a build: the least recently used ones are removed first.
    pub(crate) fn note_use(&self, fingerprint: &Fingerprint) {
        // A read-only cache never shrinks.
        let _ = fs::write(self.folder(fingerprint).join(USED), "");
    }

    /// The directory for compiling a server.
    pub(crate) fn work(&self, fingerprint: &Fingerprint) -> PathBuf {
        self.root.join("work").join(fingerprint.to_string())
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Locks a build for making it. Waits while another process makes it; `None` if `cancel` is set
    /// meanwhile.
    pub(crate) fn reserve(
        &self,
        fingerprint: &Fingerprint,
        cancel: &AtomicBool,
        on_wait: impl FnOnce(),
    ) -> Result<Option<PendingBuild<'_>>, BuildError> {
        for folder in ["builds", "locks", "failed"] {
            let folder = self.root.join(folder);
            open_folder(&folder).map_err(|error| BuildError::io("creating", &folder, error))?;
        }
        let path = self.lock_path(&fingerprint.to_string());
        let lock = Lock::wait_unless(&path, Sharing::Exclusive, cancel, on_wait)
            .map_err(|error| BuildError::io("locking", &path, error))?;
        Ok(lock.map(|lock| PendingBuild { cache: self, fingerprint: *fingerprint, lock }))
    }

    pub(crate) fn lock_path(&self, fingerprint: &str) -> PathBuf {
        self.root.join("locks").join(fingerprint)
    }

    pub(crate) fn profile_lock(&self, key: &str) -> PathBuf {
        self.lock_path(&format!("profile-{key}"))
    }

    pub(crate) fn source_lock(&self, name: &str) -> PathBuf {
        self.sources().join(format!("{name}.lock"))
    }

    pub(crate) fn release_lock(&self, name: &str) -> PathBuf {
        self.releases().join(format!("{name}.lock"))
    }

    /// The lock of the download of an archive with this checksum.
    pub(crate) fn download_lock(&self, sha256: &str) -> PathBuf {
        self.lock_path(&format!("download-{sha256}"))
    }

    /// The lock of the package lists of a Debian release.
    pub(crate) fn lists_lock(&self, suite: &str) -> PathBuf {
        self.lock_path(&format!("apt-{suite}"))
    }
}

/// Prevents the removal of a build until it is dropped.
#[derive(Debug)]
pub struct CacheLease {
    _lock: Lock,
}

/// A locked build in progress. Dropping it removes what was not committed.
pub(crate) struct PendingBuild<'a> {
    cache: &'a Cache,
    fingerprint: Fingerprint,
    lock: Lock,
}

impl PendingBuild<'_> {
    pub(crate) const fn lock(&self) -> &Lock {
        &self.lock
    }

    /// The directory to make the build in. Its path depends only on the fingerprint, so that paths
    /// recorded by compilers are reproducible.
    pub(crate) fn part(&self) -> PathBuf {
        let mut path = self.cache.folder(&self.fingerprint).into_os_string();
        path.push(".part");
        path.into()
    }

    /// The directory that keeps a failed build.
    pub(crate) fn failed(&self) -> PathBuf {
        self.cache.root.join("failed").join(self.fingerprint.to_string())
    }

    /// Creates the directory, empty except for a directory for temporary files, which is returned.
    pub(crate) fn begin(&self) -> Result<PathBuf, BuildError> {
        let part = self.part();
        let temp = part.join("tmp");
        remove(&part)
            .and_then(|()| fs::create_dir_all(&temp))
            .map_err(|error| BuildError::io("creating", &temp, error))?;
        Ok(temp)
    }

    /// Renames the directory to the finished build's.
    pub(crate) fn commit(self, build: &Build) -> Result<(), BuildError> {
        let part = self.part();
        let json = part.join("build.json");
        serde_json::to_vec_pretty(build)
            .map_err(io::Error::other)
            .and_then(|text| fs::write(&json, text))
            .map_err(|error| BuildError::io("writing", &json, error))?;
        let folder = self.cache.folder(&self.fingerprint);
        // An existing directory of that name is incomplete.
        remove_whole(&folder)
            .and_then(|()| remove(&part.join("tmp")))
            .and_then(|()| fs::rename(&part, &folder))
            .map_err(|error| BuildError::io("finishing", &folder, error))?;
        let _ = remove(&self.failed());
        Ok(())
    }

    /// Keeps the directory of a failed build, for running the command again. Returns the path of
    /// the log.
    pub(crate) fn keep_failed(self) -> PathBuf {
        let (part, failed) = (self.part(), self.failed());
        let _ = remove(&part.join("tmp"));
        // Without the log, the error of the build is still reported.
        let _ = remove(&failed).and_then(|()| fs::rename(&part, &failed));
        failed.join("log.txt")
    }
}

impl Drop for PendingBuild<'_> {
    fn drop(&mut self) {
        let _ = remove(&self.part());
    }
}
