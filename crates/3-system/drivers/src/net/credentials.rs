//! Password lookup: in the environment, else in the files of the database's own clients.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use dbdyno_types::server::{Address, Target};

use super::password_files;
use crate::{Error, ErrorCode, ErrorKind};

/// The environment variable for all systems.
const DBDYNO_PASSWORD: &str = "DBDYNO_PASSWORD";

/// A password that cannot be printed, compared or stored by accident.
pub(crate) struct Password(String);

impl Password {
    /// A given password, for tests.
    #[cfg(test)]
    pub(crate) fn of(password: &str) -> Self {
        Self(password.to_owned())
    }

    /// The password itself, for the login only.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

/// The password for a MySQL or MariaDB server: `DBDYNO_PASSWORD`, then `MYSQL_PWD`, then
/// `password` in the section `[client]` of `~/.my.cnf`, unless the file is world-writable (MySQL's
/// clients ignore it then, too). An empty variable counts as unset. `None` if there is no password or
/// the target uses none.
///
/// # Errors
/// The file exists and cannot be read.
pub(crate) fn for_mysql(target: &Target) -> Result<Option<Password>, Error> {
    Environment::of_process().for_mysql(target)
}

/// The password for a PostgreSQL server: `DBDYNO_PASSWORD`, then `PGPASSWORD`, then the first
/// matching line in `~/.pgpass` or the file named by `PGPASSFILE`, unless group or others have access
/// to the file (PostgreSQL's clients ignore it then, too). The rest is as for MySQL.
///
/// # Errors
/// The file exists and cannot be read.
pub(crate) fn for_postgres(target: &Target) -> Result<Option<Password>, Error> {
    Environment::of_process().for_postgres(target)
}

/// The environment variables and the home directory.
struct Environment<V: Fn(&str) -> Option<OsString>> {
    variable: V,
    home: Option<PathBuf>,
}

impl Environment<fn(&str) -> Option<OsString>> {
    fn of_process() -> Self {
        Self { variable: |name| std::env::var_os(name), home: std::env::home_dir() }
    }
}

impl<V: Fn(&str) -> Option<OsString>> Environment<V> {
    fn for_mysql(&self, target: &Target) -> Result<Option<Password>, Error> {
        if !target.password {
            return Ok(None);
        }
        if let Some(password) = self.in_environment(&[DBDYNO_PASSWORD, "MYSQL_PWD"]) {
            return Ok(Some(password));
        }
        let Some(file) = self.home.as_ref().map(|home| home.join(".my.cnf")) else {
            return Ok(None);
        };
        Ok(read_unless(&file, 0o002)?
            .and_then(|text| password_files::option_password(&text))
            .map(Password))
    }

    fn for_postgres(&self, target: &Target) -> Result<Option<Password>, Error> {
        if !target.password {
            return Ok(None);
        }
        if let Some(password) = self.in_environment(&[DBDYNO_PASSWORD, "PGPASSWORD"]) {
            return Ok(Some(password));
        }
        let named = (self.variable)("PGPASSFILE").filter(|name| !name.is_empty());
        let Some(file) = named
            .map(PathBuf::from)
            .or_else(|| self.home.as_ref().map(|home| home.join(".pgpass")))
        else {
            return Ok(None);
        };
        let Some(text) = read_unless(&file, 0o077)? else {
            return Ok(None);
        };
        let (hosts, port) = pgpass_hosts(&target.address);
        let database = target.database.as_deref().unwrap_or(&target.user);
        Ok(password_files::pgpass_password(&text, &hosts, &port, database, &target.user)
            .map(Password))
    }

    fn in_environment(&self, names: &[&str]) -> Option<Password> {
        let non_empty = |name: &&str| (self.variable)(name).filter(|value| !value.is_empty());
        let value = names.iter().find_map(non_empty)?;
        Some(Password(value.to_string_lossy().into_owned()))
    }
}

/// The host names that a line may contain for this address, and the port.
fn pgpass_hosts(address: &Address) -> (Vec<String>, String) {
    match address {
        Address::Tcp { host, port } => (vec![host.clone()], port.to_string()),
        Address::Socket(path) => {
            let directory = path.parent().unwrap_or(Path::new("/"));
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let port = name.rsplit_once('.').map_or("5432", |(_, port)| port);
            (vec![directory.display().to_string(), "localhost".to_owned()], port.to_owned())
        }
    }
}

/// The text of a file; `None` if it does not exist, is not a regular file, or has one of these
/// permissions.
fn read_unless(file: &Path, permissions: u32) -> Result<Option<String>, Error> {
    let failed = |error: &io::Error| Error {
        doing: format!("looking for a password in {}", file.display()),
        message: error.to_string(),
        code: ErrorCode::of_io(error),
        kind: ErrorKind::Refused,
    };
    let facts = match fs::metadata(file) {
        Ok(facts) => facts,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&error)),
    };
    if !facts.is_file() || facts.permissions().mode() & permissions != 0 {
        return Ok(None);
    }
    let bytes = fs::read(file).map_err(|error| failed(&error))?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use dbdyno_types::server::Tls;

    use super::*;

    struct Home {
        directory: tempfile::TempDir,
        variables: HashMap<&'static str, OsString>,
    }

    impl Home {
        fn new() -> Self {
            Self { directory: tempfile::tempdir().unwrap(), variables: HashMap::new() }
        }

        fn file(self, name: &str, mode: u32, text: &str) -> Self {
            let path = self.directory.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            self
        }

        fn variable(mut self, name: &'static str, value: &str) -> Self {
            self.variables.insert(name, value.into());
            self
        }

        fn mysql(&self, target: &Target) -> Option<String> {
            let environment = Environment {
                variable: |name: &str| self.variables.get(name).cloned(),
                home: Some(self.directory.path().to_owned()),
            };
            environment.for_mysql(target).unwrap().map(|password| password.0)
        }

        fn postgres(&self, target: &Target) -> Option<String> {
            let environment = Environment {
                variable: |name: &str| self.variables.get(name).cloned(),
                home: Some(self.directory.path().to_owned()),
            };
            environment.for_postgres(target).unwrap().map(|password| password.0)
        }
    }

    fn target(password: bool) -> Target {
        Target {
            address: Address::Tcp { host: "db.example".to_owned(), port: 5433 },
            user: "ann".to_owned(),
            database: Some("shop".to_owned()),
            tls: Tls::Off,
            server_public_key: None,
            password,
        }
    }

    #[test]
    fn environment_precedes_files_and_dbdyno_password_precedes_both() {
        let home = Home::new().file(".my.cnf", 0o600, "[client]\npassword=file\n");
        assert_eq!(home.mysql(&target(true)).as_deref(), Some("file"));
        let home = home.variable("MYSQL_PWD", "theirs").variable("PGPASSWORD", "postgres");
        assert_eq!(home.mysql(&target(true)).as_deref(), Some("theirs"));
        assert_eq!(home.postgres(&target(true)).as_deref(), Some("postgres"));
        let home = home.variable(DBDYNO_PASSWORD, "ours");
        assert_eq!(home.mysql(&target(true)).as_deref(), Some("ours"));
        assert_eq!(home.postgres(&target(true)).as_deref(), Some("ours"));
    }

    #[test]
    fn empty_variable_counts_as_unset() {
        let home = Home::new()
            .file(".my.cnf", 0o600, "[client]\npassword=file\n")
            .file(".pgpass", 0o600, "*:*:*:*:pg\n")
            .variable(DBDYNO_PASSWORD, "")
            .variable("MYSQL_PWD", "");
        assert_eq!(home.mysql(&target(true)).as_deref(), Some("file"));
        assert_eq!(home.postgres(&target(true)).as_deref(), Some("pg"));
        let home = home.variable("MYSQL_PWD", "theirs").variable("PGPASSWORD", "postgres");
        assert_eq!(home.mysql(&target(true)).as_deref(), Some("theirs"));
        assert_eq!(home.postgres(&target(true)).as_deref(), Some("postgres"));
    }

    #[test]
    fn target_without_password_gets_none() {
        let home = Home::new().variable(DBDYNO_PASSWORD, "ours").file(
            ".my.cnf",
            0o600,
            "[client]\npassword=x",
        );
        assert_eq!(home.mysql(&target(false)), None);
        assert_eq!(home.postgres(&target(false)), None);
    }

    #[test]
    fn files_with_loose_permissions_are_ignored() {
        let text = "[client]\npassword=file\n";
        let open = Home::new().file(".my.cnf", 0o666, text).file(".pgpass", 0o640, "*:*:*:*:pg\n");
        assert_eq!(open.mysql(&target(true)), None);
        assert_eq!(open.postgres(&target(true)), None);
        let tight = Home::new().file(".my.cnf", 0o644, text).file(".pgpass", 0o600, "*:*:*:*:pg\n");
        assert_eq!(tight.mysql(&target(true)).as_deref(), Some("file"));
        assert_eq!(tight.postgres(&target(true)).as_deref(), Some("pg"));
    }

    #[test]
    fn pgpassfile_is_used_and_a_socket_matches_two_host_names() {
        let home = Home::new().file("other", 0o600, "localhost:5440:shop:ann:by name\n");
        let path = home.directory.path().join("other");
        let home = home.variable("PGPASSFILE", path.to_str().unwrap());
        let socket = Address::Socket(PathBuf::from("/run/postgresql/.s.PGSQL.5440"));
        let target = Target { address: socket, ..target(true) };
        assert_eq!(home.postgres(&target).as_deref(), Some("by name"));
        let home = home.file("other", 0o600, "/run/postgresql:5440:*:ann:by directory\n");
        assert_eq!(home.postgres(&target).as_deref(), Some("by directory"));
    }

    #[test]
    fn no_file_and_no_variable_give_no_password() {
        assert_eq!(Home::new().mysql(&target(true)), None);
        assert_eq!(Home::new().postgres(&target(true)), None);
    }
}
