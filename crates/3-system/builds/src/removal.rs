//! Removal of cache entries. An entry is renamed before it is removed: a kill at any moment leaves
//! no incomplete entry.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Cache;
use crate::lock::Lock;

/// The suffix of entries that are being removed.
const GONE: &str = "gone";

/// The suffixes of entries in progress; `raw` has the raw data of a training.
const UNFINISHED: [&str; 2] = ["part", "raw"];

/// How long an interrupted download can be continued.
const MAX_DOWNLOAD_AGE: Duration = Duration::from_hours(24);

/// Whether a path is not that of a complete entry.
pub(crate) fn is_unfinished(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    ending == GONE || UNFINISHED.contains(&ending)
}

/// Removes a directory or a file, if it exists. The caller must have exclusive access.
pub(crate) fn remove_whole(path: &Path) -> io::Result<()> {
    let mut gone = path.as_os_str().to_owned();
    gone.push(format!(".{GONE}"));
    let gone = PathBuf::from(gone);
    // Left by a process that was killed.
    remove(&gone)?;
    absent_is_fine(fs::rename(path, &gone))?;
    remove(&gone)
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

impl Cache {
    /// Removes what killed processes left. Entries that cannot be removed are skipped until the
    /// next time.
    pub(crate) fn sweep(&self) {
        for (folder, lock_of) in [
            ("builds", Self::lock_path as fn(&Self, &str) -> PathBuf),
            ("profiles", Self::profile_lock),
            ("sources", Self::source_lock),
            ("releases", Self::release_lock),
        ] {
            for path in listed(&self.root().join(folder)).filter(|path| is_unfinished(path)) {
                let Some(name) = path.file_stem().and_then(|name| name.to_str()) else { continue };
                // A locked directory is in use.
                if let Ok(Some(_lock)) = Lock::try_now(&lock_of(self, name)) {
                    let _ = remove(&path);
                }
            }
        }
        for path in listed(&self.root().join("downloads")).filter(|path| is_old_part(path)) {
            let Some(sha256) = path.file_stem().and_then(|name| name.to_str()) else { continue };
            if let Ok(Some(_lock)) = Lock::try_now(&self.download_lock(sha256)) {
                let _ = remove(&path);
            }
        }
        for folder in ["work", "failed", "downloads", "apt"] {
            let gone = |path: &PathBuf| path.extension().is_some_and(|ending| ending == GONE);
            for path in listed(&self.root().join(folder)).filter(gone) {
                let _ = remove(&path);
            }
        }
    }
}

/// Whether a path is that of a download that was interrupted more than [`MAX_DOWNLOAD_AGE`] ago.
fn is_old_part(path: &Path) -> bool {
    let written = fs::metadata(path).and_then(|meta| meta.modified());
    let age = written.ok().and_then(|written| written.elapsed().ok());
    path.extension().is_some_and(|ending| ending == "part")
        && age.is_some_and(|age| age > MAX_DOWNLOAD_AGE)
}

/// The entries of a directory; none if it does not exist.
pub(crate) fn listed(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CacheDir;

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
        let _made = [
            cache.lock_path("made"),
            cache.profile_lock("made"),
            cache.release_lock("made"),
            cache.source_lock("made"),
        ]
        .map(making);
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
    fn sweep_removes_old_downloads_that_nobody_continues() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(&CacheDir::open(dir.path()).unwrap());
        for folder in ["locks", "downloads"] {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        let file = |name: &str| dir.path().join("downloads").join(name);
        let old = std::time::SystemTime::now() - 2 * MAX_DOWNLOAD_AGE;
        for name in ["old.part", "locked.part", "whole", "new.part"] {
            let created = fs::File::create(file(name)).unwrap();
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
