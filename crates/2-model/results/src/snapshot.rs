//! A copy of a run's database while it is being written.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use crate::directory::RunDirectory;
use crate::error::ResultsError;
use crate::writer::database_error;

/// Writes a copy of the run in `directory` to the file `to`, which is replaced when the copy is complete
/// and stored. The copy has all slices that are committed. Only for runs of this user: see
/// [`RunDirectory::check_own`].
///
/// # Errors
/// The run cannot be read, or the file cannot be written.
pub fn snapshot(directory: &Path, to: &Path) -> Result<(), ResultsError> {
    let mut new = to.as_os_str().to_owned();
    new.push(".new");
    let new = Path::new(&new);
    let io = |source| ResultsError::writing(to.to_owned(), source);
    let remove = || match fs::remove_file(new) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(io(error)),
        _ => Ok(()),
    };
    remove()?;
    let run = RunDirectory::at(directory);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let copied = Connection::open_with_flags(run.database(), flags).and_then(|database| {
        database.busy_timeout(std::time::Duration::from_secs(10))?;
        database.execute("VACUUM INTO ?1", [new.to_string_lossy()])
    });
    let stored = copied
        .map_err(|source| database_error(directory, "copying the run", source))
        .and_then(|_| File::open(new).and_then(|file| file.sync_all()).map_err(io))
        .and_then(|()| fs::rename(new, to).map_err(io));
    if stored.is_err() {
        // The error is more useful than that of removing it.
        let _ = fs::remove_file(new);
    }
    stored
}
