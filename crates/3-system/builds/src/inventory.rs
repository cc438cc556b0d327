//! What is in the build cache, and the removal of what is used least.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use dbdyno_units::Bytes;

use crate::cache::{entries, name, read_build};
use crate::profile::trained_on_in;
use crate::release::describe;
use crate::store::{Kind, Lock, listed, remove_whole};
use crate::trusted_tree::open_folder;
use crate::{Build, Cache, Fingerprint};

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
    pub fn inventory(&self) -> Vec<CacheEntry> {
        let used = |kind: Kind, path: &Path| time(&path.join(kind.description())).max(time(path));
        let mut all = Vec::new();
        let mut add = |folder: &str, of: &dyn Fn(&Path) -> (CacheEntryKind, SystemTime)| {
            for path in entries(&self.root().join(folder)) {
                let (kind, used) = of(&path);
                all.push(CacheEntry { kind, size: Bytes::from_bytes(size(&path)), path, used });
            }
        };
        add("builds", &|path| {
            let kind = read_build(path).map_or(CacheEntryKind::UnreadableBuild, |build| {
                CacheEntryKind::Build(Box::new(build))
            });
            (kind, used(Kind::Build, path))
        });
        add("work", &|path| (CacheEntryKind::Tree, time(&path.join("log.txt"))));
        add("failed", &|path| (CacheEntryKind::Failed, time(path)));
        add("profiles", &|path| {
            (CacheEntryKind::Profile(trained_on_in(path)), used(Kind::Profile, path))
        });
        add("sources", &|path| (CacheEntryKind::Source, used(Kind::Source, path)));
        add("releases", &|path| {
            (CacheEntryKind::Release(describe(path)), used(Kind::Release, path))
        });
        for folder in ["downloads", "apt"] {
            add(folder, &|path| (CacheEntryKind::Download, time(path)));
        }
        all.retain(|entry| {
            !matches!(entry.kind, CacheEntryKind::Source | CacheEntryKind::Release(_))
                || entry.path.is_dir()
        });
        all
    }

    /// Removes an entry unless it is in use. Returns whether it was removed.
    pub fn remove(&self, entry: &CacheEntry) -> io::Result<bool> {
        let name = name(&entry.path);
        let of = |kind, name: &str| Some(self.entry(kind, name).lock);
        let lock = match &entry.kind {
            CacheEntryKind::Tree | CacheEntryKind::UnreadableBuild => of(Kind::Build, &name),
            CacheEntryKind::Build(build) => of(Kind::Build, &build.fingerprint.to_string()),
            CacheEntryKind::Profile(_) => of(Kind::Profile, &name),
            CacheEntryKind::Release(_) => of(Kind::Release, &name),
            CacheEntryKind::Source => of(Kind::Source, &name),
            CacheEntryKind::Download if entry.path.is_dir() => Some(self.lists_lock(&name)),
            CacheEntryKind::Failed | CacheEntryKind::Download => None,
        };
        let _lock = match lock {
            Some(path) => {
                open_folder(path.parent().unwrap_or(self.root()))?;
                let Some(lock) = Lock::try_now(&path)? else { return Ok(false) };
                Some(lock)
            }
            None => None,
        };
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
    own + listed(path).map(|path| size(&path)).sum::<u64>()
}
