//! Errors of commands, and their exit codes.

use std::path::PathBuf;
use std::process::ExitCode;

use dbdyno_audit::AuditError;
use dbdyno_fleet::{ClusterError, FleetError, PlanError, StoreError, TaskError};
use dbdyno_import::ImportError;
use dbdyno_report::export::ExportError;
use dbdyno_results::ResultsError;
use dbdyno_run::{BisectError, RunError};

/// An error of a command.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The experiment has problems, already formatted with their positions.
    #[error("{0}")]
    Experiment(String),
    /// The command line or an input is invalid.
    #[error("error: {0}")]
    Usage(String),
    /// A file could not be read.
    #[error("error: {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The run failed.
    #[error("error: {0}")]
    Run(#[from] RunError),
    /// A bisect ended without a result.
    #[error("error: {0}")]
    Bisect(BisectError),
    /// A run directory could not be read.
    #[error("error: {0}")]
    Results(#[from] ResultsError),
    /// A report could not be written.
    #[error("error: {0}")]
    Export(#[from] ExportError),
    /// Results could not be imported.
    #[error("error: {0}")]
    Import(#[from] ImportError),
    /// A build or a binary could not be audited.
    #[error("error: {0}")]
    Audit(#[from] AuditError),
    /// A file could not be written.
    #[error("error: writing {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// There is no directory for the build cache, or it is not trusted.
    #[error("error: {0}")]
    Cache(#[from] dbdyno_builds::CacheDirError),
    /// A live optimization failed.
    #[error("error: {0}")]
    Live(#[from] dbdyno_live::LiveError),
    /// The directory of a fleet run cannot be used.
    #[error("error: {0}")]
    Fleet(#[from] FleetError),
    /// A fleet run cannot be planned.
    #[error("error: {0}")]
    FleetPlan(#[from] PlanError),
    /// Slurm did not do what was asked.
    #[error("error: {0}")]
    Cluster(#[from] ClusterError),
    /// A file of a fleet run could not be written.
    #[error("error: {0}")]
    FleetStore(#[from] StoreError),
    /// A task of a fleet run could not begin or end.
    #[error("error: {0}")]
    FleetTask(#[from] TaskError),
    /// Any other error.
    #[error("error: {0}")]
    Other(String),
}

impl CliError {
    /// 2 for invalid usage or input, 1 for a failure.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(if self.is_usage() { 2 } else { 1 })
    }

    /// Whether the usage or an input is invalid.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Experiment(_) | Self::Usage(_) | Self::Read { .. } => true,
            Self::Results(error) | Self::Run(RunError::Results(error)) => {
                matches!(error, ResultsError::NotARun { .. } | ResultsError::Exists(_))
            }
            Self::Bisect(error) => error.is_usage(),
            Self::Cache(_)
            | Self::Run(
                RunError::Cpus { .. } | RunError::Cache(_) | RunError::NotRegistered { .. },
            ) => true,
            Self::Import(error) => !matches!(error, ImportError::Results(_)),
            Self::Audit(error) => !error.is_damaged,
            Self::Fleet(error) => {
                matches!(error, FleetError::NoFleet { .. } | FleetError::Exists { .. })
            }
            // The others may come back.
            Self::FleetPlan(error) => !matches!(error, PlanError::TooFewNodes { .. }),
            Self::Cluster(error) => matches!(error, ClusterError::Unknown(_)),
            Self::Run(_)
            | Self::FleetStore(_)
            | Self::FleetTask(_)
            | Self::Live(_)
            | Self::Export(_)
            | Self::Write { .. }
            | Self::Other(_) => false,
        }
    }
}

impl From<BisectError> for CliError {
    fn from(error: BisectError) -> Self {
        match error {
            BisectError::Run(error) => Self::Run(error),
            error => Self::Bisect(error),
        }
    }
}
