use std::io;
use std::path::{Path, PathBuf};

use dbdyno_types::server::ServerSystem;

use crate::CloneError;

/// A server could not be found, set up, started or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// A program or one of its files is not installed.
    #[error("{what} not found ({searched}); install it (Debian: apt install {package}){advice}")]
    NotInstalled {
        /// What is missing, such as `MariaDB's server program mariadbd`.
        what: String,
        /// Where it was searched for.
        searched: String,
        /// The Debian package that contains it.
        package: &'static str,
        /// An alternative to installing it; empty if there is none.
        advice: &'static str,
    },
    /// A program exists but cannot be used.
    #[error("{} is not usable as {}: {message}", program.display(), system.title())]
    Unsuitable {
        program: PathBuf,
        /// The system it should be.
        system: ServerSystem,
        /// The reason.
        message: String,
    },
    /// A program cannot be started on this machine.
    #[error("{} does not start: {reason}; {advice}", program.display())]
    DoesNotStart {
        program: PathBuf,
        /// What the system or the program's loader said.
        reason: String,
        /// What to try.
        advice: &'static str,
    },
    /// No directory has the name of the release.
    #[error(
        "{} has no release `{name}` (searched {searched}){}; `dbdyno list releases` shows what is here \
         and what can be fetched",
        system.title(), found_releases(name, found)
    )]
    NoRelease {
        system: ServerSystem,
        name: String,
        /// Where it was searched for.
        searched: String,
        /// The names of the releases that were found.
        found: Vec<String>,
    },
    /// A setting, or a combination of settings, that a private server cannot have.
    #[error("the setting {name} cannot be used: {reason}")]
    Setting {
        /// The setting's name, as given.
        name: String,
        /// The reason and what to do instead.
        reason: String,
    },
    /// A system call failed.
    #[error("{doing} {}: {source}", path.display())]
    System {
        /// The action, such as `creating the directory`.
        doing: String,
        /// The file or directory it applied to.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The server or one of its programs failed or timed out.
    #[error("{doing}: {how}{}", log_excerpt(.tail, .log.as_deref()))]
    Program {
        /// The action, such as `starting MariaDB`.
        doing: String,
        /// How it ended, or that it did not.
        how: String,
        /// The last lines of its log.
        tail: String,
        /// Its log file; `None` if it was removed.
        log: Option<PathBuf>,
    },
    /// The disk is full.
    #[error(
        "{doing}: the file system of {} is full{}",
        directory.display(), log_excerpt(.tail, .log.as_deref())
    )]
    StorageFull {
        /// The action.
        doing: String,
        /// A directory on that file system.
        directory: PathBuf,
        /// The last lines of the program's log.
        tail: String,
        /// Its log file; `None` if it was removed.
        log: Option<PathBuf>,
    },
    /// Data could not be copied.
    #[error(transparent)]
    Clone(#[from] CloneError),
}

impl ServerError {
    /// The error without the path of the log, which was removed.
    pub(super) fn without_log_file(mut self) -> Self {
        if let Self::Program { log, .. } | Self::StorageFull { log, .. } = &mut self {
            *log = None;
        }
        self
    }

    /// The message without the excerpt of the program's log; one line.
    #[must_use]
    pub fn brief(&self) -> String {
        match self {
            Self::Program { doing, how, .. } => format!("{doing}: {how}"),
            Self::StorageFull { doing, directory, .. } => {
                format!("{doing}: the file system of {} is full", directory.display())
            }
            other => other.to_string(),
        }
    }

    /// Whether the disk is full.
    #[must_use]
    pub fn is_storage_full(&self) -> bool {
        match self {
            Self::StorageFull { .. } => true,
            Self::System { source, .. } => source.kind() == io::ErrorKind::StorageFull,
            Self::Clone(error) => error.is_storage_full(),
            _ => false,
        }
    }
}

fn found_releases(name: &str, found: &[String]) -> String {
    // The longest common start is the nearest version.
    let common =
        |other: &&String| name.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    match found.iter().max_by_key(common) {
        None => "; none was found".to_owned(),
        Some(nearest) if found.len() == 1 => format!("; the only one is `{nearest}`"),
        Some(nearest) => format!("; nearest is `{nearest}`"),
    }
}

fn log_excerpt(tail: &str, log: Option<&Path>) -> String {
    let path = log.map_or_else(String::new, |log| format!(" {}", log.display()));
    if tail.is_empty() {
        format!(" (its log{path} is empty)")
    } else {
        format!("; the end of its log{path}:\n{tail}")
    }
}

/// Converts an I/O error into [`ServerError::System`].
pub(crate) fn system(doing: &str, path: &Path) -> impl FnOnce(io::Error) -> ServerError {
    let (doing, path) = (doing.to_owned(), path.to_owned());
    move |source| ServerError::System { doing, path, source }
}
