//! Password lookup: in the environment, else in the files of the database's own clients.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use dbdyno_types::server::{Address, Target};

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

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

/// The password for a MySQL or MariaDB server: `DBDYNO_PASSWORD`, then `MYSQL_PWD`, then
/// `password` in the section `[client]` of `~/.my.cnf`, unless the file is world-writable (MySQL's
/// clients ignore it then, too). An empty variable counts as unset. `None` if there is no password or
/// the target uses none.
pub(crate) fn for_mysql(target: &Target) -> Result<Option<Password>, Error> {
    Environment::of_process().for_mysql(target)
}

/// The password for a PostgreSQL server: `DBDYNO_PASSWORD`, then `PGPASSWORD`, then the first
/// matching line in `~/.pgpass` or the file named by `PGPASSFILE`, unless group or others have access
/// to the file (PostgreSQL's clients ignore it then, too). The rest is as for MySQL.
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
        Ok(read_unless(&file, 0o002)?.and_then(|text| option_password(&text)).map(Password))
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
        Ok(pgpass_password(&text, &hosts, &port, database, &target.user).map(Password))
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

/// The password in the section `[client]` of a MySQL option file
/// (<https://dev.mysql.com/doc/refman/8.4/en/option-files.html>). The last one wins. Included files
/// are not read.
pub(super) fn option_password(text: &str) -> Option<String> {
    let mut in_client = false;
    let mut password = None;
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            in_client = section.split(']').next().is_some_and(|name| name.trim() == "client");
        } else if in_client
            && let Some((key, value)) = line.split_once('=')
            && key.trim() == "password"
        {
            password = Some(option_value(value.trim()));
        }
    }
    password
}

/// Removes quotes, comment and escapes from a value.
fn option_value(value: &str) -> String {
    let quote = value.chars().next().filter(|first| matches!(first, '"' | '\''));
    let inner = match quote {
        Some(quote) => match value[1..].rfind(quote) {
            Some(end) => &value[1..=end],
            None => value,
        },
        // A comment may follow an unquoted value.
        None => value.split('#').next().unwrap_or_default().trim_end(),
    };
    let mut plain = String::with_capacity(inner.len());
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            plain.push(character);
            continue;
        }
        match characters.next() {
            Some('b') => plain.push('\u{8}'),
            Some('t') => plain.push('\t'),
            Some('n') => plain.push('\n'),
            Some('r') => plain.push('\r'),
            Some('s') => plain.push(' '),
            Some(same @ ('\\' | '"' | '\'')) => plain.push(same),
            Some(other) => plain.extend(['\\', other]),
            None => plain.push('\\'),
        }
    }
    plain
}

/// The password of the first matching line `host:port:database:user:password`; `*` matches anything
/// (<https://www.postgresql.org/docs/current/libpq-pgpass.html>).
pub(super) fn pgpass_password(
    text: &str,
    hosts: &[String],
    port: &str,
    database: &str,
    user: &str,
) -> Option<String> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut fields = fields(line).into_iter();
        let mut next = || fields.next();
        let matches = |field: &Field, value: &str| field.is_star() || field.plain == value;
        let host = next()?;
        let is_match = hosts.iter().any(|name| matches(&host, name))
            && matches(&next()?, port)
            && matches(&next()?, database)
            && matches(&next()?, user);
        if is_match { next().map(|password| password.plain) } else { None }
    })
}

/// A field with escapes removed.
#[derive(Default)]
struct Field {
    plain: String,
    escaped: bool,
}

impl Field {
    fn is_star(&self) -> bool {
        self.plain == "*" && !self.escaped
    }
}

/// The first four fields, and the rest as the fifth: a password may contain colons.
fn fields(line: &str) -> Vec<Field> {
    let mut fields = vec![Field::default()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let count = fields.len();
        let Some(field) = fields.last_mut() else { break };
        match character {
            ':' if count < 5 => fields.push(Field::default()),
            '\\' => {
                field.escaped = true;
                field.plain.push(characters.next().unwrap_or('\\'));
            }
            other => field.plain.push(other),
        }
    }
    fields
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

    #[test]
    fn last_password_of_the_client_section_wins() {
        let text = "password=before\n[mysqld]\npassword=server\n[client]\nuser = ann\n\
                    password = first\n# password=comment\npassword = last # remark\n[mysql]\n\
                    password=shell\n";
        assert_eq!(option_password(text).as_deref(), Some("last"));
        assert_eq!(option_password("[client]\nuser=ann\n"), None);
    }

    #[test]
    fn quotes_and_escapes_are_removed() {
        let of = |value: &str| option_password(&format!("[client]\npassword={value}\n")).unwrap();
        assert_eq!(of("\"a # b\""), "a # b");
        assert_eq!(of("'it\\'s'"), "it's");
        assert_eq!(of("two\\swords\\\\"), "two words\\");
        assert_eq!(of("\\q"), "\\q");
        assert_eq!(of(""), "");
    }

    #[test]
    fn first_matching_line_wins() {
        let text =
            "# remark\nother:5432:*:*:wrong\nhost:5432:db\\:1:an\\\\n:pa:ss\\\\\n*:*:*:*:any\n";
        let of = |host: &str, database: &str, user: &str| {
            pgpass_password(text, &[host.to_owned()], "5432", database, user)
        };
        assert_eq!(of("host", "db:1", "an\\n").as_deref(), Some("pa:ss\\"));
        assert_eq!(of("host", "db", "ann").as_deref(), Some("any"));
        assert_eq!(pgpass_password("a:b:c\n\n", &["a".to_owned()], "b", "c", "d"), None);
        let star = "\\*:*:*:*:escaped\n";
        assert_eq!(pgpass_password(star, &["h".to_owned()], "1", "d", "u"), None);
    }
}
