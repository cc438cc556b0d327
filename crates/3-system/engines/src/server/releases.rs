//! Releases that are installed: side by side, each in a directory with its name, or as the system's only one.

use std::cmp::Reverse;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use dbdyno_types::server::{ServerSystem, StorageEngine};

use super::installation::{is_executable, join_paths};
use super::systems::server_program;
use super::{Installation, ServerError};

/// An installed release.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstalledRelease {
    /// The name to use in an experiment, such as `8.0.37`.
    pub name: String,
    /// The server program.
    pub program: PathBuf,
}

impl Installation {
    /// Finds the release with this name in the usual directories, such as `~/opt/mysql/8.0.37`, or of the
    /// program that is used without a name. `8.0` is the newest release whose name begins with `8.0.`
    /// or `8.0-`.
    ///
    /// # Errors
    /// There is no such release, or its program is not usable.
    pub fn of_release(
        system: ServerSystem,
        engine: Option<StorageEngine>,
        name: &str,
    ) -> Result<Self, ServerError> {
        let all = installed_releases(system);
        match named(&all, name) {
            Some(release) => Self::find(system, engine, Some(&release.program)),
            None => Err(ServerError::NoRelease {
                system,
                name: name.to_owned(),
                searched: {
                    let places = places(system, &Roots::of_this_machine());
                    join_paths(&places.iter().map(Place::pattern).collect::<Vec<_>>())
                },
                found: all.into_iter().map(|release| release.name).collect(),
            }),
        }
    }
}

/// The installed releases of a system, sorted by name. The program that is used without a name is among them,
/// by its version.
#[must_use]
pub fn installed_releases(system: ServerSystem) -> Vec<InstalledRelease> {
    let mut all = releases_in(system, &places(system, &Roots::of_this_machine()));
    if let Ok(Installation { program, version, .. }) = Installation::find(system, None, None) {
        let is_known = |release: &InstalledRelease| {
            release.program.canonicalize().is_ok_and(|known| known == program)
        };
        let name = numbers_of(&version).to_owned();
        if !name.is_empty() && !all.iter().any(|release| is_known(release) || release.name == name)
        {
            all.push(InstalledRelease { name, program });
            all.sort();
        }
    }
    all
}

/// The release with this name, or the newest one of this series.
fn named<'a>(all: &'a [InstalledRelease], name: &str) -> Option<&'a InstalledRelease> {
    let exact = all.iter().find(|release| release.name == name);
    let of_series = all.iter().filter_map(|release| {
        let rest = release.name.strip_prefix(name)?;
        // Archives have names such as `8.0.37-linux-glibc2.28-x86_64`.
        rest.starts_with(['.', '-']).then_some((release, rest))
    });
    // Of the same version, the name with the fewest additions.
    let newest = of_series.max_by_key(|(_, rest)| -> (Vec<u64>, Reverse<usize>) {
        let numbers = numbers_of(rest).split('.').map(|part| part.parse().unwrap_or(0));
        (numbers.collect(), Reverse(rest.len()))
    });
    exact.or_else(|| newest.map(|(release, _)| release))
}

/// The numbers and dots at the start of a version.
fn numbers_of(version: &str) -> &str {
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(version.len());
    version[..end].trim_end_matches('.')
}

/// Where releases are searched for.
struct Roots {
    /// Directories of the user, with a directory per system.
    homes: Vec<PathBuf>,
    /// dbdeployer's directory of MySQL and its forks, if the user moved it.
    sandbox_binaries: Option<PathBuf>,
    /// The root of the file system.
    system: PathBuf,
}

impl Roots {
    fn of_this_machine() -> Self {
        let path = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        Self {
            homes: path("HOME").into_iter().map(|home| home.join("opt")).collect(),
            sandbox_binaries: path("SANDBOX_BINARY"),
            system: PathBuf::from("/"),
        }
    }
}

/// Directories `parent/prefixNAME`.
struct Place {
    parent: PathBuf,
    prefix: &'static str,
}

impl Place {
    fn pattern(&self) -> PathBuf {
        self.parent.join(format!("{}NAME", self.prefix))
    }
}

fn places(system: ServerSystem, roots: &Roots) -> Vec<Place> {
    let (names, prefixes): (&[&str], &[&'static str]) = match system {
        // dbdeployer has MariaDB in the directory of MySQL, too: see `program_in`.
        ServerSystem::MariaDb => (&["mariadb", "mysql"], &["mariadb-"]),
        ServerSystem::MySql => (&["mysql"], &["mysql-"]),
        ServerSystem::PostgreSql => (&["postgresql"], &["postgresql-", "pgsql-"]),
    };
    let mut all = Vec::new();
    let mut add = |parent: PathBuf, prefix| all.push(Place { parent, prefix });
    if system != ServerSystem::PostgreSql {
        roots.sandbox_binaries.iter().for_each(|parent| add(parent.clone(), ""));
    }
    let opt = roots.system.join("opt");
    for parent in roots.homes.iter().chain([&opt]) {
        names.iter().for_each(|name| add(parent.join(name), ""));
        prefixes.iter().for_each(|prefix| add(parent.clone(), prefix));
    }
    prefixes.iter().for_each(|prefix| add(roots.system.join("usr/local"), prefix));
    if system == ServerSystem::PostgreSql {
        // Debian's and Red Hat's packages.
        add(roots.system.join("usr/lib/postgresql"), "");
        add(roots.system.join("usr"), "pgsql-");
    }
    all
}

/// The releases in these places, sorted by name, each name once: the first place counts.
fn releases_in(system: ServerSystem, places: &[Place]) -> Vec<InstalledRelease> {
    let mut all: Vec<InstalledRelease> = Vec::new();
    for Place { parent, prefix } in places {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            let file_name = entry.file_name().to_string_lossy().into_owned();
            let Some(name) = file_name.strip_prefix(prefix).filter(|name| !name.is_empty()) else {
                continue;
            };
            let known = all.iter().any(|release| release.name == name);
            if let Some(program) = program_in(system, &entry.path()).filter(|_| !known) {
                all.push(InstalledRelease { name: name.to_owned(), program });
            }
        }
    }
    all.sort();
    all
}

/// The server program below the directory of a release. `mysqld` alone is MySQL's: MariaDB's stable releases since
/// 10.4, the oldest, have `mariadbd` as well.
fn program_in(system: ServerSystem, folder: &Path) -> Option<PathBuf> {
    let find = |name: &str| {
        let files = ["bin", "sbin", "libexec"].map(|inner| folder.join(inner).join(name));
        files.into_iter().find(|file| is_executable(file))
    };
    match system {
        ServerSystem::MySql if find("mariadbd").is_some() => None,
        _ => find(server_program(system).facts().names.first()?),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn releases_are_found_in_the_usual_layouts() {
        let dir = tempfile::tempdir().unwrap();
        let program = |path: &str| {
            let file = dir.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
            file
        };
        let own = program("home/opt/mysql/8.0.37/bin/mysqld");
        program("opt/mysql/8.0.37/bin/mysqld");
        program("usr/local/mysql-8.4.0/bin/mysqld");
        program("home/opt/mysql/10.11.6/bin/mariadbd");
        program("home/opt/mysql/10.11.6/bin/mysqld");
        program("opt/mariadb-11.4/bin/mariadbd");
        program("usr/lib/postgresql/17/bin/postgres");
        program("usr/pgsql-16/bin/postgres");
        fs::create_dir_all(dir.path().join("opt/mysql/empty/bin")).unwrap();
        let roots = Roots {
            homes: vec![dir.path().join("home/opt")],
            sandbox_binaries: None,
            system: dir.path().to_owned(),
        };
        let releases = |system| releases_in(system, &places(system, &roots));
        let names = |system| -> Vec<String> {
            releases(system).into_iter().map(|release| release.name).collect()
        };
        assert_eq!(names(ServerSystem::MySql), ["8.0.37", "8.4.0"]);
        assert_eq!(releases(ServerSystem::MySql)[0].program, own);
        assert_eq!(names(ServerSystem::MariaDb), ["10.11.6", "11.4"]);
        assert_eq!(names(ServerSystem::PostgreSql), ["16", "17"]);
    }

    #[test]
    fn series_selects_its_newest_release() {
        let release = |name: &str| InstalledRelease { name: name.to_owned(), program: name.into() };
        let all = ["10.11.9", "10.11.19", "10.1.48", "8.0", "8.0.37"].map(release);
        let found = |name| named(&all, name).map(|release| release.name.as_str());
        assert_eq!(found("10.11"), Some("10.11.19"));
        assert_eq!(found("10.1"), Some("10.1.48"));
        assert_eq!(found("8.0"), Some("8.0"));
        assert_eq!(found("10.11.9"), Some("10.11.9"));
        assert_eq!(found("11"), None);
        let all = ["ps8.0.37", "ps8.0.9", "8.4.5-linux-glibc2.28-x86_64", "8.4.4", "8.4.4-debug"];
        let all = all.map(release);
        let found = |name| named(&all, name).map(|release| release.name.as_str());
        assert_eq!(found("ps8.0"), Some("ps8.0.37"));
        assert_eq!(found("8.4.5"), Some("8.4.5-linux-glibc2.28-x86_64"));
        assert_eq!(found("8.4"), Some("8.4.5-linux-glibc2.28-x86_64"));
        assert_eq!(found("8.4.4"), Some("8.4.4"));
        assert_eq!(found("8.4.5-lin"), None);
        let debug = ["8.4.4", "8.4.4-debug"].map(release);
        assert_eq!(named(&debug, "8.4").unwrap().name, "8.4.4");
        assert_eq!(numbers_of("10.11.19-MariaDB-0+deb12u1"), "10.11.19");
        assert_eq!(numbers_of("18beta1"), "18");
    }

    #[test]
    fn unknown_release_is_explained() {
        let error = Installation::of_release(ServerSystem::MySql, None, "1.2.3").unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("MySQL has no release `1.2.3`"), "{text}");
        assert!(
            text.contains("/opt/mysql/NAME") && text.contains("dbdyno list releases"),
            "{text}"
        );
    }
}
