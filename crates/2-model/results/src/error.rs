use std::io;
use std::path::PathBuf;

use crate::own_directory::NotOwn;

/// A run directory could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// There is no run in the directory.
    #[error(
        "{} is not a run directory: {why}; `dbdyno run FILE --out DIR` makes one", path.display()
    )]
    NotARun {
        /// The directory.
        path: PathBuf,
        /// What is missing.
        why: String,
    },
    /// The directory already contains a run.
    #[error(
        "{0} holds a run already; continue it with `dbdyno run --resume {0}`, or choose another \
         directory with --out"
    )]
    Exists(String),
    /// Another process is writing.
    #[error("{} is in use by another dbdyno{}; wait for it, or stop it", path.display(), by(pid))]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The process ID of the writer, if known.
        pid: Option<u32>,
    },
    /// The run was written by a later version.
    #[error(
        "{} has format {found}, and this dbdyno reads only format {known}: it was made by a \
         newer version; use that one", path.display()
    )]
    NewerFormat {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The latest known format.
        known: i64,
    },
    /// The run was written by an earlier version that was never released.
    #[error(
        "{} has format {found}, and this dbdyno reads only format {known}: it was made by a \
         dbdyno from before the first release; read it with the dbdyno that made it, or measure \
         again into another directory",
        path.display()
    )]
    OlderFormat {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The latest known format.
        known: i64,
    },
    /// The database contains something that no dbdyno writes, and that reading it would execute.
    #[error(
        "{} is not read, because its run.sqlite has {found}. If you added it yourself, remove it; \
         otherwise the run may have been made to attack its reader", path.display()
    )]
    Untrusted {
        /// The directory.
        path: PathBuf,
        /// The foreign part.
        found: String,
    },
    /// The disk is full.
    #[error(
        "no space left on the device that holds {}: what was measured before is safe; free some \
         space and continue with --resume", .0.display()
    )]
    StorageFull(PathBuf),
    /// The database in the directory failed.
    #[error("{doing} in {}: {source}", path.display())]
    Database {
        /// The directory.
        path: PathBuf,
        /// The operation.
        doing: &'static str,
        /// SQLite's error.
        source: rusqlite::Error,
    },
    /// A file or directory could not be created.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file or directory of the run is not this user's own, or leads elsewhere.
    #[error("{} {why}", path.display())]
    NotOwn {
        /// The file or directory.
        path: PathBuf,
        /// The reason, and what to do.
        why: NotOwn,
    },
    /// Stored data cannot be parsed.
    #[error("{}: {what} is damaged: {why}", path.display())]
    Damaged {
        /// The directory.
        path: PathBuf,
        /// The damaged part.
        what: &'static str,
        /// The reason.
        why: String,
    },
}

fn by(pid: &Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

impl ResultsError {
    /// The error for a file or directory that cannot be written.
    pub(crate) fn writing(path: PathBuf, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull => Self::StorageFull(path),
            _ => Self::Io { path, source },
        }
    }

    /// Whether the error is a full disk.
    #[must_use]
    pub const fn is_storage_full(&self) -> bool {
        matches!(self, Self::StorageFull(_))
    }
}
