//! Detection of the version of a source.

use std::fs;
use std::path::Path;

use crate::System;

/// The version stated in the source; an error if it is not a source of this system.
pub(super) fn version(system: System, folder: &Path) -> Result<String, String> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let (found, looked) = match system {
        System::Sqlite => (
            // The file that is compiled.
            read("sqlite3.c")
                .and_then(|text| quoted(&text, "#define SQLITE_VERSION ").map(str::to_owned)),
            "sqlite3.c (the amalgamation, not the files that it is made of)",
        ),
        System::PostgreSql => (
            read("configure").and_then(|text| quoted(&text, "PACKAGE_VERSION=").map(str::to_owned)),
            "configure with PACKAGE_VERSION",
        ),
        System::MariaDb => (read("VERSION").and_then(|text| mysql(&text)), "VERSION"),
        System::MySql => (
            read("MYSQL_VERSION").or_else(|| read("VERSION")).and_then(|text| mysql(&text)),
            "MYSQL_VERSION or VERSION",
        ),
    };
    let is_mariadb = folder.join("storage/maria").is_dir();
    match found {
        Some(_) if system == System::MySql && is_mariadb => Err("it is MariaDB's".to_owned()),
        Some(_) if system == System::MariaDb && !is_mariadb => {
            Err("it is MySQL's, not MariaDB's".to_owned())
        }
        Some(version) => Ok(version),
        None => Err(format!("it has no usable {looked}")),
    }
}

/// The quoted string after `start` in the line that starts with it.
fn quoted<'t>(text: &'t str, start: &str) -> Option<&'t str> {
    let rest = text.lines().find_map(|line| line.strip_prefix(start))?.trim();
    let quote = rest.chars().next().filter(|c| *c == '"' || *c == '\'')?;
    rest[1..].split(quote).next().filter(|word| !word.is_empty())
}

/// Parses the version file of MySQL and MariaDB.
fn mysql(text: &str) -> Option<String> {
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(key))?;
        Some(line.trim_start().strip_prefix('=')?.trim().to_owned())
    };
    let number = |key: &str| value(key).filter(|value| value.parse::<u32>().is_ok());
    Some(format!(
        "{}.{}.{}{}",
        number("MYSQL_VERSION_MAJOR")?,
        number("MYSQL_VERSION_MINOR")?,
        number("MYSQL_VERSION_PATCH")?,
        value("MYSQL_VERSION_EXTRA").unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use dbdyno_fuzz::Fuzz;

    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn version_is_read_from_source() {
        let of = |system, files: &[(&str, &str)]| version(system, folder(files).path());
        let postgres = [("configure", "x\nPACKAGE_VERSION='15.18'\n")];
        assert_eq!(of(System::PostgreSql, &postgres), Ok("15.18".to_owned()));
        let numbers = "MYSQL_VERSION_MAJOR=8\nMYSQL_VERSION_MINOR=0\nMYSQL_VERSION_PATCH=32\n\
                       MYSQL_VERSION_EXTRA=-24\n";
        assert_eq!(of(System::MySql, &[("MYSQL_VERSION", numbers)]), Ok("8.0.32-24".to_owned()));
        let mariadb = [("VERSION", numbers), ("storage/maria/x", "")];
        assert_eq!(of(System::MariaDb, &mariadb), Ok("8.0.32-24".to_owned()));
    }

    #[test]
    fn damaged_sources_have_a_version_or_none() {
        let samples: [&str; 3] = [
            "#define SQLITE_VERSION        \"3.50.4\"\n",
            "PACKAGE_VERSION='15.18'\n",
            "MYSQL_VERSION_MAJOR=8\nMYSQL_VERSION_MINOR=0\nMYSQL_VERSION_PATCH=32\n",
        ];
        let words = ["PACKAGE_VERSION=", "#define SQLITE_VERSION ", "'", "\"", "é", "\n", "="];
        Fuzz::new(samples.map(Vec::from).to_vec()).words(&words).run(|text| {
            let text = String::from_utf8_lossy(text);
            for start in ["PACKAGE_VERSION=", "#define SQLITE_VERSION "] {
                assert!(quoted(&text, start).is_none_or(|version| !version.contains('\n')));
            }
            let _ = mysql(&text);
        });
    }

    #[test]
    fn source_of_another_system_is_rejected() {
        let mariadb = [
            ("VERSION", "MYSQL_VERSION_MAJOR=10\nMYSQL_VERSION_MINOR=6\nMYSQL_VERSION_PATCH=1"),
            ("storage/maria/x", ""),
        ];
        let mariadb = folder(&mariadb);
        assert_eq!(version(System::MySql, mariadb.path()), Err("it is MariaDB's".to_owned()));
        let error = version(System::PostgreSql, mariadb.path()).unwrap_err();
        assert_eq!(error, "it has no usable configure with PACKAGE_VERSION");
    }
}
