//! How a benchmark ends.

use std::io::{Write, stderr};
use std::process::ExitCode;

/// What a benchmark came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The goal is met.
    Met,
    /// It is not; the text says by what.
    Missed(String),
}

impl Outcome {
    /// Met where `met` is true; else missed, for the reason that `why` gives.
    pub fn of(met: bool, why: impl FnOnce() -> String) -> Self {
        if met { Self::Met } else { Self::Missed(why()) }
    }
}

/// Exit code when the benchmark could not be run.
const NOT_MEASURED: u8 = 2;

/// The exit code of a benchmark: 0 when its goal is met, 1 when it is missed, 2 when nothing could
/// be said. The last two come with a message.
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
