use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dbdyno_drivers::Connection;
use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_types::server::{Address, StatementMode, StorageEngine, Target, Tls};

use dbdyno_machine::Signal;

use super::super::certificate::ServerCertificate;
use super::super::error::system;
use super::super::installation::{ProgramFiles, is_executable};
use super::super::launcher::Launcher;
use super::super::network::ACCOUNT;
use super::super::plan::SettingsRequest;
use super::super::postgres_lock::{self, LOCK_FILE};
use super::super::program::{ProgramFacts, ServerProgram, VersionError};
use super::super::program_output::program_output;
use super::super::{Network, ServerDir, ServerError, ServerPlan};
use super::config_file::write_config;
use super::postgres_config as config;

/// PostgreSQL.
pub(crate) struct Postgres;

/// The Debian package.
const PACKAGE: &str = "postgresql";

/// Limit for creating a data directory, which usually takes about a second.
const INITIALISE_TIMEOUT: Duration = Duration::from_secs(300);

/// Debian's directory, with a subdirectory per version.
const DEBIAN_DIR: &str = "/usr/lib/postgresql";

/// The superuser of a private server.
const USER: &str = ACCOUNT;

/// A database that every server has.
const DEFAULT_DATABASE: &str = "postgres";

/// Part of the socket's name only, if the server does not listen on the network.
const PORT: u16 = 5432;

/// The oldest supported version.
const OLDEST: (u32, &str) = (12, "12");

impl ServerProgram for Postgres {
    fn facts(&self) -> ProgramFacts {
        ProgramFacts {
            names: &["postgres"],
            package: PACKAGE,
            user: "postgres",
            reserved: config::RESERVED,
            format_settings: &[config::CHECKSUMS],
            // Fast shutdown: transactions are aborted, then a checkpoint is written.
            stop_signal: Signal::INT,
            // Immediate shutdown: no checkpoint, but the postmaster ends its children and removes
            // its shared memory, which it cannot when killed.
            death_signal: Signal::QUIT,
        }
    }

    fn search_dirs(&self) -> Vec<PathBuf> {
        let mut directories = Vec::new();
        directories.extend(pg_config_bin_dir());
        directories.extend(debian_bin_dirs(Path::new(DEBIAN_DIR)));
        directories.extend(["/usr/local/pgsql/bin", "/usr/local/bin"].map(PathBuf::from));
        directories
    }

    fn version(&self, printed: &str) -> Result<String, VersionError> {
        let mut words = printed.split_whitespace().skip_while(|word| *word != "(PostgreSQL)");
        let version = words.nth(1).filter(|version| major(version) > 0);
        match version {
            None => Err(VersionError::Unrecognised(printed.to_owned())),
            Some(version) if major(version) < OLDEST.0 => Err(VersionError::TooOld {
                found: version.to_owned(),
                oldest: OLDEST.1,
                advice: "",
            }),
            Some(version) => Ok(version.to_owned()),
        }
    }

    fn files(&self, program: &Path, _: Option<StorageEngine>) -> Result<ProgramFiles, ServerError> {
        let init_program = program.with_file_name("initdb");
        if !is_executable(&init_program) {
            return Err(ServerError::NotInstalled {
                what: "initdb, which creates PostgreSQL's data directory,".to_owned(),
                searched: format!("searched the directory of {}", program.display()),
                package: PACKAGE,
                advice: "",
            });
        }
        Ok(ProgramFiles { init_program, plugin_dir: None })
    }

    fn canonical_name(&self, name: &str) -> String {
        name.to_ascii_lowercase().replace('-', "_")
    }

    fn settings(&self, request: &SettingsRequest<'_>) -> Vec<(String, String)> {
        config::settings(request)
    }

    fn initialise(
        &self,
        plan: &ServerPlan,
        server_dir: &ServerDir,
        launcher: &Launcher,
    ) -> Result<(), ServerError> {
        let mut command = Command::new(&plan.installation.files.init_program);
        command.arg("--pgdata").arg(server_dir.data());
        command.arg(format!("--username={USER}"));
        // The socket's directory is private, so no password is needed.
        command.args(["--auth=trust", "--encoding=UTF8", "--locale=C"]);
        // Copies of the data are synced before they are used.
        command.arg("--no-sync");
        command.args(checksum_option(plan)?);
        launcher.run("creating PostgreSQL's data directory", command, INITIALISE_TIMEOUT)
    }

    fn command(
        &self,
        plan: &ServerPlan,
        server_dir: &ServerDir,
        network: Option<&Network>,
        certificate: Option<&ServerCertificate>,
    ) -> Result<Command, ServerError> {
        let data = server_dir.data();
        // A lock file left by a killed server prevents the start if its process id was reused.
        postgres_lock::clear(&data).map_err(system("removing", &data.join(LOCK_FILE)))?;
        let file = server_dir.path().join("postgresql.conf");
        let mut settings = vec![
            ("listen_addresses", network.map(|it| it.address.to_string()).unwrap_or_default()),
            ("port", port(network).to_string()),
            ("unix_socket_directories", config::directory(&server_dir.sockets())),
            ("unix_socket_permissions", "0700".to_owned()),
            // In files of the data directory: segments that a killed server leaves in /dev/shm are
            // never removed. Only parallel queries and large statistics use it.
            ("dynamic_shared_memory_type", "mmap".to_owned()),
        ];
        if let Some(network) = network {
            // Instead of initdb's, which trusts all connections from the machine itself.
            let access = server_dir.path().join("pg_hba.conf");
            write_config(&access, &config::network_access(USER, network))?;
            settings.push(("hba_file", access.display().to_string()));
        }
        let chosen = plan.settings().iter().filter(|(name, _)| name != config::CHECKSUMS);
        settings.extend(chosen.map(|(name, value)| (name.as_str(), value.clone())));
        if let Some(ServerCertificate { certificate, key, .. }) = certificate {
            // Last, so that no setting of the user replaces it.
            settings.push(("ssl", "on".to_owned()));
            settings.push(("ssl_cert_file", certificate.display().to_string()));
            settings.push(("ssl_key_file", key.display().to_string()));
        }
        write_config(&file, &config::text(&settings))?;
        let mut command = Command::new(&plan.installation.program);
        command.arg("-D").arg(data);
        command.arg("-c").arg(format!("config_file={}", file.display()));
        Ok(command)
    }

    fn target(&self, server_dir: &ServerDir, network: Option<&Network>) -> Target {
        let socket = format!(".s.PGSQL.{}", port(network));
        Target {
            address: Address::Socket(server_dir.sockets().join(socket)),
            user: USER.to_owned(),
            database: Some(DEFAULT_DATABASE.to_owned()),
            tls: Tls::Off,
            server_public_key: None,
            password: false,
        }
    }

    fn admit(&self, target: &Target, network: &Network) -> Result<(), dbdyno_drivers::Error> {
        let mut connection = PostgresConnection::connect(target, StatementMode::Text)?;
        connection.run(&format!("ALTER ROLE {USER} PASSWORD '{}'", network.verifier))
    }

    fn is_ready(&self, target: &Target) -> bool {
        PostgresConnection::connect(target, StatementMode::Text).is_ok()
    }
}

/// The port, which is also part of the socket's name.
fn port(network: Option<&Network>) -> u16 {
    network.map_or(PORT, |network| network.port)
}

/// initdb's option for page checksums.
fn checksum_option(plan: &ServerPlan) -> Result<Option<&'static str>, ServerError> {
    match plan.setting(config::CHECKSUMS) {
        Some("on") => Ok(Some("--data-checksums")),
        // Off was the default before version 18, without an option to say so.
        Some("off") if major(&plan.installation.version) < 18 => Ok(None),
        Some("off") => Ok(Some("--no-data-checksums")),
        other => Err(ServerError::Setting {
            name: config::CHECKSUMS.to_owned(),
            reason: format!("`{}` is neither `on` nor `off`", other.unwrap_or_default()),
        }),
    }
}

/// The program directory of the version that `pg_config` belongs to.
fn pg_config_bin_dir() -> Option<PathBuf> {
    let text = program_output(Path::new("pg_config"), ["--bindir"], Postgres.facts().user).ok()?;
    let directory = PathBuf::from(text.trim());
    directory.is_absolute().then_some(directory)
}

/// The program directories of all versions, the newest first.
fn debian_bin_dirs(all: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(all) else { return Vec::new() };
    let mut versions: Vec<(u32, PathBuf)> = entries
        .flatten()
        .map(|entry| (major(&entry.file_name().to_string_lossy()), entry.path().join("bin")))
        .collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, directory)| directory).collect()
}

/// The major number of a version such as `15.13` or `17beta1`; 0 if there is none.
fn major(version: &str) -> u32 {
    let digits = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
    version[..digits].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_parsed() {
        let version = |printed| Postgres.version(printed);
        let debian = "postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)";
        assert_eq!(version(debian), Ok("15.13".to_owned()));
        assert_eq!(version("postgres (PostgreSQL) 18beta1"), Ok("18beta1".to_owned()));
        assert!(
            version("postgres (PostgreSQL) 9.6.24")
                .unwrap_err()
                .to_string()
                .contains("requires 12")
        );
        assert!(version("mariadbd  Ver 10.11").unwrap_err().to_string().contains("`mariadbd"));
        assert!(version("postgres (PostgreSQL)").is_err());
    }

    #[test]
    fn newest_debian_version_comes_first() {
        let directory = tempfile::tempdir().unwrap();
        for version in ["9.6", "15", "17"] {
            std::fs::create_dir(directory.path().join(version)).unwrap();
        }
        let found = debian_bin_dirs(directory.path());
        let expected =
            ["17", "15", "9.6"].map(|version| directory.path().join(version).join("bin"));
        assert_eq!(found, expected);
        assert!(debian_bin_dirs(&directory.path().join("missing")).is_empty());
    }
}
