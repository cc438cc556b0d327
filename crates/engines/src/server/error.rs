use std::io;
use std::path::{Path, PathBuf};

use dbdyno_record::server::ServerSystem;

use crate::CloneError;

/// A server could not be found, set up, started or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// A program or a part of it is not on this machine.
    #[error("{what} not found ({looked}); install it (Debian: apt install {package}){advice}")]
    NotInstalled {
        /// What is missing, such as `MariaDB's server program mariadbd`.
        what: String,
        /// Where it was looked for.
        looked: String,
        /// Debian's package that has it.
        package: &'static str,
        /// What else could be done.
        advice: &'static str,
    },
    /// A program is there and is not what was asked for.
    #[error("{} is not usable as {}: {message}", program.display(), system.title())]
    Unsuitable {
        /// The program.
        program: PathBuf,
        /// What it was to be.
        system: ServerSystem,
        /// Why it is not.
        message: String,
    },
    /// A setting, or a combination of them, that a private server cannot have.
    #[error("the setting {name} cannot be used: {reason}")]
    Setting {
        /// The setting's name, as given.
        name: String,
        /// Why not, and what to do instead.
        reason: String,
    },
    /// The operating system refused something.
    #[error("{doing} {}: {source}", path.display())]
    System {
        /// What was being done, such as `making the directory`.
        doing: String,
        /// What with.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The server's program, or one that belongs to it, failed or took too long.
    #[error("{doing}: {how}{}", said(.tail, .log))]
    Program {
        /// What was being done, such as `starting MariaDB`.
        doing: String,
        /// How it ended, or that it did not.
        how: String,
        /// The last lines of its log.
        tail: String,
        /// Its whole log.
        log: PathBuf,
    },
    /// The disk was full.
    #[error("{doing}: the file system of {} is full{}", directory.display(), said(.tail, .log))]
    StorageFull {
        /// What was being done.
        doing: String,
        /// A directory on that file system.
        directory: PathBuf,
        /// The last lines of the program's log.
        tail: String,
        /// Its whole log.
        log: PathBuf,
    },
    /// Data could not be copied.
    #[error(transparent)]
    Clone(#[from] CloneError),
}

impl ServerError {
    /// What failed, without the end of the program's log.
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

    /// Whether the disk was full.
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

fn said(tail: &str, log: &Path) -> String {
    if tail.is_empty() {
        format!(" (its log {} is empty)", log.display())
    } else {
        format!("; the end of its log {}:\n{tail}", log.display())
    }
}

/// Makes an error of the operating system's one.
pub(crate) fn system(doing: &str, path: &Path) -> impl FnOnce(io::Error) -> ServerError {
    let (doing, path) = (doing.to_owned(), path.to_owned());
    move |source| ServerError::System { doing, path, source }
}
