//! Sources of systems: origins, fetching, versions.

mod history;

use std::cmp::Ordering;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use flate2::write::ZlibDecoder;
use serde::{Deserialize, Serialize};
use sha2::Digest;

use crate::apt::{Apt, CACHE, DPKG, GET, Lists, NOT_FOUND};
use crate::error::io_error;
use crate::fetching::{Fetched, Fetching, TREE, Tool, check_archive, unpack_archive};
use crate::store::{Held, Kind, Lookup, Query, listed, remove};
use crate::{BuildError, Cache, CacheDir, ProblemKind, Sha256, SourceOrigin, System};

use history::{CloneInUse, git};

pub use history::{Commit, CommitRange, HistoryError, RangeRequest};

/// The source of one version of a system, on this machine.
#[derive(Clone, Debug)]
pub struct Source {
    system: System,
    about: Known,
    content: Content,
}

/// What is known about a source, as stored in the cache.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Known {
    origin: SourceOrigin,
    version: String,
    sha256: Sha256,
    revision: Option<String>,
}

/// The location of the files.
#[derive(Clone, Debug)]
enum Content {
    /// Part of this program.
    Bundled,
    /// In a directory of the user.
    Folder(PathBuf),
    /// In a directory of the cache, locked against removal.
    Cached { folder: PathBuf, _held: Held<Known> },
}

impl Source {
    /// The bundled SQLite amalgamation.
    pub fn bundled_sqlite() -> Self {
        Self {
            system: System::Sqlite,
            about: Known {
                origin: SourceOrigin::Bundled,
                version: VERSION.to_owned(),
                sha256: SQLITE[0].sha256,
                revision: None,
            },
            content: Content::Bundled,
        }
    }

    pub const fn system(&self) -> System {
        self.system
    }

    pub const fn name(&self) -> &'static str {
        self.system.name()
    }

    pub fn version(&self) -> &str {
        &self.about.version
    }

    pub const fn origin(&self) -> &SourceOrigin {
        &self.about.origin
    }

    /// The revision: a commit, or a package's version.
    pub fn revision(&self) -> Option<&str> {
        self.about.revision.as_deref()
    }

    /// The checksum: of the amalgamation's `sqlite3.c`, of the tarball, of the `.dsc` file of a
    /// Debian source package (which contains those of its files), or of all files of a directory
    /// with their names.
    pub const fn sha256(&self) -> &Sha256 {
        &self.about.sha256
    }

    /// The directory of the user that has not the content any more for which the checksum was computed;
    /// `None` for one that has, and for sources in the cache.
    pub(crate) fn edited(&self) -> Result<Option<&Path>, BuildError> {
        let Content::Folder(folder) = &self.content else { return Ok(None) };
        let sha256 = tree_sha256(folder).map_err(io_error("reading the source in", folder))?;
        Ok((sha256 != self.about.sha256).then_some(folder))
    }

    /// When a file in the user's directory was last changed; `None` for sources in the cache.
    pub(crate) fn last_change(&self) -> Result<Option<SystemTime>, BuildError> {
        let Content::Folder(folder) = &self.content else { return Ok(None) };
        let last = last_change(folder);
        let last = last.map_err(io_error("reading the source in", folder))?;
        Ok(Some(last))
    }

    /// The directory with the source. The bundled source is unpacked into the cache; its path does
    /// not change, so that paths in debug information remain valid.
    pub fn unpack(&self, cache: &Cache) -> Result<PathBuf, BuildError> {
        match &self.content {
            Content::Bundled => unpack_bundled(&self.about, cache),
            Content::Folder(folder) | Content::Cached { folder, .. } => Ok(folder.clone()),
        }
    }
}

const VERSION: &str = env!("DBDYNO_SQLITE_VERSION");

/// A compressed, embedded file.
#[derive(Debug)]
struct Packed {
    name: &'static str,
    zlib: &'static [u8],
    sha256: Sha256,
}

/// The embedded files, written by `build.rs`.
static SQLITE: [Packed; 2] = [
    Packed {
        name: "sqlite3.c",
        zlib: include_bytes!(concat!(env!("OUT_DIR"), "/sqlite3.c.zlib")),
        sha256: Sha256::from_constant(env!("DBDYNO_SQLITE3_C_SHA256")),
    },
    Packed {
        name: "sqlite3.h",
        zlib: include_bytes!(concat!(env!("OUT_DIR"), "/sqlite3.h.zlib")),
        sha256: Sha256::from_constant(env!("DBDYNO_SQLITE3_H_SHA256")),
    },
];

fn unpack_bundled(about: &Known, cache: &Cache) -> Result<PathBuf, BuildError> {
    let name = format!("sqlite-{VERSION}-{}", &about.sha256.to_string()[..12]);
    let is_whole = |folder: &Path| SQLITE.iter().all(|file| file.is_in(&folder.join(TREE)));
    let query = Query {
        check: &|_: &mut Known, folder| match is_whole(folder) {
            true => Ok(()),
            false => Err("it was changed".to_owned()),
        },
        cancel: &AtomicBool::new(false),
        on_wait: &|| {},
        on_invalid: &|_| {},
    };
    let held = match cache.entry(Kind::Source, &name).lookup(&query)? {
        Lookup::Found(held) => held,
        Lookup::Cancelled => return Err(BuildError::cancelled(name)),
        Lookup::Missing(making) => {
            let part = making.begin()?;
            let tree = part.join(TREE);
            fs::create_dir(&tree)
                .and_then(|()| SQLITE.iter().try_for_each(|file| file.unpack_into(&tree)))
                .map_err(io_error("unpacking the source into", &tree))?;
            making.publish(&part, about.clone())?
        }
    };
    Ok(held.folder.join(TREE))
}

impl Packed {
    fn is_in(&self, folder: &Path) -> bool {
        Sha256::of_file(&folder.join(self.name)).is_ok_and(|sha256| sha256 == self.sha256)
    }

    fn unpack_into(&self, folder: &Path) -> io::Result<()> {
        let mut decoder = ZlibDecoder::new(File::create(folder.join(self.name))?);
        decoder.write_all(self.zlib)?;
        decoder.finish()?;
        Ok(())
    }
}

/// Computes the checksum of all files with their names, except `.git`.
fn tree_sha256(folder: &Path) -> io::Result<Sha256> {
    let mut hasher = sha2::Sha256::new();
    visit(folder, &mut |path, meta| {
        let whole = folder.join(path);
        let content = if meta.is_symlink() {
            Sha256::of(fs::read_link(&whole)?.as_os_str().as_bytes())
        } else if meta.is_file() {
            Sha256::of_file(&whole)?
        } else {
            return Ok(());
        };
        let name = path.as_os_str().as_bytes();
        hasher.update((name.len() as u64).to_le_bytes());
        hasher.update(name);
        hasher.update([u8::from(meta.is_symlink())]);
        hasher.update(content.as_bytes());
        Ok(())
    })?;
    Ok(Sha256::finish(hasher))
}

/// When a file was last written, renamed or created, or its permissions were changed; except in
/// `.git`. Unlike the modification time, this cannot be set back.
fn last_change(folder: &Path) -> io::Result<SystemTime> {
    let mut last = SystemTime::UNIX_EPOCH;
    visit(folder, &mut |_, meta| {
        let seconds = u64::try_from(meta.ctime()).unwrap_or(0);
        let nanos = u32::try_from(meta.ctime_nsec()).unwrap_or(0);
        last = last.max(SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos));
        Ok(())
    })?;
    Ok(last)
}

/// Calls `each` with the relative path of everything but directories, in a fixed order. What a link leads to outside of the
/// folder follows it, but not what links there lead to.
fn visit(
    folder: &Path,
    each: &mut dyn FnMut(&Path, &Metadata) -> io::Result<()>,
) -> io::Result<()> {
    let whole = folder.canonicalize()?;
    let mut waiting = vec![(PathBuf::new(), false)];
    // In reverse order, because the last one is processed next.
    while let Some((inner, is_outside)) = waiting.pop() {
        let mut names: Vec<_> = fs::read_dir(folder.join(&inner))?
            .map(|entry| Ok(entry?.file_name()))
            .collect::<io::Result<_>>()?;
        names.sort_unstable();
        for name in names.into_iter().rev().filter(|name| name != ".git") {
            let path = inner.join(name);
            let meta = fs::symlink_metadata(folder.join(&path))?;
            if meta.is_dir() {
                waiting.push((path, is_outside));
                continue;
            }
            each(&path, &meta)?;
            let target =
                (meta.is_symlink() && !is_outside).then(|| folder.join(&path).canonicalize());
            if target.is_some_and(|target| target.is_ok_and(|target| !target.starts_with(&whole))) {
                let meta = fs::metadata(folder.join(&path))?;
                if meta.is_dir() {
                    waiting.push((path, true));
                } else {
                    each(&path, &meta)?;
                }
            }
        }
    }
    Ok(())
}

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

    /// The commits between two revisions. Fetches the history unless both are known commits or tags;
    /// a branch may have changed since. `report` gets progress messages.
    pub fn commit_range(
        &self,
        wanted: &RangeRequest<'_>,
        report: &(dyn Fn(String) + Sync),
    ) -> Result<CommitRange, HistoryError> {
        history::commit_range(&self.cache, &self.cancel, wanted, report)
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
                    check_archive(location, *sha256, &known.sha256.to_string())
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
                let (inside, sha256) = unpack_archive(fetching, location, *sha256, &self.cache)?;
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
    let description = listed(&files)
        .find(|path| path.extension().is_some_and(|end| end == "dsc"))
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
            Err(error) if error.is_fetching(NOT_FOUND) => {
                (fetching.report)(format!("the mirror does not have {package} {version}"));
                first_error.get_or_insert(error);
                // A part of its files.
                remove(files)
                    .and_then(|()| fs::create_dir(files))
                    .map_err(io_error("emptying", files))?;
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

#[cfg(test)]
mod tests {
    use dbdyno_fuzz::Fuzz;
    use tempfile::TempDir;

    use super::*;

    fn cache_in(dir: &TempDir) -> Cache {
        Cache::new(&CacheDir::open(dir.path()).unwrap())
    }

    #[test]
    fn bundled_version_matches_the_amalgamation() {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::bundled_sqlite();
        let folder = source.unpack(&cache_in(&dir)).unwrap();
        let text = fs::read(folder.join("sqlite3.c")).unwrap();
        assert_eq!(Sha256::of(&text), *source.sha256());
        let line = format!("#define SQLITE_VERSION        \"{}\"", source.version());
        assert!(String::from_utf8_lossy(&text).contains(&line));
    }

    #[test]
    fn modified_source_is_unpacked_again() {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::bundled_sqlite();
        let header = source.unpack(&cache_in(&dir)).unwrap().join("sqlite3.h");
        let time = || fs::metadata(&header).unwrap().modified().unwrap();
        let first = time();
        source.unpack(&cache_in(&dir)).unwrap();
        assert_eq!(time(), first);
        fs::write(&header, "edited").unwrap();
        source.unpack(&cache_in(&dir)).unwrap();
        assert_eq!(Sha256::of_file(&header).unwrap(), SQLITE[1].sha256);
    }

    #[test]
    fn incomplete_source_is_unpacked_again() {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::bundled_sqlite();
        let folder = source.unpack(&cache_in(&dir)).unwrap();
        let entry = folder.parent().unwrap();
        let part = PathBuf::from(format!("{}.part", entry.display()));
        fs::rename(entry, &part).unwrap();
        fs::write(part.join("tree/sqlite3.c"), "/* half").unwrap();
        source.unpack(&cache_in(&dir)).unwrap();
        assert!(!part.exists());
        assert_eq!(Sha256::of_file(&folder.join("sqlite3.c")).unwrap(), *source.sha256());
    }

    #[test]
    fn checksum_depends_on_names_and_contents_but_not_on_git() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            tree_sha256(folder.path()).unwrap()
        };
        let first = write("a/b.c", "int x;");
        let second = write("a/b.c", "int y;");
        assert_ne!(first, second);
        assert_eq!(write("a/b.c", "int x;"), first);
        assert_eq!(write(".git/index", "anything"), first);
        assert_ne!(write("a/c.c", "int x;"), first);
        fs::remove_file(folder.path().join("a/b.c")).unwrap();
        assert_ne!(tree_sha256(folder.path()).unwrap(), first);
    }

    #[test]
    fn what_links_lead_to_outside_is_part_of_the_checksum() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("tree")).unwrap();
        fs::create_dir_all(path("other/inner")).unwrap();
        fs::write(path("other/a.c"), "int a;").unwrap();
        for (link, target) in
            [("a.c", "../other/a.c"), ("linked", "../other"), ("b.c", "a.c"), ("none", "../none")]
        {
            std::os::unix::fs::symlink(target, path("tree").join(link)).unwrap();
        }
        // Not followed without end.
        std::os::unix::fs::symlink("..", path("other/inner/up")).unwrap();
        let mut sums = vec![tree_sha256(&path("tree")).unwrap()];
        for (file, text) in [("other/a.c", "int b;"), ("other/inner/c.c", "int c;")] {
            fs::write(path(file), text).unwrap();
            sums.push(tree_sha256(&path("tree")).unwrap());
        }
        assert!(sums[0] != sums[1] && sums[1] != sums[2], "{sums:?}");
    }

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
