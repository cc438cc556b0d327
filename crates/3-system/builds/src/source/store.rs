use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::history::CloneInUse;
use super::{Content, Known, Source, tree_sha256};
use crate::apt::{Apt, CACHE, GET, Lists};
use crate::error::io_error;
use crate::fetching::{Fetched, Fetching, TREE, Tool, check_archive, unpack_archive};
use crate::store::Kind;
use crate::{BuildError, Cache, CacheDir, ProblemKind, Sha256, SourceOrigin, System};

/// The cached sources.
///
/// A source is fetched once and then used without a network. Version and checksum of a branch or of
/// Debian's newest package are those at the time of fetching. A local archive is unpacked again when
/// it has changed.
///
/// ```text
/// sources/postgresql-1f0c…/tree/          the files
/// sources/postgresql-1f0c…/source.json    version, checksum, revision
/// sources/history-77aa…/                  a clone of a git repository with all commits
/// apt/<suite>/                            lists of Debian's source packages
/// ```
#[derive(Clone, Debug)]
pub struct Sources {
    cache: Cache,
    cancel: Arc<AtomicBool>,
}

impl Sources {
    /// The sources in the cache in this directory. Setting `cancel` stops fetching.
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
    pub fn obtain(
        &self,
        system: System,
        origin: &SourceOrigin,
        report: &(dyn Fn(String) + Sync),
    ) -> Result<Source, BuildError> {
        match origin {
            SourceOrigin::Bundled if system == System::Sqlite => Ok(Source::bundled_sqlite()),
            SourceOrigin::Bundled => Err(BuildError::new(
                ProblemKind::Fetching,
                format!(
                    "looking for it failed for {}: only the source of SQLite is bundled",
                    what(system, origin)
                ),
                "use a debian, git, tarball or path source",
            )),
            SourceOrigin::Path(path) => self.folder(system, origin, path),
            SourceOrigin::Tarball { .. }
            | SourceOrigin::Git { .. }
            | SourceOrigin::Debian { .. } => self.fetch(system, origin, report),
        }
    }

    /// A directory of the user. It may have been edited, so its checksum is computed each time.
    fn folder(
        &self,
        system: System,
        origin: &SourceOrigin,
        path: &Path,
    ) -> Result<Source, BuildError> {
        let failed = |error| BuildError::io("reading the source in", path, &error);
        let path = path.canonicalize().map_err(failed)?;
        let version =
            (system.recipe().version)(&path).map_err(|reason| unfit(system, origin, &reason))?;
        let sha256 = tree_sha256(&path).map_err(failed)?;
        let about = Known { origin: origin.clone(), version, sha256, revision: None };
        Ok(Source { system, about, content: Content::Folder(path) })
    }

    fn fetch(
        &self,
        system: System,
        origin: &SourceOrigin,
        report: &(dyn Fn(String) + Sync),
    ) -> Result<Source, BuildError> {
        let key = Sha256::of(&serde_json::to_vec(origin).unwrap_or_default()).to_string();
        let fetched = Fetched {
            entry: self.cache.entry(Kind::Source, &format!("{system}-{}", &key[..16])),
            what: what(system, origin),
            origin: origin.to_string(),
            cancel: &self.cancel,
            report,
        };
        let check = |known: &mut Known, _: &Path| {
            if known.origin != *origin {
                return Err("it is of another origin".to_owned());
            }
            match origin {
                SourceOrigin::Tarball { location, sha256 } => {
                    check_archive(location, sha256.as_deref(), &known.sha256.to_string())
                }
                _ => Ok(()),
            }
        };
        let held = fetched.obtain(
            &check,
            |fetching| {
                let (inside, sha256, revision) = self.unpack(origin, fetching)?;
                Ok((inside, (sha256, revision)))
            },
            |(sha256, revision), inside, left_out| {
                for path in left_out {
                    let path = path.display();
                    report(format!(
                        "left out {path}: it leads out of the source, or is not a regular file"
                    ));
                }
                let version = (system.recipe().version)(inside)
                    .map_err(|reason| unfit(system, origin, &reason))?;
                Ok(Known { origin: origin.clone(), version, sha256, revision })
            },
        )?;
        let about = held.about.clone();
        let folder = held.folder.join(TREE);
        Ok(Source { system, about, content: Content::Cached { folder, _held: held } })
    }

    /// The directory with the source, its checksum and its revision.
    fn unpack(
        &self,
        origin: &SourceOrigin,
        fetching: &Fetching<'_>,
    ) -> Result<(PathBuf, Sha256, Option<String>), BuildError> {
        match origin {
            SourceOrigin::Tarball { location, sha256 } => {
                let (inside, sha256) =
                    unpack_archive(fetching, location, sha256.as_deref(), &self.cache)?;
                Ok((inside, sha256, None))
            }
            SourceOrigin::Git { url, revision } => {
                let clone = CloneInUse::with_commit(fetching, &self.cache, url, revision)?;
                let from = clone.as_ref().map_or(url.as_str(), |clone| &clone.path);
                let (inside, sha256, commit) = fetch_commit(fetching, (url, from), revision)?;
                Ok((inside, sha256, Some(commit)))
            }
            SourceOrigin::Debian { package, suite, version } => {
                // The lists are shared by all packages of the suite.
                let what = format!("sources of {suite}");
                let _lists = fetching.lock_lists(&self.cache, suite, &what)?;
                let home = self.cache.root().join("apt");
                let version = version.as_deref();
                let (inside, sha256, version) =
                    fetch_package(fetching, package, suite, version, &home)?;
                Ok((inside, sha256, Some(version)))
            }
            SourceOrigin::Bundled | SourceOrigin::Path(_) => unreachable!("these are not fetched"),
        }
    }
}

/// The name of a source in errors.
fn what(system: System, origin: &SourceOrigin) -> String {
    format!("the source of {}, {origin}", system.title())
}

fn unfit(system: System, origin: &SourceOrigin, reason: &str) -> BuildError {
    let (title, what) = (system.title(), what(system, origin));
    BuildError::new(
        ProblemKind::Source,
        format!("detecting the version of {title} failed for {what}: {reason}"),
        "use a source of this system",
    )
}

const GIT: Tool = Tool { program: "git", package: "git" };

/// Options for every command: hooks and monitors that the user's configuration names are not run,
/// and nothing runs in the background after a command.
const OPTIONS: [&str; 8] = [
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "gc.auto=0",
    "-c",
    "maintenance.auto=false",
];

/// Runs git in a directory and returns its output.
pub(super) fn git(
    fetching: &Fetching<'_>,
    doing: &str,
    dir: &Path,
    args: &[&str],
) -> Result<String, BuildError> {
    fetching.run(GIT, doing, dir, &[&OPTIONS, args].concat())
}

/// Fetches one revision with its submodules, without history. Returns the directory, the checksum
/// and the commit. `from` is the repository at `url`, or a clone of it.
fn fetch_commit(
    fetching: &Fetching<'_>,
    (url, from): (&str, &str),
    revision: &str,
) -> Result<(PathBuf, Sha256, String), BuildError> {
    let folder = fetching.part.join("inside");
    fs::create_dir(&folder).map_err(io_error("creating", &folder))?;
    (fetching.report)(format!("fetching {revision} of {url}"));
    let git = |doing: &str, args: &[&str]| git(fetching, doing, &folder, args);
    git("making a repository for it", &["init", "--quiet"])?;
    // Submodules may have URLs relative to it.
    git("preparing it", &["remote", "add", "--", "origin", &without_credentials(url)])?;
    git("fetching it", &["fetch", "--quiet", "--depth", "1", "--", from, revision])?;
    git("checking it out", &["checkout", "--quiet", "--detach", "FETCH_HEAD"])?;
    let submodules = ["submodule", "update", "--quiet", "--init", "--recursive", "--depth", "1"];
    git("fetching its submodules", &submodules)?;
    let commit = git("asking for its commit", &["rev-parse", "HEAD"])?.trim().to_owned();
    let sha256 = tree_sha256(&folder).map_err(io_error("reading", &folder))?;
    Ok((folder, sha256, commit))
}

/// A URL without a password or token, for git's configuration, which is a file. The user's name of
/// other protocols than HTTP stays: it is part of the address.
fn without_credentials(url: &str) -> String {
    let Some((protocol, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) if protocol.starts_with("http") || rest[..at].contains(':') => {
            format!("{protocol}://{}", &rest[at + 1..])
        }
        _ => url.to_owned(),
    }
}

const DPKG: Tool = Tool { program: "dpkg", package: "dpkg" };
const UNPACK: Tool = Tool { program: "dpkg-source", package: "dpkg-dev" };

/// Fetches a source package and applies Debian's patches. Returns the directory, the checksum of
/// the `.dsc` file, and the version.
fn fetch_package(
    fetching: &Fetching<'_>,
    package: &str,
    suite: &str,
    version: Option<&str>,
    home: &Path,
) -> Result<(PathBuf, Sha256, String), BuildError> {
    let apt = Apt::prepare(fetching, Lists::Sources, suite, home)?;
    let mut versions = versions(&apt, package)?;
    if versions.is_empty() {
        return Err(fetching.failed(
            "looking for it",
            format!("{suite} has no source package {package}"),
            "`apt-cache showsrc NAME` shows the source package of a package",
        ));
    }
    if let Some(version) = version {
        if !versions.iter().any(|known| known == version) {
            return Err(fetching.failed(
                "looking for it",
                format!("{suite} has {} and not {version}", versions.join(" and ")),
                "name one of these, or leave `version` out",
            ));
        }
        versions.retain(|known| known == version);
    }
    let files = fetching.part.join("files");
    fs::create_dir(&files).map_err(io_error("creating", &files))?;
    let version = download(&apt, package, &versions, &files)?;
    let description = description(&files)
        .ok_or_else(|| fetching.failed("downloading it", "no .dsc file came", "try again"))?;
    let sha256 = Sha256::of_file(&description).map_err(io_error("reading", &description))?;
    let inside = fetching.part.join("inside");
    // apt has already verified all files against the signed lists. The `.dsc` file is signed by a
    // developer, whose key is not available here.
    let args = ["--no-check", "--extract", &description.to_string_lossy(), "inside"];
    fetching.run(UNPACK, "unpacking it", fetching.part, &args)?;
    Ok((inside, sha256, version))
}

/// The versions of a source package, the newest first.
fn versions(apt: &Apt<'_>, package: &str) -> Result<Vec<String>, BuildError> {
    let args = ["showsrc", "--only-source", package];
    // apt fails for an unknown package.
    let text = match apt.run(CACHE, "looking for it", apt.fetching.part, &args) {
        Err(error) if error.is_fetching("Unable to locate") => String::new(),
        other => other?,
    };
    let mut versions = versions_in(&text);
    let mut failed = None;
    versions.sort_by(|a, b| match is_newer(apt.fetching, a, b) {
        Ok(true) => Ordering::Less,
        Ok(false) => Ordering::Greater,
        Err(error) => {
            failed = Some(error);
            Ordering::Equal
        }
    });
    failed.map_or(Ok(versions), Err)
}

fn is_newer(fetching: &Fetching<'_>, a: &str, b: &str) -> Result<bool, BuildError> {
    let args = ["--compare-versions", a, "gt", b];
    match fetching.run(DPKG, "comparing versions", fetching.part, &args) {
        Ok(_) => Ok(true),
        Err(error) if error.is_fetching("") => Ok(false),
        Err(error) => Err(error),
    }
}

/// Downloads the newest available version: a mirror may not yet have the versions in its lists.
fn download(
    apt: &Apt<'_>,
    package: &str,
    versions: &[String],
    files: &Path,
) -> Result<String, BuildError> {
    let fetching = apt.fetching;
    let mut first_error = None;
    for version in versions {
        (fetching.report)(format!("downloading {package} {version}"));
        let package_version = format!("{package}={version}");
        let args = ["source", "--download-only", "--only-source", &package_version];
        match apt.run(GET, "downloading it", files, &args) {
            Ok(_) => return Ok(version.clone()),
            Err(error) if error.is_fetching("") => {
                (fetching.report)(format!("the mirror does not have {package} {version}"));
                first_error.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(first_error.unwrap_or_else(|| {
        fetching.failed("downloading it", "there is no version of it", "name another")
    }))
}

/// The versions in the output of `showsrc`, without duplicates.
fn versions_in(text: &str) -> Vec<String> {
    let mut versions: Vec<String> = Vec::new();
    for version in text.lines().filter_map(|line| line.strip_prefix("Version: ")) {
        if !versions.iter().any(|known| known == version) {
            versions.push(version.to_owned());
        }
    }
    versions
}

fn description(files: &Path) -> Option<PathBuf> {
    let mut entries = fs::read_dir(files).ok()?.flatten().map(|entry| entry.path());
    entries.find(|path| path.extension().is_some_and(|end| end == "dsc"))
}

#[cfg(test)]
mod tests {
    use dbdyno_fuzz::Fuzz;

    use super::*;

    #[test]
    fn credentials_are_not_stored() {
        for (url, stored) in [
            ("https://me:secret@host/a.git", "https://host/a.git"),
            ("https://token@host/a.git", "https://host/a.git"),
            ("ssh://me:secret@host:22/a.git", "ssh://host:22/a.git"),
            ("ssh://git@host/a@b:c.git", "ssh://git@host/a@b:c.git"),
            ("https://host/a@b", "https://host/a@b"),
            ("git@host:a.git", "git@host:a.git"),
            ("/srv/a.git", "/srv/a.git"),
        ] {
            assert_eq!(without_credentials(url), stored);
        }
    }

    #[test]
    fn damaged_versions_of_apt_are_read() {
        let versions = "Package: a\nVersion: 1.0-1\n\nPackage: a\nVersion: 1.0-2\n";
        let samples = vec![versions.into()];
        Fuzz::new(samples).words(&["\n", "\r", "Version: "]).run(|text| {
            let text = String::from_utf8_lossy(text);
            assert!(versions_in(&text).len() <= text.lines().count());
        });
    }

    #[test]
    fn version_in_two_archives_counts_once() {
        let text = "Package: a\nVersion: 1.0-1\n\nPackage: a\nVersion: 1.0-2\n\nVersion: 1.0-1\n";
        assert_eq!(versions_in(text), ["1.0-1", "1.0-2"]);
    }
}
