//! The directory of a bisect: its record, and a run directory for each step.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dbdyno_results::RunDirectory;
use rustix::fs::OFlags;

use super::error::BisectError;
use super::record::{BisectRecord, FORMAT, RequestRecord};

/// The record, which is replaced after each step.
const RECORD: &str = "bisect.json";

/// The file that the process locks.
const LOCK: &str = "bisect.lock";

/// The directory of a bisect, locked for this process.
pub(crate) struct BisectDirectory {
    path: PathBuf,
    _lock: File,
}

impl BisectDirectory {
    /// Creates the directory, or opens an existing one, and locks it.
    pub fn open(path: &Path) -> Result<Self, BisectError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| BisectError::Io { path, source }
        };
        // Data under test must be private.
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed(path))?;
        let directory = RunDirectory::at(path);
        directory.check_own()?;
        if directory.database().exists() {
            return Err(BisectError::HoldsRun { path: path.to_owned() });
        }
        let file = path.join(LOCK);
        let lock = open_own(&file, true).map_err(failed(&file))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(BisectError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(BisectError::Io { path: file, source }),
        }
    }

    /// Whether there is a bisect in a directory.
    pub fn exists(path: &Path) -> bool {
        path.join(RECORD).exists()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The record of the same bisect.
    pub fn read(&self, request: &RequestRecord) -> Result<BisectRecord, BisectError> {
        let path = self.path.join(RECORD);
        let io = |source| BisectError::Io { path: path.clone(), source };
        let text = open_own(&path, false).and_then(io::read_to_string).map_err(io)?;
        let other = |why: String| BisectError::Other { path: self.path.clone(), why };
        let record: BisectRecord = serde_json::from_str(&text)
            .map_err(|error| other(format!("{RECORD} cannot be read: {error}")))?;
        if record.format != FORMAT {
            return Err(other(format!("{RECORD} has format {}", record.format)));
        }
        if record.request != *request {
            return Err(other(format!(
                "it was started for {} to {} of {}, with another experiment or other options",
                record.request.good, record.request.bad, record.repository
            )));
        }
        Ok(record)
    }

    /// Replaces the record; after a kill there is the old or the new one.
    pub fn write(&self, record: &BisectRecord) -> Result<(), BisectError> {
        let (path, new) = (self.path.join(RECORD), self.path.join(format!("{RECORD}.new")));
        let write = || {
            let text = serde_json::to_string_pretty(record).map_err(io::Error::other)?;
            match fs::remove_file(&new) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = File::options().write(true).create_new(true).open(&new)?;
            io::Write::write_all(&mut file, text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)
        };
        write().map_err(|source| BisectError::Io { path: path.clone(), source })
    }
}

/// Opens a file without following a link of its name.
fn open_own(path: &Path, create: bool) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    if create {
        options.write(true).create(true).truncate(false);
    }
    options.open(path)
}
