use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use dbdyno_machine::Signal;
use dbdyno_record::server::{Durability, ServerSystem, StorageEngine, Target};

use super::installation::Parts;
use super::mariadb::MariaDb;
use super::mysql::MySql;
use super::postgres::Postgres;
use super::spawn::Launcher;
use super::{DataShape, Installation, ServerDir, ServerError, ServerPlan};

/// What differs between the systems in the life of a private server.
pub(crate) trait Program: Sync {
    /// Names of the server's program, the best one first.
    fn names(&self) -> &'static [&'static str];

    /// Directories to look for it in, besides those of `PATH`.
    fn directories(&self) -> Vec<PathBuf>;

    /// Debian's package that has it.
    fn package(&self) -> &'static str;

    /// The version, such as `10.11.19-MariaDB`, from what `--version` printed.
    ///
    /// # Errors
    /// Says what the program is instead.
    fn version(&self, printed: &str) -> Result<String, String>;

    /// Finds what belongs to the program: what initialises data, and the engine's plugin.
    ///
    /// # Errors
    /// Names what is missing, and its package.
    fn parts(&self, program: &Path, engine: Option<StorageEngine>) -> Result<Parts, ServerError>;

    /// The user that the package made for the server.
    fn user(&self) -> &'static str;

    /// Settings that dbdyno itself makes, and that no override may touch.
    fn reserved(&self) -> &'static [&'static str];

    /// A setting's name, written the one way that settings are compared in.
    fn normal_name(&self, name: &str) -> String;

    /// The settings to show and to run with, beside the server's own defaults; the reserved ones
    /// are not among them.
    fn settings(&self, request: &SettingsRequest<'_>) -> Vec<(String, String)>;

    /// The names of settings that shape the data on disk: data made with other values of them is
    /// other data.
    fn shapes_data(&self) -> &'static [&'static str];

    /// Fills [`ServerDir::data`], an empty directory that the server's user owns.
    ///
    /// # Errors
    /// The program that does it failed.
    fn initialise(
        &self,
        plan: &ServerPlan,
        server_dir: &ServerDir,
        launcher: &Launcher,
    ) -> Result<(), ServerError>;

    /// Writes the server's configuration into the server_dir, and returns the command that starts it.
    /// User, environment, log and CPUs are not its business.
    ///
    /// # Errors
    /// The configuration cannot be written.
    fn command(&self, plan: &ServerPlan, server_dir: &ServerDir) -> Result<Command, ServerError>;

    /// The signal that shuts the server down cleanly without waiting for connections to end.
    fn stop_signal(&self) -> i32;

    /// The signal that the kernel sends the server when dbdyno's main thread ends.
    fn death_signal(&self) -> Signal {
        Signal::KILL
    }

    /// How to reach the server that lives in this server_dir.
    fn target(&self, server_dir: &ServerDir) -> Target;

    /// Whether the server lets connections in now.
    fn is_ready(&self, target: &Target) -> bool;
}

/// What settings are made for.
pub(crate) struct SettingsRequest<'a> {
    pub(crate) installation: &'a Installation,
    pub(crate) engine: Option<StorageEngine>,
    pub(crate) durability: Durability,
    pub(crate) shape: DataShape,
}

/// The program of a system.
pub(crate) fn program(system: ServerSystem) -> &'static dyn Program {
    match system {
        ServerSystem::MariaDb => &MariaDb,
        ServerSystem::MySql => &MySql,
        ServerSystem::PostgreSql => &Postgres,
    }
}

/// Writes a configuration file that the server may read and nobody but us may write.
pub(crate) fn write_config(file: &Path, text: &str) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(file, text)?;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o644))
}
