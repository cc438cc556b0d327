//! The database systems that dbdyno can run private servers of.

use std::path::{Path, PathBuf};
use std::process::Command;

use dbdyno_machine::Signal;
use dbdyno_types::server::{ServerSystem, StorageEngine, Target};

use super::access::{ServerCertificate, replace_file};
use super::error::system;
use super::installation::ProgramFiles;
use super::launcher::Launcher;
use super::plan::{DiskRequest, Property, SettingsRequest};
use super::{Network, ServerDir, ServerError, ServerPlan};

/// The constants of a database system, and functions that systems share.
pub(crate) struct ProgramFacts {
    /// Names of the program file, the preferred one first.
    pub(crate) names: &'static [&'static str],
    pub(crate) package: &'static str,
    /// The user that the package creates for the server.
    pub(crate) user: &'static str,
    /// Settings that affect the format of data on disk: data created with other values cannot be
    /// shared.
    pub(crate) format_settings: &'static [&'static str],
    /// Settings without which dbdyno cannot run with the server's defaults, and a number that is enough: where
    /// dbdyno's value is not greater, the server's default stays.
    pub(crate) needed: &'static [(&'static str, f64)],
    /// Settings whose defaults for benchmarks a report names.
    pub(crate) notable: &'static [&'static str],
    pub(crate) caches: &'static [Cache],
    /// Settings of which the server derives those that are not given from the others of their group.
    pub(crate) groups: &'static [&'static [&'static str]],
    /// Where releases are installed side by side.
    pub(crate) releases: ReleaseFolders,
    /// A program with the same name is another system's if this one is beside it.
    pub(crate) not_beside: Option<&'static str>,
    /// Names of its processes; a proxy or a service manager has another.
    pub(crate) processes: &'static [&'static str],
    /// The database of connections that need one, before dbdyno's exists.
    pub(crate) database: Option<&'static str>,
    /// The signal for a clean shutdown that does not wait for clients to disconnect.
    pub(crate) stop_signal: Signal,
    /// The signal that the kernel sends when dbdyno's main thread exits.
    pub(crate) death_signal: Signal,
    /// The name of the file in the data directory with the public key with which passwords are encrypted on
    /// connections that are not, if the system has one.
    pub(crate) public_key: Option<&'static str>,
    /// Directories to search after those in `PATH`.
    pub(crate) search_dirs: fn() -> Vec<PathBuf>,
    /// The canonical spelling of a setting's name.
    pub(crate) canonical_name: fn(&str) -> String,
    /// What may explain a difference in speed between servers with the same statements.
    pub(crate) properties: fn(&ServerPlan) -> Vec<Property>,
    /// How to reach the server in this directory through its socket.
    pub(crate) target: fn(&ServerDir, Option<&Network>) -> Target,
    /// Whether the server accepts connections.
    pub(crate) is_ready: fn(&Target) -> bool,
}

/// A setting with the size of a cache.
pub(crate) struct Cache {
    pub(crate) name: &'static str,
    /// The unit of a number without one, in bytes.
    pub(crate) unit: f64,
    /// The engines whose data it holds.
    pub(crate) engines: &'static [Option<StorageEngine>],
    /// Whether the server allocates it: otherwise it is an estimate for the planner.
    pub(crate) is_allocated: bool,
}

/// Where releases of a system are installed side by side.
#[derive(Clone, Copy)]
pub(crate) struct ReleaseFolders {
    /// Directories with a directory per release, in `/opt` and the home directories.
    pub(crate) names: &'static [&'static str],
    /// Prefixes of directories of one release, there and in `/usr/local`.
    pub(crate) prefixes: &'static [&'static str],
    /// Directories of distributions' packages, with the prefix of each release's.
    pub(crate) packages: &'static [(&'static str, &'static str)],
    /// Whether dbdeployer installs it.
    pub(crate) sandboxes: bool,
}

/// What differs between database systems in the life cycle of a private server.
pub(crate) trait ServerProgram: Sync {
    fn facts(&self) -> ProgramFacts;

    /// Parses the output of `--version`: a version such as `10.11.19-MariaDB`, or why the program is not usable.
    fn version(&self, printed: &str) -> Result<String, String>;

    /// Finds the files that belong to the program: the one that creates data, and the engine's plugin.
    fn files(
        &self,
        program: &Path,
        engine: Option<StorageEngine>,
    ) -> Result<ProgramFiles, ServerError>;

    /// The settings to run with and to show, without the reserved ones.
    fn settings(&self, request: &SettingsRequest<'_>) -> Vec<(String, String)>;

    /// The bytes of tables, and of logs and system tables, on disk.
    fn disk(&self, request: &DiskRequest<'_>) -> (u64, u64);

    /// Fills [`ServerDir::data`], an empty directory of the server's user.
    fn initialise(
        &self,
        plan: &ServerPlan,
        server_dir: &ServerDir,
        launcher: &Launcher,
    ) -> Result<(), ServerError>;

    /// Writes the configuration file, and returns the command that starts the server, which listens on
    /// its socket and at the address of `network`, there only with TLS if there is a certificate. User, environment, log and CPUs are set by the
    /// launcher.
    fn command(
        &self,
        plan: &ServerPlan,
        server_dir: &ServerDir,
        network: Option<&Network>,
        certificate: Option<&ServerCertificate>,
    ) -> Result<Command, ServerError>;

    /// Checks that the server can have a safe login over a network.
    fn check_network(&self, _plan: &ServerPlan) -> Result<(), ServerError> {
        Ok(())
    }

    /// Creates the account for the network on the server at `target`, and removes all others that
    /// could log in there.
    fn admit(&self, target: &Target, network: &Network) -> Result<(), dbdyno_drivers::Error>;
}

/// The version that was found in the output of `--version`, if dbdyno supports it: `oldest` or later.
fn supported(
    printed: &str,
    version: Option<&str>,
    is_too_old: impl Fn(&str) -> bool,
    oldest: &str,
) -> Result<String, String> {
    match version {
        None => Err(format!("its output for --version is `{printed}`")),
        Some(version) if is_too_old(version) => {
            Err(format!("it is version {version}; dbdyno requires {oldest} or later"))
        }
        Some(version) => Ok(version.to_owned()),
    }
}

/// Replaces a configuration file by one that only this user can write and all users can read.
pub(super) fn write_config(file: &Path, text: &str) -> Result<(), ServerError> {
    replace_file(file, text, 0o644, None).map_err(system("writing", file))
}

mod mariadb;
mod mysql;
mod mysql_config;
mod mysql_versions;
mod postgres;

pub(super) fn server_program(system: ServerSystem) -> &'static dyn ServerProgram {
    match system {
        ServerSystem::MariaDb => &mariadb::MariaDb,
        ServerSystem::MySql => &mysql::MySql,
        ServerSystem::PostgreSql => &postgres::Postgres,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    /// The files that tell servers apart in `match` arms, beside `SystemFacts` in `types`; a new server is added in each
    /// of them.
    const MATCHES: [&str; 5] = [
        "3-system/builds/src/build_record.rs",
        "3-system/drivers/src/verifier.rs",
        "3-system/engines/src/server/systems/mod.rs",
        "3-system/engines/src/server_engine.rs",
        "7-program/selfbench/src/private_server.rs",
    ];

    /// The lines of a file before its tests that are match arms of a server's system.
    fn arms(text: &str) -> usize {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let names = ["MariaDb", "MySql", "PostgreSql"];
        let is_arm = |line: &&str| {
            line.split_once("=>").is_some_and(|(pattern, _)| {
                names.iter().any(|name| pattern.contains(&format!("ServerSystem::{name}")))
            })
        };
        code.lines().filter(is_arm).count()
    }

    #[test]
    fn systems_are_told_apart_where_contributing_says() {
        let crates = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut found = Vec::new();
        let mut folders = vec![crates.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    folders.push(entry);
                } else if entry.extension().is_some_and(|one| one == "rs")
                    && entry.components().any(|part| part.as_os_str() == "src")
                    && arms(&fs::read_to_string(&entry).unwrap()) > 0
                {
                    found.push(entry.strip_prefix(&crates).unwrap().display().to_string());
                }
            }
        }
        found.sort();
        assert_eq!(found, MATCHES);
    }
}
