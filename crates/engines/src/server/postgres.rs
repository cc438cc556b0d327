use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_machine::Signal;
use dbdyno_record::server::{Address, StatementMode, StorageEngine, Target, Tls};

use super::error::system;
use super::installation::{Parts, is_program};
use super::postgres_config as config;
use super::postgres_lock::{self, LOCK_FILE};
use super::program::{Program, SettingsRequest, write_config};
use super::spawn::{Launcher, clean_environment};
use super::{ServerDir, ServerError, ServerPlan};

/// PostgreSQL.
pub(crate) struct Postgres;

/// How long making a data directory may take: about a second where nothing is wrong.
const INITIALISE_LIMIT: Duration = Duration::from_secs(300);

/// Where Debian keeps a directory per version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The superuser of a private server.
const USER: &str = "dbdyno";

/// The database that every server has.
const FIRST_DATABASE: &str = "postgres";

/// In the name of the socket, and nowhere else: nothing listens on the network.
const PORT: &str = "5432";

/// The oldest version whose protocol, settings and catalogues are known here.
const OLDEST: u32 = 12;

impl Program for Postgres {
    fn names(&self) -> &'static [&'static str] {
        &["postgres"]
    }

    fn directories(&self) -> Vec<PathBuf> {
        let mut directories = Vec::new();
        directories.extend(directory_of_pg_config());
        directories.extend(directories_of_debian(Path::new(DEBIAN)));
        directories.extend(["/usr/local/pgsql/bin", "/usr/local/bin"].map(PathBuf::from));
        directories
    }

    fn package(&self) -> &'static str {
        "postgresql"
    }

    fn version(&self, printed: &str) -> Result<String, String> {
        let mut words = printed.split_whitespace().skip_while(|word| *word != "(PostgreSQL)");
        let version = words.nth(1).filter(|version| major(version) > 0);
        let version = version.ok_or_else(|| format!("with --version it prints `{printed}`"))?;
        if major(version) < OLDEST {
            return Err(format!(
                "it is version {version}, and the oldest one that dbdyno can use is {OLDEST}"
            ));
        }
        Ok(version.to_owned())
    }

    fn parts(&self, program: &Path, _: Option<StorageEngine>) -> Result<Parts, ServerError> {
        let initialiser = program.with_file_name("initdb");
        if !is_program(&initialiser) {
            return Err(ServerError::NotInstalled {
                what: "initdb, which makes PostgreSQL's data directory,".to_owned(),
                looked: format!("looked beside {}", program.display()),
                package: self.package(),
                advice: "",
            });
        }
        Ok(Parts { initialiser, plugins: None })
    }

    fn user(&self) -> &'static str {
        "postgres"
    }

    fn reserved(&self) -> &'static [&'static str] {
        config::RESERVED
    }

    fn normal_name(&self, name: &str) -> String {
        name.to_ascii_lowercase().replace('-', "_")
    }

    fn settings(&self, request: &SettingsRequest<'_>) -> Vec<(String, String)> {
        config::settings(request)
    }

    fn shapes_data(&self) -> &'static [&'static str] {
        &[config::CHECKSUMS]
    }

    fn initialise(
        &self,
        plan: &ServerPlan,
        server_dir: &ServerDir,
        launcher: &Launcher,
    ) -> Result<(), ServerError> {
        let mut command = Command::new(&plan.installation.parts.initialiser);
        command.arg("--pgdata").arg(server_dir.data());
        command.arg(format!("--username={USER}"));
        // Whoever can reach the socket may log in: its directory is closed to others.
        command.args(["--auth=trust", "--encoding=UTF8", "--locale=C"]);
        // A copy of the data is brought to storage before it is used.
        command.args(["--no-sync", "--no-instructions"]);
        command.args(checksums(plan)?);
        launcher.run("making PostgreSQL's data directory", command, INITIALISE_LIMIT)
    }

    fn command(&self, plan: &ServerPlan, server_dir: &ServerDir) -> Result<Command, ServerError> {
        let data = server_dir.data();
        // Left by a server that was killed, and harmful where another process has its number by
        // now.
        postgres_lock::clear(&data).map_err(system("removing", &data.join(LOCK_FILE)))?;
        let file = server_dir.directory().join("postgresql.conf");
        let mut settings = vec![
            ("listen_addresses", String::new()),
            ("port", PORT.to_owned()),
            ("unix_socket_directories", config::directory(&server_dir.sockets())),
            ("unix_socket_permissions", "0700".to_owned()),
            // In files of the data directory: what a killed server leaves in /dev/shm would stay
            // there for ever. Only parallel queries and large statistics use it.
            ("dynamic_shared_memory_type", "mmap".to_owned()),
        ];
        let chosen = plan.settings().iter().filter(|(name, _)| name != config::CHECKSUMS);
        settings.extend(chosen.map(|(name, value)| (name.as_str(), value.clone())));
        write_config(&file, &config::text(&settings)).map_err(system("writing", &file))?;
        let mut command = Command::new(&plan.installation.program);
        command.arg("-D").arg(data);
        command.arg("-c").arg(format!("config_file={}", file.display()));
        Ok(command)
    }

    /// A fast shutdown: transactions are broken off, then a checkpoint is written.
    fn stop_signal(&self) -> i32 {
        libc::SIGINT
    }

    /// An immediate shutdown: no checkpoint, but the postmaster ends its children, which a killed
    /// one could not, and gives its shared memory back.
    fn death_signal(&self) -> Signal {
        Signal::QUIT
    }

    fn target(&self, server_dir: &ServerDir) -> Target {
        Target {
            address: Address::Socket(server_dir.sockets().join(format!(".s.PGSQL.{PORT}"))),
            user: USER.to_owned(),
            database: Some(FIRST_DATABASE.to_owned()),
            tls: Tls::Off,
            password: false,
        }
    }

    fn is_ready(&self, target: &Target) -> bool {
        PostgresConnection::connect(target, StatementMode::Text).is_ok()
    }
}

/// What initdb is told about checksums of pages.
fn checksums(plan: &ServerPlan) -> Result<Option<&'static str>, ServerError> {
    match plan.setting(config::CHECKSUMS) {
        Some("on") => Ok(Some("--data-checksums")),
        // Off was the only default until this version, and had no word of its own.
        Some("off") if major(&plan.installation.version) < 18 => Ok(None),
        Some("off") => Ok(Some("--no-data-checksums")),
        other => Err(ServerError::Setting {
            name: config::CHECKSUMS.to_owned(),
            reason: format!("`{}` is neither `on` nor `off`", other.unwrap_or_default()),
        }),
    }
}

/// Where the programs of the version are that `pg_config` belongs to.
fn directory_of_pg_config() -> Option<PathBuf> {
    let mut command = Command::new("pg_config");
    clean_environment(&mut command);
    let output = command.arg("--bindir").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let directory = PathBuf::from(text.trim());
    directory.is_absolute().then_some(directory)
}

/// The newest version first.
fn directories_of_debian(all: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(all) else { return Vec::new() };
    let mut versions: Vec<(u32, PathBuf)> = entries
        .flatten()
        .map(|entry| (major(&entry.file_name().to_string_lossy()), entry.path().join("bin")))
        .collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, directory)| directory).collect()
}

/// The first number of a version such as `15.13` or `17beta1`; 0 where there is none.
fn major(version: &str) -> u32 {
    let digits = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
    version[..digits].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_the_program_prints_them() {
        let version = |printed| Postgres.version(printed);
        let debian = "postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)";
        assert_eq!(version(debian), Ok("15.13".to_owned()));
        assert_eq!(version("postgres (PostgreSQL) 18beta1"), Ok("18beta1".to_owned()));
        assert!(version("postgres (PostgreSQL) 9.6.24").unwrap_err().contains("oldest"));
        assert!(version("mariadbd  Ver 10.11").unwrap_err().contains("prints `mariadbd"));
        assert!(version("postgres (PostgreSQL)").is_err());
    }

    #[test]
    fn the_newest_of_debians_versions_comes_first() {
        let directory = tempfile::tempdir().unwrap();
        for version in ["9.6", "15", "17"] {
            std::fs::create_dir(directory.path().join(version)).unwrap();
        }
        let found = directories_of_debian(directory.path());
        let expected =
            ["17", "15", "9.6"].map(|version| directory.path().join(version).join("bin"));
        assert_eq!(found, expected);
        assert!(directories_of_debian(&directory.path().join("missing")).is_empty());
    }
}
