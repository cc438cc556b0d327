//! The build cache: its directories, what is in it, and removal.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use dbdyno_machine::default_cache_path;
use dbdyno_machine::safe_files::{SafeDir, UntrustedDir};

use crate::store::{Entry, GONE, Kind, Lock, Sharing, is_unfinished, listed, remove};
use crate::{Build, BuildError, Fingerprint, Sha256};

/// The directory of a build cache. What is in it is compiled and executed, so it is checked: nobody
/// but root and the effective user can write to it or replace a component of its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheDir(PathBuf);

const FOLDERS: [&str; 9] =
    ["apt", "builds", "downloads", "failed", "locks", "profiles", "releases", "sources", "work"];

impl CacheDir {
    /// Checks the directory, which may be missing; it is created when the first build is made.
    pub fn open(path: &Path) -> Result<Self, UntrustedDir> {
        // Compilers run in other directories, and write paths without symbolic links into programs.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let path = without_links(&path);
        if SafeDir::open_trusted(&path)?.is_some() {
            for folder in FOLDERS {
                SafeDir::open_trusted(&path.join(folder))?;
            }
        }
        Ok(Self(path))
    }

    /// Opens the directory that the user chose, or the default: see [`default_cache_path`].
    pub fn chosen_or_default(chosen: Option<&Path>) -> Result<Self, CacheDirError> {
        let path = match chosen {
            Some(path) => path.to_owned(),
            None => default_cache_path().ok_or(CacheDirError::None)?,
        };
        Ok(Self::open(&path)?)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// The path without symbolic links; what does not exist is kept.
fn without_links(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => without_links(parent).join(name),
        _ => path.to_owned(),
    })
}

#[derive(Debug, thiserror::Error)]
pub enum CacheDirError {
    #[error(
        "no directory for the build cache: set XDG_CACHE_HOME or HOME to an absolute path, or name \
         a directory with --cache"
    )]
    None,
    #[error(transparent)]
    Untrusted(#[from] UntrustedDir),
}

/// The build cache.
///
/// ```text
/// builds/<fingerprint>/        a finished build: a library or a server, build.json, log.txt,
///                              compile_commands.json
/// profiles/<key>/              see [`crate::Profiles`]
/// releases/<name>/             see [`crate::Releases`]
/// sources/<name>/              see [`crate::Sources`]
/// <kind>/<name>.part/          an incomplete entry
/// <kind>/<name>.gone           an entry being removed
/// work/<fingerprint>/tree/     build directory of a server, with its objects
/// work/<fingerprint>/done      the completed steps
/// work/<fingerprint>/started   an empty file, as old as the first attempt
/// failed/<fingerprint>/        the log of a library that failed to compile
/// downloads/<checksum>         archives
/// apt/<suite>/                 lists of Debian's packages
/// locks/<kind>-<name>          lock for making, using or removing an entry
/// ```
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

/// How long an interrupted download can be continued.
const MAX_DOWNLOAD_AGE: Duration = Duration::from_hours(24);

impl Cache {
    pub fn new(root: &CacheDir) -> Self {
        Self { root: root.path().to_owned() }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn entry(&self, kind: Kind, name: &str) -> Entry {
        let folder = self.root.join(kind.folder());
        let lock = self.lock(&format!("{}-{name}", kind.folder()));
        Entry { kind, folder: folder.join(name), lock }
    }

    pub(crate) fn build(&self, fingerprint: &Fingerprint) -> Entry {
        self.entry(Kind::Build, &fingerprint.to_string())
    }

    fn lock(&self, name: &str) -> PathBuf {
        self.root.join("locks").join(name)
    }

    /// The lock of the download of an archive with this checksum.
    pub(crate) fn download_lock(&self, sha256: &str) -> PathBuf {
        self.lock(&format!("download-{sha256}"))
    }

    pub(crate) fn lists_lock(&self, suite: &str) -> PathBuf {
        self.lock(&format!("apt-{suite}"))
    }

    pub fn folder(&self, fingerprint: &Fingerprint) -> PathBuf {
        self.build(fingerprint).folder
    }

    /// The directory for compiling a server.
    pub(crate) fn work(&self, fingerprint: &Fingerprint) -> PathBuf {
        self.root.join("work").join(fingerprint.to_string())
    }

    pub(crate) fn failed(&self, fingerprint: &Fingerprint) -> PathBuf {
        self.root.join("failed").join(fingerprint.to_string())
    }

    /// A finished build whose artifact matches its checksum; `None` if there is none.
    pub fn get(&self, fingerprint: &Fingerprint) -> Option<Build> {
        let check = |build: &mut Build, folder: &Path| build.adapt(fingerprint, folder);
        self.build(fingerprint).read(&check).ok()
    }

    /// The finished builds whose names start with `start`.
    pub fn named(&self, start: &str) -> Vec<Build> {
        let mut folders = entries(&self.root.join(Kind::Build.folder()));
        folders.retain(|path| name(path).starts_with(start));
        folders.sort();
        let builds = folders.iter().filter_map(|path| self.get(&read_build(path)?.fingerprint));
        builds.collect()
    }

    /// Prevents the removal of a build and its objects until the lease is dropped. Waits while
    /// another process makes or removes it; `None` if cancelled.
    pub fn lease(
        &self,
        fingerprint: &Fingerprint,
        cancel: &AtomicBool,
    ) -> Result<Option<CacheLease>, BuildError> {
        let lock = self.build(fingerprint).lock(Sharing::Shared, cancel, || {})?;
        Ok(lock.map(|lock| CacheLease { _lock: lock }))
    }

    /// Removes what killed processes left. Entries that cannot be removed are skipped until the
    /// next time.
    pub(crate) fn sweep(&self) {
        let remove_unless_locked = |path: &Path, lock: &Path| {
            // A locked directory is in use.
            if let Ok(Some(_lock)) = Lock::try_now(lock) {
                let _ = remove(path);
            }
        };
        for kind in Kind::ALL {
            let folder = self.root.join(kind.folder());
            for path in listed(&folder).filter(|path| is_unfinished(path)) {
                remove_unless_locked(&path, &self.entry(kind, &stem(&path)).lock);
            }
        }
        for path in listed(&self.root.join("downloads")).filter(|path| is_old_part(path)) {
            remove_unless_locked(&path, &self.download_lock(&stem(&path)));
        }
        for folder in ["work", "failed", "downloads", "apt"] {
            let gone = |path: &PathBuf| path.extension().is_some_and(|ending| ending == GONE);
            for path in listed(&self.root.join(folder)).filter(gone) {
                let _ = remove(&path);
            }
        }
    }
}

#[derive(Debug)]
pub struct CacheLease {
    _lock: Lock,
}

/// Whether a path is that of a download that was interrupted more than [`MAX_DOWNLOAD_AGE`] ago.
fn is_old_part(path: &Path) -> bool {
    let written = fs::metadata(path).and_then(|meta| meta.modified());
    let age = written.ok().and_then(|written| written.elapsed().ok());
    path.extension().is_some_and(|ending| ending == "part")
        && age.is_some_and(|age| age > MAX_DOWNLOAD_AGE)
}

impl Build {
    /// Checks that the description is that of a complete build in this directory, and adapts its
    /// paths: the cache may have been moved.
    pub(crate) fn adapt(&mut self, fingerprint: &Fingerprint, folder: &Path) -> Result<(), String> {
        let is_moved = self.folder != folder;
        self.artifact = folder.join(self.system.artifact());
        folder.clone_into(&mut self.folder);
        if self.fingerprint != *fingerprint {
            return Err("it is of another build".to_owned());
        }
        // A server's programs contain the directory that it was installed into.
        if is_moved && self.system.is_server() {
            return Err("the cache was moved".to_owned());
        }
        // Files that BOLT did not rewrite contain the directory of the base build.
        let sibling = |base: &Fingerprint| folder.with_file_name(base.to_string());
        if self.bolt.as_ref().is_some_and(|bolt| !sibling(&bolt.base).is_dir()) {
            return Err("the build that BOLT rewrote was removed".to_owned());
        }
        match Sha256::of_file(&self.artifact) {
            Ok(sha256) if sha256 == self.artifact_sha256 => Ok(()),
            _ => Err("its artifact was changed".to_owned()),
        }
    }
}

/// The description of the build in a directory, complete or not.
pub(crate) fn read_build(folder: &Path) -> Option<Build> {
    let text = fs::read(folder.join(Kind::Build.description())).ok()?;
    serde_json::from_slice(&text).ok()
}

pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    listed(folder).filter(|path| !is_unfinished(path)).collect()
}

pub(crate) fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::time::SystemTime;

    use super::*;
    use crate::trusted_tree::we_are_root;

    #[test]
    fn cache_that_others_can_write_to_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("cache");
        CacheDir::open(&cache).unwrap();
        fs::create_dir_all(cache.join("sources")).unwrap();
        CacheDir::open(&cache).unwrap();
        for open in [dir.path().to_owned(), cache.clone(), cache.join("sources")] {
            let before = fs::metadata(&open).unwrap().permissions();
            fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
            let error = CacheDir::open(&cache).unwrap_err();
            assert_eq!(error.component, open.canonicalize().unwrap());
            fs::set_permissions(&open, before).unwrap();
        }
        CacheDir::open(&cache).unwrap();
    }

    #[test]
    fn path_of_a_cache_has_no_symbolic_links() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let real = real.canonicalize().unwrap();
        assert_eq!(CacheDir::open(&link).unwrap().path(), real);
        assert_eq!(CacheDir::open(&link.join("new/cache")).unwrap().path(), real.join("new/cache"));
    }

    #[test]
    fn cache_of_another_user_is_refused() {
        if !we_are_root() {
            return dbdyno_fuzz::skip("only root can give files away");
        }
        let dir = tempfile::tempdir().unwrap();
        let theirs = dir.path().join("theirs");
        fs::create_dir_all(theirs.join("dbdyno")).unwrap();
        chown(&theirs, Some(65534), Some(65534)).unwrap();
        for path in [theirs.join("dbdyno"), theirs.join("missing")] {
            let error = CacheDir::open(&path).unwrap_err().to_string();
            assert!(error.contains("belongs to user 65534"), "{error}");
        }
    }

    #[test]
    fn sweep_keeps_complete_and_locked_entries() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(&CacheDir::open(dir.path()).unwrap());
        fs::create_dir(dir.path().join("locks")).unwrap();
        for folder in ["builds", "profiles", "releases", "sources", "work"] {
            for name in ["whole", "left.part", "left.raw", "made.part", "left.gone"] {
                fs::create_dir_all(dir.path().join(folder).join(name)).unwrap();
            }
        }
        let making = |lock: PathBuf| Lock::try_now(&lock).unwrap().unwrap();
        let _made = Kind::ALL.map(|kind| making(cache.entry(kind, "made").lock));
        cache.sweep();
        for folder in ["builds", "profiles", "releases", "sources"] {
            let mut left: Vec<String> = listed(&dir.path().join(folder))
                .filter(|path| path.is_dir())
                .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
                .collect();
            left.sort();
            assert_eq!(left, ["made.part", "whole"], "{folder}");
        }
        assert!(!dir.path().join("work/left.gone").exists());
        assert!(dir.path().join("work/whole").exists());
    }

    #[test]
    fn use_of_any_entry_is_noted() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(&CacheDir::open(dir.path()).unwrap());
        for kind in Kind::ALL {
            let entry = cache.entry(kind, "one");
            let (folder, made) = (entry.folder.clone(), SystemTime::UNIX_EPOCH);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(kind.description()), "1").unwrap();
            for path in [folder.join(kind.description()), folder.clone()] {
                File::open(path).unwrap().set_modified(made).unwrap();
            }
            let used =
                || cache.inventory().into_iter().find(|one| one.path == folder).unwrap().used;
            assert_eq!(used(), made, "{kind:?}");
            let any = |_: &mut u32, _: &Path| Ok(());
            entry.find(&any, &AtomicBool::new(false)).unwrap().unwrap();
            assert!(used() > made, "{kind:?}");
        }
    }

    #[test]
    fn sweep_removes_old_downloads_that_nobody_continues() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(&CacheDir::open(dir.path()).unwrap());
        for folder in ["locks", "downloads"] {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        let file = |name: &str| dir.path().join("downloads").join(name);
        let old = SystemTime::now() - 2 * MAX_DOWNLOAD_AGE;
        for name in ["old.part", "locked.part", "whole", "new.part"] {
            let created = File::create(file(name)).unwrap();
            if name != "new.part" {
                created.set_modified(old).unwrap();
            }
        }
        let _lock = Lock::try_now(&cache.download_lock("locked")).unwrap().unwrap();
        cache.sweep();
        assert!(!file("old.part").exists());
        for kept in ["locked.part", "whole", "new.part"] {
            assert!(file(kept).exists(), "{kept}");
        }
    }
}
