use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use serde::Serialize;

use crate::checksum::ChangedRow;
use crate::directory::NotOwn;
use crate::schema::FORMAT;

/// A run directory could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// There is no run in the directory.
    #[error(
        "{} is not a run directory: {why}; `dbdyno run FILE --out DIR` makes one", path.display()
    )]
    NotARun { path: PathBuf, why: String },
    /// The directory already contains a run.
    #[error(
        "{0} holds a run already; continue it with `dbdyno run --resume {0}`, or choose another \
         directory with --out"
    )]
    Exists(String),
    /// Another process is writing.
    #[error("{} is in use by another dbdyno{}; wait for it, or stop it", path.display(), by(pid))]
    InUse { path: PathBuf, pid: Option<u32> },
    /// The run was written by another version.
    #[error(
        "{} has format {found}, and this dbdyno reads only format {FORMAT}: it was made by a {}",
        path.display(), advice(*found)
    )]
    OtherFormat { path: PathBuf, found: i64 },
    /// The database contains something that no dbdyno writes, and that reading it would execute.
    #[error(
        "{} is not read, because its run.sqlite has {found}. If you added it yourself, remove it; \
         otherwise the run may have been made to attack its reader", path.display()
    )]
    Untrusted { path: PathBuf, found: String },
    /// The disk is full.
    #[error(
        "no space left on the device that holds {}: what was measured before is safe; free some \
         space and continue with --resume", .0.display()
    )]
    StorageFull(PathBuf),
    /// The disk is too full for a new run.
    #[error(
        "no space left on the device that holds {}: no run was made; free some space, or name \
         another directory with --out", .0.display()
    )]
    NoSpaceToStart(PathBuf),
    /// The run was removed by others.
    #[error(
        "{} was removed or moved meanwhile, and its run with it: measure again, or put it back and \
         continue with --resume", .0.display()
    )]
    Gone(PathBuf),
    /// The database in the directory failed.
    #[error("{doing} in {}: {source}", path.display())]
    Database { path: PathBuf, doing: &'static str, source: rusqlite::Error },
    /// A file or directory could not be created.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// A file or directory of the run is not this user's own, or leads elsewhere.
    #[error("{} {why}", path.display())]
    NotOwn { path: PathBuf, why: NotOwn },
    /// Stored data cannot be parsed.
    #[error("{}: {what} is damaged: {why}", path.display())]
    Damaged { path: PathBuf, what: &'static str, why: String },
}

fn advice(found: i64) -> &'static str {
    match found > FORMAT {
        true => "newer version; use that one",
        false => {
            "dbdyno from before the first release; read it with the dbdyno that made it, or \
             measure again into another directory"
        }
    }
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
    pub const fn is_storage_full(&self) -> bool {
        matches!(self, Self::StorageFull(_) | Self::NoSpaceToStart(_))
    }
}

pub(crate) fn database_error(
    path: &Path,
    doing: &'static str,
    source: rusqlite::Error,
) -> ResultsError {
    if let rusqlite::Error::FromSqlConversionFailure(_, _, cause) = &source
        && let Some(changed) = cause.downcast_ref::<ChangedRow>()
    {
        let (path, why) = (path.to_owned(), changed.to_string());
        return ResultsError::Damaged { path, what: "run.sqlite", why };
    }
    // If the index of the write-ahead log cannot grow, SQLite reports an I/O error.
    let is_index = source
        .sqlite_error()
        .is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE);
    match source.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => ResultsError::StorageFull(path.to_owned()),
        _ if is_index => ResultsError::StorageFull(path.to_owned()),
        _ if !path.exists() => ResultsError::Gone(path.to_owned()),
        _ => ResultsError::Database { path: path.to_owned(), doing, source },
    }
}

/// A record as JSON.
pub(crate) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("records have no maps with odd keys and no odd floats")
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn full_disk_is_recognized_in_all_errors_of_sqlite() {
        let is_full = |code| {
            let source = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            database_error(Path::new("/run"), "opening the run's database", source)
                .is_storage_full()
        };
        assert!(is_full(ffi::SQLITE_FULL));
        assert!(is_full(ffi::SQLITE_IOERR_SHMSIZE));
        assert!(!is_full(ffi::SQLITE_IOERR_READ));
    }

    #[test]
    fn removed_run_is_named_whatever_fails() {
        let dir = tempfile::tempdir().unwrap();
        let message = |path: &Path| {
            let source = rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR), None);
            database_error(path, "storing a slice", source).to_string()
        };
        assert!(message(dir.path()).contains("storing a slice in"));
        assert!(message(&dir.path().join("gone")).contains("was removed or moved meanwhile"));
    }
}
