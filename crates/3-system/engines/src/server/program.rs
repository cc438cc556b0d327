use std::path::{Path, PathBuf};
use std::process::Command;

use dbdyno_machine::Signal;
use dbdyno_types::server::{StorageEngine, Target};

use super::certificate::ServerCertificate;
use super::installation::ProgramFiles;
use super::launcher::Launcher;
use super::plan::SettingsRequest;
use super::{Network, ServerDir, ServerError, ServerPlan};

/// The constants of a database system.
pub(crate) struct ProgramFacts {
    /// Names of the program file, the preferred one first.
    pub(crate) names: &'static [&'static str],
    /// The Debian package that contains it.
    pub(crate) package: &'static str,
    /// The user that the package creates for the server.
    pub(crate) user: &'static str,
    /// Settings that dbdyno sets itself and that cannot be overridden.
    pub(crate) reserved: &'static [&'static str],
    /// Settings that affect the format of data on disk: data created with other values cannot be
    /// shared.
    pub(crate) format_settings: &'static [&'static str],
    /// The signal for a clean shutdown that does not wait for clients to disconnect.
    pub(crate) stop_signal: Signal,
    /// The signal that the kernel sends when dbdyno's main thread exits.
    pub(crate) death_signal: Signal,
}

/// What differs between database systems in the life cycle of a private server.
pub(crate) trait ServerProgram: Sync {
    /// The constants of the system.
    fn facts(&self) -> ProgramFacts;

    /// Directories to search after those in `PATH`.
    fn search_dirs(&self) -> Vec<PathBuf>;

    /// Parses the output of `--version`; returns a version such as `10.11.19-MariaDB`.
    ///
    /// # Errors
    /// The program is of another system, or too old.
    fn version(&self, printed: &str) -> Result<String, VersionError>;

    /// Finds the files that belong to the program: the one that creates data, and the engine's plugin.
    ///
    /// # Errors
    /// A file is missing; the error names its package.
    fn files(
        &self,
        program: &Path,
        engine: Option<StorageEngine>,
    ) -> Result<ProgramFiles, ServerError>;

    /// The canonical spelling of a setting's name.
    fn canonical_name(&self, name: &str) -> String;

    /// The settings to run with and to show, without the reserved ones.
    fn settings(&self, request: &SettingsRequest<'_>) -> Vec<(String, String)>;

    /// Fills [`ServerDir::data`], an empty directory of the server's user.
    ///
    /// # Errors
    /// The program that does it failed.
    fn initialise(
        &self,
        plan: &ServerPlan,
        server_dir: &ServerDir,
        launcher: &Launcher,
    ) -> Result<(), ServerError>;

    /// Writes the configuration file, and returns the command that starts the server, which listens on
    /// its socket and at the address of `network`, there only with TLS if there is a certificate. User, environment, log and CPUs are set by the
    /// launcher.
    ///
    /// # Errors
    /// The file cannot be written, or the system has no safe login over a network.
    fn command(
        &self,
        plan: &ServerPlan,
        server_dir: &ServerDir,
        network: Option<&Network>,
        certificate: Option<&ServerCertificate>,
    ) -> Result<Command, ServerError>;

    /// How to reach the server in this directory through its socket.
    fn target(&self, server_dir: &ServerDir, network: Option<&Network>) -> Target;

    /// Checks that the server can have a safe login over a network.
    ///
    /// # Errors
    /// Its version has none.
    fn check_network(&self, _plan: &ServerPlan) -> Result<(), ServerError> {
        Ok(())
    }

    /// The name of the file in the data directory with the public key with which passwords are encrypted on
    /// connections that are not, if the system has one.
    fn public_key(&self) -> Option<&'static str> {
        None
    }

    /// Creates the account for the network on the server at `target`, and removes all others that
    /// could log in there.
    ///
    /// # Errors
    /// A statement failed.
    fn admit(&self, target: &Target, network: &Network) -> Result<(), dbdyno_drivers::Error>;

    /// Whether the server accepts connections.
    fn is_ready(&self, target: &Target) -> bool;
}

/// Why a program's version is not usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum VersionError {
    /// The program belongs to another system.
    #[error("it is {found}{advice}")]
    OtherSystem {
        /// Name and version of that system.
        found: String,
        /// What to do; empty if obvious.
        advice: &'static str,
    },
    #[error("it is version {found}; dbdyno requires {oldest} or later{advice}")]
    TooOld {
        /// The program's version.
        found: String,
        /// The oldest supported version.
        oldest: &'static str,
        /// What to do; empty if obvious.
        advice: &'static str,
    },
    /// The output of `--version` is not understood.
    #[error("its output for --version is `{0}`")]
    Unrecognised(String),
}
