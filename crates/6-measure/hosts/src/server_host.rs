//! What a machine does for private servers, wherever it is.

use std::fmt;
use std::path::PathBuf;

use dbdyno_engines::server::{ServerError, ServerPlan};
use dbdyno_live::{OptimizedServer, ServerOptions};
use dbdyno_relayout::Profile;
use dbdyno_types::server::Target;

use crate::HostMonitor;
use crate::protocol::Failed;

/// A machine on which private servers run. Each has a directory with a name, which has its data, its configuration
/// and its log.
///
/// Start servers on dbdyno's main thread: the kernel ends them with the thread that started them.
pub trait ServerHost: fmt::Debug + Send + Sync {
    /// Whether complete data exists; false if the connection is lost.
    fn exists(&self, name: &str) -> bool;

    /// Creates a new data directory. If it fails, nothing is left.
    fn initialise(&self, plan: &ServerPlan, name: &str) -> Result<(), HostError>;

    /// Removes a directory, if it exists. The server must not run.
    fn remove(&self, name: &str) -> Result<(), HostError>;

    /// Does the same, but on this machine leaves the log, which an error may name.
    fn remove_data(&self, name: &str) -> Result<(), HostError> {
        self.remove(name)
    }

    /// Copies data to a directory that must not exist. Neither server may run.
    fn copy(&self, from: &str, to: &str) -> Result<(), HostError>;

    /// Renames a directory to a name that must not exist. The server must not run.
    fn rename(&self, from: &str, to: &str) -> Result<(), HostError>;

    /// The directory of the database's files on this machine.
    fn files(&self, name: &str) -> Option<PathBuf>;

    /// Whether a later session can use the data. What is on another host is removed with the connection.
    fn keeps_data(&self) -> bool;

    /// Starts a server on existing data, and waits until it accepts connections.
    fn start(
        &self,
        plan: &ServerPlan,
        name: &str,
        start: ServerStart,
    ) -> Result<Box<dyn RunningServer>, HostError>;
}

/// How a server is started on another host.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerStart {
    /// Whether connections over the network are encrypted, and the server's certificate is verified.
    pub tls: bool,
    /// Whether counters of the CPU and the kernel are opened for it there.
    pub count: bool,
}

/// A running private server. Dropping it kills the server.
pub trait RunningServer {
    /// What tells it from the server after a restart; `None` if it is known to have ended.
    fn key(&self) -> Option<ServerKey>;

    /// Its main process; `None` on another host.
    fn pid(&self) -> Option<u32>;

    /// Reads its usage on another host; `None` if the worker reads it here.
    fn monitor(&self) -> Option<&HostMonitor>;

    /// Warnings and errors that it logged when it started.
    fn warnings(&self) -> Vec<String>;

    /// How workers reach it.
    fn target(&self) -> Target;

    /// How it exited, or that its host is lost; `None` while it runs.
    fn ended(&mut self) -> Option<HostError>;

    /// Copies its data to a directory that must not exist, while its processes are stopped. A server started on
    /// the copy recovers everything that was committed.
    fn copy_paused(&self, to: &str) -> Result<(), HostError>;

    fn stop(self: Box<Self>) -> Result<(), HostError>;

    /// Starts sampling it for the live optimizer. What was sampled before is forgotten.
    fn start_sampling(&mut self, options: ServerOptions) -> Result<(), HostError>;

    /// Ends sampling, and makes code that counts. Returns whether executions are to be counted.
    fn end_sampling(&mut self) -> Result<bool, HostError>;

    /// Starts counting executions, while somebody keeps the server busy.
    fn start_counting(&mut self) -> Result<(), HostError>;

    /// Waits for the end of counting.
    fn end_counting(&mut self) -> Result<(), HostError>;

    /// Optimizes with what was sampled and counted.
    fn optimize(&mut self) -> Result<OptimizedServer, HostError>;

    /// Optimizes with samples of another process; `source` describes them.
    fn optimize_by(
        &mut self,
        options: ServerOptions,
        profile: &Profile,
        source: String,
    ) -> Result<OptimizedServer, HostError>;
}

/// What tells a running server from others on its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerKey(pub(crate) u32);

/// A host cannot be used, or something failed on a machine with servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostError {
    /// The host's name in the experiment; `None` for this machine.
    host: Option<String>,
    failed: Failed,
    is_lost: bool,
}

impl HostError {
    /// An error on the host with this name.
    pub fn on(host: &str, reason: impl fmt::Display) -> Self {
        Self::failed_on(host, Failed::because(reason))
    }

    pub(crate) fn failed_on(host: &str, failed: Failed) -> Self {
        Self { host: Some(host.to_owned()), failed, is_lost: false }
    }

    /// The connection to the host with this name was lost; its agent ends all servers there.
    pub(crate) fn lost(host: &str, reason: String) -> Self {
        Self { is_lost: true, ..Self::on(host, reason) }
    }

    /// An error on this machine.
    pub(crate) fn here(reason: impl fmt::Display) -> Self {
        Self { host: None, failed: Failed::because(reason), is_lost: false }
    }

    /// The message in one line, without lines of logs.
    pub fn brief(&self) -> String {
        self.with(&self.failed.brief)
    }

    pub const fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Whether it is on this machine.
    pub const fn is_here(&self) -> bool {
        self.host.is_none()
    }

    fn with(&self, reason: &str) -> String {
        match &self.host {
            Some(host) if self.is_lost => format!("lost the connection to host {host}: {reason}"),
            Some(host) => format!("host {host}: {reason}"),
            None => reason.to_owned(),
        }
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with(&self.failed.whole))
    }
}

impl std::error::Error for HostError {}

impl From<ServerError> for HostError {
    fn from(error: ServerError) -> Self {
        Self { host: None, failed: error.into(), is_lost: false }
    }
}

impl From<HostError> for Failed {
    fn from(error: HostError) -> Self {
        error.failed
    }
}
