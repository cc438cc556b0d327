use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use super::history::CloneInUse;
use super::{Content, Source, debian, git, recognise, tree};
use crate::archive;
use crate::build_dir::open_folder;
use crate::fetching::Fetching;
use crate::lock::{Lock, Sharing};
use crate::removal::remove;
use crate::trusted_tree;
use crate::{BuildError, Cache, CacheDir, Sha256, SourceOrigin, System};

/// The cached sources.
///
/// A source is fetched once and then used without a network. Version and checksum of a branch or of
/// Debian's newest package are those at the time of fetching. A local archive is unpacked again when
/// it has changed.
///
/// ```text
/// sources/postgresql-1f0c…/           the files
/// sources/postgresql-1f0c….json       version, checksum, revision
/// sources/postgresql-1f0c….part/      an incomplete source
/// sources/history-77aa…/              a clone of a git repository with all commits
/// downloads/<checksum>                archives
/// apt/<suite>/                        lists of Debian's source packages
/// ```
#[derive(Clone, Debug)]
pub struct Sources {
    cache: Cache,
    cancel: Arc<AtomicBool>,
}

/// The description of a cached source.
#[derive(Serialize, Deserialize)]
struct Known {
    origin: SourceOrigin,
    version: String,
    sha256: Sha256,
    revision: Option<String>,
}

impl Sources {
    /// The sources in the cache in this directory. Setting `cancel` stops fetching.
    #[must_use]
    pub fn new(root: &CacheDir, cancel: Arc<AtomicBool>) -> Self {
        Self { cache: Cache::new(root), cancel }
    }

    pub(super) const fn cache(&self) -> &Cache {
        &self.cache
    }

    pub(super) fn cancel(&self) -> &AtomicBool {
        &self.cancel
    }

    /// Returns the source; fetches it if necessary. `report` gets progress messages.
    ///
    /// # Errors
    /// When it cannot be fetched, has another checksum, or is not of this system; or when a tool is
    /// missing.
    pub fn obtain(
        &self,
        system: System,
        origin: &SourceOrigin,
        report: &(dyn Fn(String) + Sync),
    ) -> Result<Source, BuildError> {
        match origin {
            SourceOrigin::Bundled if system == System::Sqlite => Ok(Source::bundled_sqlite()),
            SourceOrigin::Bundled => Err(BuildError::Fetching {
                what: what(system, origin),
                doing: "looking for it".to_owned(),
                reason: "only the source of SQLite is bundled".to_owned(),
                advice: "use a debian, git, tarball or path source".to_owned(),
            }),
            SourceOrigin::Path(path) => self.folder(system, origin, path),
            SourceOrigin::Tarball { .. }
            | SourceOrigin::Git { .. }
            | SourceOrigin::Debian { .. } => self.fetched(system, origin, report),
        }
    }

    /// A directory of the user. It may have been edited, so its checksum is computed each time.
    fn folder(
        &self,
        system: System,
        origin: &SourceOrigin,
        path: &Path,
    ) -> Result<Source, BuildError> {
        let failed = |error| BuildError::io("reading the source in", path, error);
        let path = path.canonicalize().map_err(failed)?;
        let version =
            recognise::version(system, &path).map_err(|reason| unfit(system, origin, reason))?;
        let sha256 = tree::sha256(&path).map_err(failed)?;
        let content = Content::Folder(path);
        Ok(Source { system, version, sha256, origin: origin.clone(), revision: None, content })
    }

    fn fetched(
        &self,
        system: System,
        origin: &SourceOrigin,
        report: &(dyn Fn(String) + Sync),
    ) -> Result<Source, BuildError> {
        let all = self.cache.sources();
        open_folder(&all).map_err(Fetching::io("creating", &all))?;
        let name = format!("{system}-{}", &key(origin)[..16]);
        let (folder, json) = (all.join(&name), all.join(format!("{name}.json")));
        let path = self.cache.source_lock(&name);
        let lock = |sharing| {
            let waiting = || {
                report(format!("waiting for another dbdyno process that fetches or uses {origin}"))
            };
            Lock::wait_unless(&path, sharing, &self.cancel, waiting)
                .map_err(Fetching::io("locking", &path))?
                .ok_or_else(|| cancelled(system))
        };
        let known = |report: &dyn Fn(String)| {
            let text = fs::read(&json).ok().filter(|_| folder.is_dir())?;
            let known: Known = serde_json::from_slice(&text).ok()?;
            if known.origin != *origin {
                return None;
            }
            if let SourceOrigin::Tarball { location, sha256 } = origin
                && !archive::is_current(location, sha256.as_deref(), &known.sha256.to_string())
            {
                report(format!("unpacking {origin} again, because the archive has changed"));
                return None;
            }
            match trusted_tree::check(&folder) {
                Ok(()) => Some(known),
                Err(error) => {
                    report(format!("fetching {origin} again, because {error}"));
                    None
                }
            }
        };
        // A shared lock prevents removal during use; fetching requires an exclusive lock.
        let mut held = lock(Sharing::Shared)?;
        let known = match known(&|_| {}) {
            Some(known) => known,
            None => {
                drop(held);
                held = lock(Sharing::Exclusive)?;
                let part = all.join(format!("{name}.part"));
                let (lock, cancel) = (&held, &*self.cancel);
                let what = what(system, origin);
                let text = origin.to_string();
                let (what, text) = (what.as_str(), text.as_str());
                let fetching = Fetching { what, origin: text, part: &part, lock, cancel, report };
                // Another process may have fetched it before the lock was acquired.
                let known = known(report)
                    .map_or_else(|| self.fetch(system, origin, &fetching, &folder, &json), Ok);
                let _ = fs::remove_dir_all(&part);
                let known = known?;
                held.share().map_err(Fetching::io("locking", &path))?;
                known
            }
        };
        Ok(Source {
            system,
            version: known.version,
            sha256: known.sha256,
            origin: known.origin,
            revision: known.revision,
            content: Content::Cached { folder, _lock: Arc::new(held) },
        })
    }

    fn fetch(
        &self,
        system: System,
        origin: &SourceOrigin,
        fetching: &Fetching<'_>,
        folder: &Path,
        json: &Path,
    ) -> Result<Known, BuildError> {
        let part = fetching.part;
        // The description first: without it, a directory is incomplete.
        for leftover in [json, part, folder] {
            remove(leftover).map_err(Fetching::io("removing", leftover))?;
        }
        // An archive may contain files that everybody can write to, so only dbdyno's user can reach
        // them until their permissions are discarded.
        let closed = fs::DirBuilder::new().mode(0o700).create(part);
        closed.map_err(Fetching::io("creating", part))?;
        let (inside, sha256, revision) = match origin {
            SourceOrigin::Tarball { location, sha256 } => {
                let expected = sha256.as_deref().map(str::parse::<Sha256>).transpose();
                let expected = expected.map_err(|_| {
                    unfit(system, origin, "`sha256` is not a SHA-256 checksum".to_owned())
                })?;
                let (inside, sha256) =
                    archive::fetch(fetching, location, expected.as_ref(), &self.cache)?;
                (inside, sha256, None)
            }
            SourceOrigin::Git { url, revision } => {
                let clone = CloneInUse::with_commit(fetching, &self.cache, url, revision)?;
                let from = clone.as_ref().map_or(url.as_str(), |clone| &clone.path);
                let (inside, sha256, commit) = git::fetch(fetching, (url, from), revision)?;
                (inside, sha256, Some(commit))
            }
            SourceOrigin::Debian { package, suite, version } => {
                // The lists are shared by all packages of the suite.
                let lock = self.cache.lists_lock(suite);
                let locks = lock.parent().unwrap_or(&lock);
                open_folder(locks).map_err(Fetching::io("creating", locks))?;
                let waiting = || say_waiting(fetching, suite);
                let _exclusive =
                    Lock::wait_unless(&lock, Sharing::Exclusive, &self.cancel, waiting)
                        .map_err(Fetching::io("locking", &lock))?
                        .ok_or_else(|| cancelled(system))?;
                let home = self.cache.root().join("apt");
                let version = version.as_deref();
                let (inside, sha256, version) =
                    debian::fetch(fetching, package, suite, version, &home)?;
                (inside, sha256, Some(version))
            }
            SourceOrigin::Bundled | SourceOrigin::Path(_) => unreachable!("these are not fetched"),
        };
        let removed = trusted_tree::discard_permissions(&inside)
            .map_err(Fetching::io("setting permissions in", &inside))?;
        for path in removed {
            let path = path.display();
            (fetching.report)(format!(
                "left out {path}: it leads out of the source, or is no file"
            ));
        }
        let version =
            recognise::version(system, &inside).map_err(|reason| unfit(system, origin, reason))?;
        let known = Known { origin: origin.clone(), version, sha256, revision };
        fs::rename(&inside, folder).map_err(Fetching::io("finishing", folder))?;
        // If killed here, the directory has no description and is fetched again.
        let text = serde_json::to_vec_pretty(&known).map_err(std::io::Error::other);
        text.and_then(|text| fs::write(json, text)).map_err(Fetching::io("writing", json))?;
        Ok(known)
    }
}

/// The name of a source in errors.
fn what(system: System, origin: &SourceOrigin) -> String {
    format!("the source of {}, {origin}", system.title())
}

fn cancelled(system: System) -> BuildError {
    BuildError::Cancelled { what: format!("the source of {system}") }
}

fn say_waiting(fetching: &Fetching<'_>, suite: &str) {
    (fetching.report)(format!("waiting for another dbdyno process to list sources of {suite}"));
}

fn unfit(system: System, origin: &SourceOrigin, reason: String) -> BuildError {
    BuildError::Unrecognised { what: what(system, origin), system, reason }
}

/// A cache key for an origin.
fn key(origin: &SourceOrigin) -> String {
    let text = serde_json::to_vec(origin).unwrap_or_default();
    Sha256::of(&text).to_string()
}
