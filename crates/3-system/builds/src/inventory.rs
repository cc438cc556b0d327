//! Listing, removal and size limit of cache entries.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use dbdyno_units::Bytes;

use crate::build_dir::open_folder;
use crate::cache::USED;
use crate::lock::Lock;
use crate::profile::trained_on_in;
use crate::removal::{is_unfinished, listed, remove, remove_whole};
use crate::{Build, Cache, Fingerprint, release};

/// An entry of the cache.
#[derive(Clone, Debug)]
pub struct CacheEntry {
    pub kind: CacheEntryKind,
    /// Its directory or file.
    pub path: PathBuf,
    /// Disk space.
    pub size: Bytes,
    /// The last known use.
    pub used: SystemTime,
}

/// The kind of an entry.
#[derive(Clone, Debug)]
pub enum CacheEntryKind {
    /// The build directory of a server, with its objects.
    Tree,
    /// A finished build.
    Build(Box<Build>),
    /// A build whose `build.json` is damaged, or from another version of dbdyno.
    UnreadableBuild,
    /// The log of a build that failed.
    Failed,
    /// A profile, with a description of its training.
    Profile(String),
    /// A compiled release, with its package and where it is from.
    Release(String),
    /// An unpacked source.
    Source,
    /// A source archive, or Debian package lists.
    Download,
}

impl Cache {
    /// All complete entries.
    #[must_use]
    pub fn inventory(&self) -> Vec<CacheEntry> {
        let mut all = Vec::new();
        for path in entries(&self.root().join("builds")) {
            let text = fs::read(path.join("build.json")).ok();
            let build = text.and_then(|text| serde_json::from_slice::<Build>(&text).ok());
            let kind = build.map_or(CacheEntryKind::UnreadableBuild, |build| {
                CacheEntryKind::Build(Box::new(build))
            });
            let used = time(&path.join(USED)).max(time(&path));
            all.push(entry(kind, path, used));
        }
        for path in entries(&self.root().join("work")) {
            let used = time(&path.join("log.txt"));
            all.push(entry(CacheEntryKind::Tree, path, used));
        }
        for path in entries(&self.root().join("failed")) {
            let used = time(&path);
            all.push(entry(CacheEntryKind::Failed, path, used));
        }
        for path in entries(&self.root().join("profiles")) {
            let (used, trained_on) = (time(&path), trained_on_in(&path));
            all.push(entry(CacheEntryKind::Profile(trained_on), path, used));
        }
        let sources = entries(&self.root().join("sources"));
        for path in sources.into_iter().filter(|path| path.is_dir()) {
            let used = time(&path);
            all.push(entry(CacheEntryKind::Source, path, used));
        }
        let releases = entries(&self.root().join("releases"));
        for path in releases.into_iter().filter(|path| path.is_dir()) {
            let used = time(&path);
            all.push(entry(CacheEntryKind::Release(release::describe(&path)), path, used));
        }
        for folder in ["downloads", "apt"] {
            for path in entries(&self.root().join(folder)) {
                let used = time(&path);
                all.push(entry(CacheEntryKind::Download, path, used));
            }
        }
        all
    }

    /// Removes an entry unless it is in use. Returns whether it was removed.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, entry: &CacheEntry) -> io::Result<bool> {
        let name = name(&entry.path);
        let lock = match &entry.kind {
            CacheEntryKind::Tree | CacheEntryKind::UnreadableBuild => Some(self.lock_path(&name)),
            CacheEntryKind::Build(build) => Some(self.lock_path(&build.fingerprint.to_string())),
            CacheEntryKind::Profile(_) => Some(self.profile_lock(&name)),
            CacheEntryKind::Release(_) => Some(self.release_lock(&name)),
            CacheEntryKind::Source => Some(self.source_lock(&name)),
            CacheEntryKind::Download if entry.path.is_dir() => Some(self.lists_lock(&name)),
            CacheEntryKind::Failed | CacheEntryKind::Download => None,
        };
        let _lock = match lock {
            Some(path) => {
                open_folder(path.parent().unwrap_or(self.root()))?;
                match Lock::try_now(&path)? {
                    Some(lock) => Some(lock),
                    None => return Ok(false),
                }
            }
            None => None,
        };
        if matches!(entry.kind, CacheEntryKind::Source | CacheEntryKind::Release(_)) {
            // Without its description, it is fetched again.
            remove(&entry.path.with_file_name(format!("{name}.json")))?;
        }
        remove_whole(&entry.path)?;
        Ok(true)
    }

    /// Removes the least recently used entries until the rest fits into `limit`: logs of failures,
    /// objects, builds, profiles, releases, sources, downloads. Keeps `keep` and entries in use.
    pub fn shrink(&self, limit: Bytes, keep: &[Fingerprint]) {
        let mut all = self.inventory();
        let mut total: u64 = all.iter().map(|entry| entry.size.as_bytes()).sum();
        all.retain(|entry| !is_kept(entry, keep));
        all.sort_by_key(|entry| (rank(&entry.kind), entry.used));
        for entry in all {
            if total <= limit.as_bytes() {
                return;
            }
            // Failed removals are repeated the next time.
            if self.remove(&entry).is_ok_and(|removed| removed) {
                total -= entry.size.as_bytes();
            }
        }
    }
}

fn is_kept(entry: &CacheEntry, keep: &[Fingerprint]) -> bool {
    match &entry.kind {
        CacheEntryKind::Build(build) => keep.contains(&build.fingerprint),
        CacheEntryKind::Tree | CacheEntryKind::UnreadableBuild => {
            let name = name(&entry.path);
            keep.iter().any(|fingerprint| fingerprint.to_string() == name)
        }
        CacheEntryKind::Failed
        | CacheEntryKind::Profile(_)
        | CacheEntryKind::Release(_)
        | CacheEntryKind::Source
        | CacheEntryKind::Download => false,
    }
}

const fn rank(kind: &CacheEntryKind) -> u8 {
    match kind {
        CacheEntryKind::Failed => 0,
        CacheEntryKind::Tree => 1,
        CacheEntryKind::Build(_) | CacheEntryKind::UnreadableBuild => 2,
        CacheEntryKind::Profile(_) => 3,
        CacheEntryKind::Release(_) => 4,
        CacheEntryKind::Source => 5,
        CacheEntryKind::Download => 6,
    }
}

fn entry(kind: CacheEntryKind, path: PathBuf, used: SystemTime) -> CacheEntry {
    let size = Bytes::from_bytes(size(&path));
    CacheEntry { kind, path, size, used }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    listed(folder).filter(|path| !is_unfinished(path)).collect()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn time(path: &Path) -> SystemTime {
    let time = fs::metadata(path).and_then(|meta| meta.modified());
    time.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Disk space of all files below a path.
fn size(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(meta) = fs::symlink_metadata(path) else { return 0 };
    let own = meta.blocks() * 512;
    if !meta.is_dir() {
        return own;
    }
    let inner = fs::read_dir(path).into_iter().flatten().flatten();
    own + inner.map(|entry| size(&entry.path())).sum::<u64>()
}
