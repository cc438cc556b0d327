//! Errors of commands, and their exit codes.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use dbdyno_audit::AuditError;
use dbdyno_builds::CacheDirError;
use dbdyno_fleet::{ClusterError, FleetError, PlanError, StoreError, TaskError};
use dbdyno_import::ImportError;
use dbdyno_live::LiveError;
use dbdyno_report::export::ExportError;
use dbdyno_results::ResultsError;
use dbdyno_run::{BisectError, RunError};

#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The experiment has problems, already formatted with their positions.
    #[error("{0}")]
    Experiment(String),
    #[error("error: {0}")]
    Usage(String),
    #[error("error: {0}")]
    Other(String),
}

impl CliError {
    pub fn usage(message: impl ToString) -> Self {
        Self::Usage(message.to_string())
    }

    pub fn other(message: impl ToString) -> Self {
        Self::Other(message.to_string())
    }

    /// The error for an input that could not be read.
    pub fn read(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Usage(format!("{}: {source}", path.display()))
    }

    /// The error for a file that could not be written.
    pub fn write(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Other(format!("writing {}: {source}", path.display()))
    }

    /// 2 for invalid usage or input, 1 for a failure.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(if self.is_usage() { 2 } else { 1 })
    }

    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Experiment(_) | Self::Usage(_))
    }
}

/// Converts errors of other crates: those for which the condition holds are invalid usage or input.
macro_rules! convert {
    ($($error:ident if $is_usage:expr;)+) => {$(
        impl From<$error> for CliError {
            fn from(error: $error) -> Self {
                let is_usage: fn(&$error) -> bool = $is_usage;
                if is_usage(&error) { Self::usage(error) } else { Self::other(error) }
            }
        }
    )+};
}

convert! {
    RunError if |error| match error {
        RunError::Results(error) => names_wrong_directory(error),
        RunError::Cpus { .. } | RunError::Cache(_) | RunError::NotRegistered { .. } => true,
        _ => false,
    };
    ResultsError if names_wrong_directory;
    ExportError if |_| false;
    ImportError if |error| !matches!(error, ImportError::Results(_));
    AuditError if |error| !error.is_damaged;
    CacheDirError if |_| true;
    FleetError if |error| matches!(error, FleetError::NoFleet { .. } | FleetError::Exists { .. });
    // Nodes may come back.
    PlanError if |error| !matches!(error, PlanError::TooFewNodes { .. });
    ClusterError if |error| matches!(error, ClusterError::Unknown(_));
    StoreError if |_| false;
    TaskError if |_| false;
    LiveError if |_| false;
}

impl From<BisectError> for CliError {
    fn from(error: BisectError) -> Self {
        match error {
            BisectError::Run(error) => error.into(),
            error if error.is_usage() => Self::usage(error),
            error => Self::other(error),
        }
    }
}

fn names_wrong_directory(error: &ResultsError) -> bool {
    matches!(error, ResultsError::NotARun { .. } | ResultsError::Exists(_))
}
