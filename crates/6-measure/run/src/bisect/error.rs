use std::io;
use std::path::PathBuf;

use dbdyno_builds::{CacheDirError, HistoryError};
use dbdyno_results::ResultsError;

use crate::error::RunError;

/// Why a bisect ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum BisectError {
    /// Building or measuring a step failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// There is no range of commits.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The experiment cannot be bisected.
    #[error("{0}")]
    Unsuitable(String),
    /// The directory holds a run.
    #[error("{} holds a run: choose another directory with --out", path.display())]
    HoldsRun {
        /// The directory.
        path: PathBuf,
    },
    #[error(
        "{} holds another bisect: {why}. Choose another directory with --out", path.display()
    )]
    Other {
        /// The directory.
        path: PathBuf,
        /// How it differs.
        why: String,
    },
    /// Another process uses the directory.
    #[error("{} is in use by another dbdyno; wait for it, or stop it", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// Good, bad or the control failed, so there is nothing to compare with.
    #[error(
        "{candidate} failed at {at}: {reason}. Fix the cause and choose another directory with \
         --out"
    )]
    Failed {
        candidate: String,
        /// The stage or microbenchmark.
        at: String,
        /// Why it failed.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl BisectError {
    /// Whether the request is invalid, as opposed to a failure.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        match self {
            Self::Unsuitable(_) | Self::HoldsRun { .. } | Self::Other { .. } => true,
            Self::History(error) => !matches!(error, HistoryError::Fetch(_)),
            Self::Run(_) | Self::InUse { .. } | Self::Failed { .. } | Self::Io { .. } => false,
        }
    }
}

impl From<ResultsError> for BisectError {
    fn from(error: ResultsError) -> Self {
        Self::Run(error.into())
    }
}

impl From<CacheDirError> for BisectError {
    fn from(error: CacheDirError) -> Self {
        Self::Run(error.into())
    }
}
