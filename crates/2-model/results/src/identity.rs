//! The identity of a run: made with the run, renewed in a copy of its directory.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use dbdyno_types::{RunId, RunIdentity};
use rusqlite::Connection;

use crate::directory::RunDirectory;
use crate::error::{ResultsError, database_error, json};
use crate::reader::{RunReader, meta};
use crate::writer::set_meta;

/// The key in `meta`.
pub(crate) const KEY: &str = "identity";

/// A new identity for a run in this directory.
pub(crate) fn create(directory: &Path) -> Result<RunIdentity, ResultsError> {
    Ok(located(new_run_id()?, directory))
}

/// The identity of the run in this directory. Stores it if it is new: the run is published without
/// one, or the directory was moved, or it is a copy. A copy is another run, so that it cannot
/// take what the original has on servers for its own.
pub(crate) fn of_run(
    database: &Connection,
    directory: &RunDirectory,
) -> Result<RunIdentity, ResultsError> {
    let path = directory.path();
    let stored =
        read(database).map_err(|source| database_error(path, "reading the run", source))?;
    let identity = match &stored {
        Some(stored) if !is_copy(directory, stored) => located(stored.id.clone(), path),
        Some(_) | None => create(path)?,
    };
    if stored.as_ref() != Some(&identity) {
        set_meta(database, KEY, &json(&identity))
            .map_err(|source| database_error(path, "storing the run's identity", source))?;
    }
    Ok(identity)
}

/// The stored identity; `None` for a run that was published without one.
pub(crate) fn read(database: &Connection) -> rusqlite::Result<Option<RunIdentity>> {
    Ok(meta(database, KEY)?.and_then(|text| serde_json::from_str(&text).ok()))
}

/// Whether the run with the stored identity is still where it was, in another file than this one.
fn is_copy(directory: &RunDirectory, stored: &RunIdentity) -> bool {
    let file = |directory: &RunDirectory| {
        fs::metadata(directory.database()).map(|metadata| (metadata.dev(), metadata.ino()))
    };
    match (file(directory), file(&RunDirectory::at(stored.directory()))) {
        (Ok(here), Ok(there)) if here != there => {
            let other = RunReader::open(stored.directory()).and_then(|run| run.identity());
            let id_there = other.map(|other| other.map(|other| other.id));
            // A run that cannot be read may be the original.
            id_there.map_or(true, |id| id.as_ref() == Some(&stored.id))
        }
        _ => false,
    }
}

/// The run with this id, on this host, in this directory.
fn located(id: RunId, directory: &Path) -> RunIdentity {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let directory = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    RunIdentity::new(id, host.trim(), &directory.to_string_lossy())
}

/// A new random number.
///
/// # Errors
/// The system's source of random numbers cannot be read.
pub fn new_run_id() -> Result<RunId, ResultsError> {
    const SOURCE: &str = "/dev/urandom";
    let read = || -> io::Result<[u8; 16]> {
        let mut bytes = [0; 16];
        File::open(SOURCE)?.read_exact(&mut bytes)?;
        Ok(bytes)
    };
    let failed = |source| ResultsError::Io { path: SOURCE.into(), source };
    Ok(RunId::from_random(read().map_err(failed)?))
}
