use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use dbdyno_types::server::ServerSystem;

use crate::CloneError;

/// A server could not be found, set up, started or stopped.
#[derive(Debug)]
pub struct ServerError {
    /// What failed, why, and what to try, in one line.
    message: String,
    /// The log of the program that failed.
    log: Option<LogExcerpt>,
    is_storage_full: bool,
}

#[derive(Debug)]
struct LogExcerpt {
    tail: String,
    /// `None` if the file was removed.
    file: Option<PathBuf>,
}

impl ServerError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), log: None, is_storage_full: false }
    }

    /// `what` was not found where `searched` says; it is in the Debian package `package`.
    pub(crate) fn not_installed(what: &str, searched: &str, package: &str, advice: &str) -> Self {
        Self::new(format!(
            "{what} not found ({searched}); install it (Debian: apt install {package}){advice}"
        ))
    }

    /// A program exists but cannot be used as a server of this system.
    pub(crate) fn unsuitable(
        program: &Path,
        system: ServerSystem,
        reason: impl fmt::Display,
    ) -> Self {
        let (program, title) = (program.display(), system.title());
        Self::new(format!("{program} is not usable as {title}: {reason}"))
    }

    /// A setting, or a combination of settings, that a private server cannot have.
    pub(crate) fn setting(name: &str, reason: impl fmt::Display) -> Self {
        Self::new(format!("the setting {name} cannot be used: {reason}"))
    }

    /// The server or one of its programs failed or timed out; `tail` are the last lines of the log.
    pub(crate) fn program(message: String, tail: String, log: &Path) -> Self {
        let log = LogExcerpt { tail, file: Some(log.to_owned()) };
        Self { log: Some(log), ..Self::new(message) }
    }

    /// The same because the disk with `directory` is full.
    pub(crate) fn storage_full(doing: &str, directory: &Path, tail: String, log: &Path) -> Self {
        let directory = directory.display();
        let message = format!("{doing}: the file system of {directory} is full");
        Self { is_storage_full: true, ..Self::program(message, tail, log) }
    }

    /// The error without the path of the log, which was removed.
    pub(super) fn without_log_file(mut self) -> Self {
        if let Some(log) = &mut self.log {
            log.file = None;
        }
        self
    }

    /// The error with what may explain it.
    pub(super) fn because(mut self, reason: Option<String>) -> Self {
        self.message.extend(reason.map(|reason| format!("; {reason}")));
        self
    }

    /// The message without the excerpt of the program's log; one line.
    pub fn brief(&self) -> String {
        self.message.clone()
    }

    pub const fn is_storage_full(&self) -> bool {
        self.is_storage_full
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        let Some(LogExcerpt { tail, file }) = &self.log else { return Ok(()) };
        let path = file.as_ref().map_or_else(String::new, |file| format!(" {}", file.display()));
        match tail.is_empty() {
            true => write!(f, " (its log{path} is empty)"),
            false => write!(f, "; the end of its log{path}:\n{tail}"),
        }
    }
}

impl std::error::Error for ServerError {}

impl From<CloneError> for ServerError {
    fn from(error: CloneError) -> Self {
        Self { is_storage_full: error.is_storage_full(), ..Self::new(error.to_string()) }
    }
}

/// The error of a system call: `doing` is an action such as `creating the directory`, and `path` the file or
/// directory that it applied to.
pub(crate) fn system(doing: &str, path: &Path) -> impl FnOnce(io::Error) -> ServerError {
    let doing = format!("{doing} {}", path.display());
    move |error| ServerError {
        is_storage_full: error.kind() == io::ErrorKind::StorageFull,
        ..ServerError::new(format!("{doing}: {error}"))
    }
}
