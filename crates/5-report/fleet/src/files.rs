//! Files on a shared file system: replaced as a whole, created once; and what attempts write in theirs.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use dbdyno_machine::safe_files::{SafeDir, replace_file};
use dbdyno_units::Bytes;
use rustix::fs::OFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::record::{JobId, Outcome};

/// A file of a fleet run could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct StoreError {
    pub path: PathBuf,
    pub source: io::Error,
}

/// An error of a file.
pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> StoreError {
    move |source| StoreError { path: path.to_owned(), source }
}

/// Replaces a file: after a kill or on a full disk there is the old or the new one.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    replace_file(path, content).map_err(at(path))
}

/// Replaces a file by a value as JSON.
pub(crate) fn replace_json(path: &Path, value: &impl Serialize) -> Result<(), StoreError> {
    let text = serde_json::to_vec_pretty(value).map_err(|error| at(path)(error.into()))?;
    replace(path, &text)
}

/// Creates a file that must not exist: of several processes on any machines, one succeeds.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    File::options().write(true).create_new(true).custom_flags(flags).open(path)
}

/// Creates an empty file, unless it exists.
pub(crate) fn touch(path: &Path) -> Result<(), StoreError> {
    match create_new(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(at(path)(error)),
        _ => Ok(()),
    }
}

/// The limit for the size of what attempts write, and for that of the record and the experiment.
pub(crate) const SMALL: Bytes = Bytes::from_mib(1);
pub(crate) const LARGE: Bytes = Bytes::from_mib(64);

/// Reads a file in a directory, which may be of another user: a regular one, without following links.
pub(crate) fn read(directory: &Path, inner: &str, limit: Bytes) -> io::Result<String> {
    let bytes = SafeDir::open(directory)?.read(Path::new(inner), limit)?;
    String::from_utf8(bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

/// Reads a value of an attempt; `None` if there is none, or it is damaged or of another version.
pub(crate) fn read_json<T: DeserializeOwned>(directory: &Path, inner: &str) -> Option<T> {
    let text = match read(directory, inner, SMALL) {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        read => read,
    };
    text.and_then(|text| Ok(serde_json::from_str(&text)?))
        .inspect_err(
            |error| tracing::warn!(directory = %directory.display(), inner, %error, "damaged file"),
        )
        .ok()
}

pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// How an attempt ended, written by the job as its last act: `result.json`. It decides, not the exit
/// code of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskResult {
    pub fleet: String,
    pub task: String,
    pub attempt: u32,
    pub node: String,
    /// How much is measured in the run beside it: see [`TaskProgress::measured`].
    pub measured: u64,
    pub end: TaskEnd,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "kebab-case")]
pub enum TaskEnd {
    /// Everything is measured, or built.
    Complete {
        /// Number of failures of candidates.
        failures: usize,
    },
    /// Builds would be of no use to the other tasks.
    Skipped { reason: String },
    /// It was told to stop, by Slurm before a time limit or by a user; it can be resumed.
    Interrupted,
    /// The run failed.
    Failed {
        reason: String,
        /// Whether another attempt may succeed: not with an invalid experiment or directory.
        retry: bool,
    },
}

impl TaskEnd {
    /// How the task ended with such an attempt; `None` if it has not.
    pub fn outcome(&self, attempt: u32) -> Option<Outcome> {
        match self {
            Self::Complete { failures } => Some(Outcome::Complete { attempt, failures: *failures }),
            Self::Skipped { reason } => Some(Outcome::Skipped { reason: reason.clone() }),
            Self::Interrupted | Self::Failed { .. } => None,
        }
    }
}

/// Which job runs an attempt, written by the job as its first act: `claim.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The job; `None` outside Slurm.
    pub job: Option<JobId>,
    pub node: String,
}

/// What an attempt does, replaced every few seconds: `progress.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskProgress {
    /// What it does, in words.
    pub doing: String,
    /// Number of slices and of steps of an insert benchmark in the copy of the run beside it, or of
    /// finished builds.
    pub measured: u64,
}

/// What the files of an attempt say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttemptFiles {
    /// The job that runs it; `None` if none has begun.
    pub claim: Option<Claim>,
    /// What it did last.
    pub progress: Option<TaskProgress>,
    /// How it ended; `None` until then.
    pub result: Option<TaskResult>,
}

impl AttemptFiles {
    /// How much is measured: see [`TaskProgress::measured`].
    pub fn measured(&self) -> u64 {
        let result = self.result.as_ref().map(|result| result.measured);
        result.or_else(|| Some(self.progress.as_ref()?.measured)).unwrap_or(0)
    }
}
