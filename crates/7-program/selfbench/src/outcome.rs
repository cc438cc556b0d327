//! Results and exit codes of benchmarks.

use std::io::{Write, stderr};
use std::process::ExitCode;

/// Whether a benchmark met its goal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The goal is met.
    Met,
    /// The goal is missed, with the reason.
    Missed(String),
}

impl Outcome {
    /// [`Outcome::Met`] if `met`, else [`Outcome::Missed`] with the reason from `why`.
    pub fn of(met: bool, why: impl FnOnce() -> String) -> Self {
        if met { Self::Met } else { Self::Missed(why()) }
    }
}

/// Exit code if the benchmark could not be run.
const NOT_MEASURED: u8 = 2;

/// The exit code of a benchmark: 0 if its goal is met, 1 if it is missed, 2 if it could not be run.
/// Prints a message for the last two.
#[must_use]
pub fn exit_code(result: anyhow::Result<Outcome>) -> ExitCode {
    let (message, code) = match result {
        Ok(Outcome::Met) => return ExitCode::SUCCESS,
        Ok(Outcome::Missed(why)) => (format!("goal missed: {why}"), ExitCode::FAILURE),
        Err(error) => (format!("not measured: {error:#}"), ExitCode::from(NOT_MEASURED)),
    };
    let _ = writeln!(stderr(), "{message}");
    code
}
