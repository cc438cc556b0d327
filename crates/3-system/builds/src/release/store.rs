use std::env;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dbdyno_types::{ReleaseFile, ReleaseOrigin};
use serde::{Deserialize, Serialize};

use super::{Release, debian, program};
use crate::apt::Lists;
use crate::build_dir::{check_reach, open_folder};
use crate::fetching::{Fetching, Tool};
use crate::lock::{Lock, Sharing};
use crate::removal::remove;
use crate::{BuildError, Cache, CacheDir, Sha256, System};
use crate::{archive, trusted_tree};

/// The cached releases.
///
/// A release is fetched once and then used without a network: the newest version of a suite is that
/// at the time of fetching. A local archive is unpacked again when it has changed.
///
/// ```text
/// releases/mysql-sid-1f0c…/           the unpacked packages or archive
/// releases/mysql-sid-1f0c….json       origin, program, packages with checksums
/// releases/mysql-sid-1f0c….part/      an incomplete release
/// apt/<suite>-packages/               lists of Debian's packages
/// ```
#[derive(Clone, Debug)]
pub struct Releases {
    cache: Cache,
    cancel: Arc<AtomicBool>,
}

/// The description of a cached release.
#[derive(Serialize, Deserialize)]
struct Known {
    system: System,
    origin: ReleaseOrigin,
    /// Where it was unpacked: its programs contain the path.
    folder: PathBuf,
    program: PathBuf,
    files: Vec<ReleaseFile>,
}

impl Releases {
    /// The releases in the cache in this directory. Setting `cancel` stops fetching.
    #[must_use]
    pub fn new(root: &CacheDir, cancel: Arc<AtomicBool>) -> Self {
        Self { cache: Cache::new(root), cancel }
    }

    /// Returns a release of the cache; `None` if it is to be fetched.
    ///
    /// # Errors
    /// The cache cannot be used.
    pub fn cached(
        &self,
        system: System,
        origin: &ReleaseOrigin,
    ) -> Result<Option<Release>, BuildError> {
        let place = Place::of(&self.cache, system, origin);
        if !place.json.is_file() {
            return Ok(None);
        }
        let lock = self.lock(&place, Sharing::Shared, &|_| {})?;
        Ok(place.known(&|_| {}).map(|known| release(&place, known, lock)))
    }

    /// Returns the release; fetches it if necessary. `report` gets progress messages.
    ///
    /// # Errors
    /// It cannot be fetched, has another checksum, or has no program of this system; or a tool is
    /// missing.
    ///
    /// # Panics
    /// The origin is a directory of the user.
    pub fn obtain(
        &self,
        system: System,
        origin: &ReleaseOrigin,
        report: &(dyn Fn(String) + Sync),
    ) -> Result<Release, BuildError> {
        let all = self.cache.releases();
        open_folder(&all).map_err(Fetching::io("creating", &all))?;
        check_reach(self.cache.root())?;
        let place = Place::of(&self.cache, system, origin);
        // A shared lock prevents removal during use; fetching requires an exclusive lock.
        let held = self.lock(&place, Sharing::Shared, report)?;
        if let Some(known) = place.known(&|_| {}) {
            return Ok(release(&place, known, held));
        }
        drop(held);
        let held = self.lock(&place, Sharing::Exclusive, report)?;
        // Another process may have fetched it before the lock was acquired.
        let known = match place.known(report) {
            Some(known) => known,
            None => self.fetch(&place, &held, report)?,
        };
        held.share().map_err(Fetching::io("locking", &place.lock))?;
        Ok(release(&place, known, held))
    }

    /// Checks that the tools that fetch such a release are installed.
    ///
    /// # Errors
    /// One is missing; the error names its package.
    pub fn check_tools(origin: &ReleaseOrigin) -> Result<(), BuildError> {
        let tools = match origin {
            ReleaseOrigin::Debian { .. } => &debian::TOOLS[..],
            ReleaseOrigin::Tarball { .. } => &archive::TOOLS[..],
            ReleaseOrigin::Installed { .. } => &[],
        };
        let path = env::var_os("PATH").unwrap_or_default();
        let is_installed =
            |tool: &Tool| env::split_paths(&path).any(|folder| folder.join(tool.program).is_file());
        match tools.iter().find(|tool| !is_installed(tool)) {
            None => Ok(()),
            Some(tool) => Err(BuildError::MissingTool {
                tool: tool.program.to_owned(),
                purpose: format!("fetching {origin}"),
                package: tool.package.to_owned(),
            }),
        }
    }

    fn lock(
        &self,
        place: &Place<'_>,
        sharing: Sharing,
        report: &dyn Fn(String),
    ) -> Result<Lock, BuildError> {
        let waiting = || {
            report(format!(
                "waiting for another dbdyno process that fetches or uses {}",
                place.origin
            ))
        };
        Lock::wait_unless(&place.lock, sharing, &self.cancel, waiting)
            .map_err(Fetching::io("locking", &place.lock))?
            .ok_or_else(|| BuildError::Cancelled { what: place.what() })
    }

    fn fetch(
        &self,
        place: &Place<'_>,
        lock: &Lock,
        report: &(dyn Fn(String) + Sync),
    ) -> Result<Known, BuildError> {
        let part = place.folder.with_file_name(format!("{}.part", place.name));
        // The description first: without it, a directory is incomplete.
        for leftover in [&place.json, &part, &place.folder] {
            remove(leftover).map_err(Fetching::io("removing", leftover))?;
        }
        // A package or an archive may contain files that everybody can write to, so only dbdyno's
        // user can reach them until their permissions are discarded.
        let closed = fs::DirBuilder::new().mode(0o700).create(&part);
        closed.map_err(Fetching::io("creating", &part))?;
        let (what, origin) = (place.what(), place.origin.to_string());
        let (what, origin, cancel) = (what.as_str(), origin.as_str(), &*self.cancel);
        let fetching = Fetching { what, origin, part: &part, lock, cancel, report };
        let fetched = self.unpack(place, &fetching);
        let finished = fetched.and_then(|(inside, program, files)| {
            trusted_tree::discard_permissions(&inside)
                .map_err(Fetching::io("setting permissions in", &inside))?;
            let (system, origin) = (place.system, place.origin.clone());
            let known = Known { system, origin, folder: place.folder.clone(), program, files };
            fs::rename(&inside, &place.folder).map_err(Fetching::io("finishing", &place.folder))?;
            // If killed here, the directory has no description and is fetched again.
            let text = serde_json::to_vec_pretty(&known).map_err(std::io::Error::other);
            text.and_then(|text| fs::write(&place.json, text))
                .map_err(Fetching::io("writing", &place.json))?;
            Ok(known)
        });
        let _ = fs::remove_dir_all(&part);
        finished
    }

    /// The directory with the release, the program in it, and the files that it is from.
    fn unpack(
        &self,
        place: &Place<'_>,
        fetching: &Fetching<'_>,
    ) -> Result<(PathBuf, PathBuf, Vec<ReleaseFile>), BuildError> {
        match place.origin {
            ReleaseOrigin::Debian { suite } => {
                // The lists are shared by all systems of the suite.
                let path = self.cache.lists_lock(&Lists::Packages.name(suite));
                let locks = path.parent().unwrap_or(&path);
                open_folder(locks).map_err(Fetching::io("creating", locks))?;
                let waiting = || {
                    let text = "waiting for another dbdyno process to list packages of";
                    (fetching.report)(format!("{text} {suite}"));
                };
                let _lists = Lock::wait_unless(&path, Sharing::Exclusive, &self.cancel, waiting)
                    .map_err(Fetching::io("locking", &path))?
                    .ok_or_else(|| BuildError::Cancelled { what: place.what() })?;
                let home = self.cache.root().join("apt");
                debian::fetch(fetching, place.system, suite, &home, &place.folder)
            }
            ReleaseOrigin::Tarball { location, sha256 } => {
                let expected = sha256.as_deref().map(str::parse::<Sha256>).transpose();
                let expected = expected.map_err(|_| {
                    let reason = "`sha256` is not a SHA-256 checksum";
                    fetching.failed("checking it", reason, "it has 64 hexadecimal digits")
                })?;
                let (inside, sha256) =
                    archive::fetch(fetching, location, expected.as_ref(), &self.cache)?;
                let program = program::find(place.system, &inside).ok_or_else(|| {
                    let names = program::names(place.system).join(" or ");
                    let reason = format!("the archive has no program {names} in bin or sbin");
                    let advice = "use an archive with the compiled programs of this system; to \
                                  compile one, use `source` and `variant`";
                    fetching.failed("looking for the program", reason, advice)
                })?;
                let name = Path::new(location).file_name().unwrap_or_default();
                let file = ReleaseFile {
                    name: name.to_string_lossy().into_owned(),
                    version: String::new(),
                    sha256: sha256.to_string(),
                };
                Ok((inside, program, vec![file]))
            }
            ReleaseOrigin::Installed { .. } => unreachable!("an installed release is not fetched"),
        }
    }
}

fn release(place: &Place<'_>, known: Known, lock: Lock) -> Release {
    Release {
        system: place.system,
        origin: known.origin,
        program: place.folder.join(known.program),
        folder: place.folder.clone(),
        files: known.files,
        _lock: Arc::new(lock),
    }
}

/// Where a release is in the cache.
struct Place<'a> {
    system: System,
    origin: &'a ReleaseOrigin,
    name: String,
    folder: PathBuf,
    json: PathBuf,
    lock: PathBuf,
}

impl<'a> Place<'a> {
    fn of(cache: &Cache, system: System, origin: &'a ReleaseOrigin) -> Self {
        let suite = match origin {
            ReleaseOrigin::Debian { suite } => format!("{suite}-"),
            ReleaseOrigin::Tarball { .. } | ReleaseOrigin::Installed { .. } => String::new(),
        };
        let key = Sha256::of(&serde_json::to_vec(origin).unwrap_or_default()).to_string();
        let name = format!("{system}-{suite}{}", &key[..12]);
        let folder = cache.releases().join(&name);
        let json = cache.releases().join(format!("{name}.json"));
        let lock = cache.release_lock(&name);
        Self { system, origin, name, folder, json, lock }
    }

    fn what(&self) -> String {
        format!("the release of {}, {}", self.system.title(), self.origin)
    }

    /// The description of the release, if it is complete and nobody else could have changed it.
    fn known(&self, report: &dyn Fn(String)) -> Option<Known> {
        let text = fs::read(&self.json).ok().filter(|_| self.folder.is_dir())?;
        let known: Known = serde_json::from_slice(&text).ok()?;
        if known.folder != self.folder || known.origin != *self.origin {
            // The cache was moved.
            return None;
        }
        if let ReleaseOrigin::Tarball { location, sha256 } = self.origin
            && let [archive] = &known.files[..]
            && !archive::is_current(location, sha256.as_deref(), &archive.sha256)
        {
            report(format!("unpacking {} again, because the archive has changed", self.origin));
            return None;
        }
        match trusted_tree::check(&self.folder) {
            Ok(()) => Some(known),
            Err(error) => {
                report(format!("fetching {} again, because {error}", self.origin));
                None
            }
        }
    }
}

/// What the description of a cached release says about it: version and origin.
pub(crate) fn describe(folder: &Path) -> String {
    let mut json = folder.as_os_str().to_owned();
    json.push(".json");
    let known = fs::read(json).ok().and_then(|text| serde_json::from_slice::<Known>(&text).ok());
    known.map_or_else(String::new, |known| {
        let file = known.files.first().map(ToString::to_string).unwrap_or_default();
        format!("{file}, {}", known.origin)
    })
}
