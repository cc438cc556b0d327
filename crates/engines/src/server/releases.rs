//! Releases that are installed side by side, each in a directory with its name.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use dbdyno_record::server::{ServerSystem, StorageEngine};

use super::installation::{is_executable, join_paths};
use super::systems::server_program;
use super::{Installation, ServerError};

/// A release in a directory of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstalledRelease {
    /// The name to use in an experiment, such as `8.0.37`.
    pub name: String,
    /// The server program.
    pub program: PathBuf,
}

impl Installation {
    /// Finds the release with this name in the usual directories, such as `~/opt/mysql/8.0.37`.
    ///
    /// # Errors
    /// There is no such release, or its program is not usable.
    pub fn of_release(
        system: ServerSystem,
        engine: Option<StorageEngine>,
        name: &str,
    ) -> Result<Self, ServerError> {
        let places = places(system, &Roots::of_this_machine());
        let all = releases_in(system, &places);
        match all.iter().find(|release| release.name == name) {
            Some(release) => Self::find(system, engine, Some(&release.program)),
            None => Err(ServerError::NoRelease {
                system,
                name: name.to_owned(),
                searched: join_paths(&places.iter().map(Place::pattern).collect::<Vec<_>>()),
                found: all.into_iter().map(|release| release.name).collect(),
            }),
        }
    }
}

/// The releases of a system that are installed side by side.
#[must_use]
pub fn installed_releases(system: ServerSystem) -> Vec<InstalledRelease> {
    releases_in(system, &places(system, &Roots::of_this_machine()))
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
        // dbdeployer has MariaDB in the directory of MySQL, too.
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

/// The server program below the directory of a release.
fn program_in(system: ServerSystem, folder: &Path) -> Option<PathBuf> {
    let names = server_program(system).facts().names;
    let folders = ["bin", "sbin", "libexec"].map(|inner| folder.join(inner));
    let mut files = names.iter().flat_map(|name| folders.iter().map(move |inner| inner.join(name)));
    files.find(|file| is_executable(file))
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
        assert_eq!(names(ServerSystem::MariaDb), ["10.11.6", "11.4", "8.0.37"]);
        assert_eq!(names(ServerSystem::PostgreSql), ["16", "17"]);
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
