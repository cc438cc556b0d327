//! The execution of a run, for `dbdyno run` and `dbdyno compare`.

use std::path::Path;
use std::process::ExitCode;

use dbdyno_report::model::Report;
use dbdyno_results::{ResultsError, RunReader};
use dbdyno_run::{Options, Outcome, RunError, RunEvent};

use crate::args::View;
use crate::commands::clean::{TO_RESUME, note_stored_data};
use crate::commands::report;
use crate::commands::session::{INTERRUPTED, options, stop_on_signals};
use crate::error::CliError;
use crate::output::{self, Display};

/// How a run is executed and reported.
pub struct Execution<'a> {
    /// The run directory.
    pub directory: &'a Path,
    /// Build cache.
    pub cache: Option<&'a Path>,
    /// Whether to keep the databases after a complete run.
    pub keep_data: bool,
    /// Whether to resume the run of somebody else.
    pub trust: bool,
    /// How the report is printed.
    pub view: View,
    /// Shows the progress.
    pub display: Display,
}

/// A session of a run.
pub type Work<'a> = dyn Fn(&Options<'_>) -> Result<Outcome, RunError> + 'a;

impl Execution<'_> {
    /// Executes a session and prints the report. `after` gets the report, and returns what the rules of
    /// `--fail-if` say about it: the exit code of a complete run without failures.
    pub fn execute(
        self,
        work: &Work<'_>,
        after: &dyn Fn(&Report, Outcome) -> Result<ExitCode, CliError>,
    ) -> Result<ExitCode, CliError> {
        let cancel = stop_on_signals("stopping after this slice")?;
        let progress = |event: RunEvent<'_>| self.display.show(&event);
        let outcome = work(&Options {
            cache: self.cache.map(Path::to_owned),
            keep_data: self.keep_data,
            trust: self.trust,
            ..options(cancel, &progress)?
        });
        self.display.finish();
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return Err(failed(error, self.directory, self.view)),
        };
        let report = report::show(self.directory, self.view, false)?;
        if self.keep_data && matches!(outcome, Outcome::Complete { .. }) {
            note_stored_data(self.directory, "because of --keep-data");
        }
        let judged = after(&report, outcome)?;
        Ok(match outcome {
            Outcome::Complete { failures } => {
                if failures > 0 {
                    output::note(&format!("{failures} failures, see the report above"));
                }
                of_complete_run(failures, judged)
            }
            Outcome::Interrupted => {
                let directory = self.directory.display();
                output::note(&format!("stopped; resume with: dbdyno run --resume {directory}"));
                ExitCode::from(INTERRUPTED)
            }
        })
    }
}

/// The exit code of a complete run. A broken rule is certain whatever else failed, and `dbdyno report`
/// exits with its code, too.
fn of_complete_run(failures: usize, judged: ExitCode) -> ExitCode {
    if failures > 0 && judged == ExitCode::SUCCESS { ExitCode::FAILURE } else { judged }
}

/// Prints the report of what a failed run measured, if anything. Returns the failure.
fn failed(error: RunError, directory: &Path, view: View) -> CliError {
    // The directory is that of another run, or nothing was done in it.
    let is_refused = matches!(
        error,
        RunError::NotRegistered { .. }
            | RunError::Refused(_)
            | RunError::Results(ResultsError::Exists(_) | ResultsError::InUse { .. })
    );
    if is_refused {
        return error.into();
    }
    let measured = RunReader::open(directory)
        .and_then(|run| run.slices(0))
        .is_ok_and(|slices| !slices.is_empty());
    if !measured {
        note_stored_data(directory, TO_RESUME);
    } else if let Err(second) = report::show(directory, view, false) {
        output::note(&format!("cannot report what was measured: {second}"));
    }
    error.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::gate;

    #[test]
    fn broken_rule_is_not_hidden_by_a_failure() {
        let broken = ExitCode::from(gate::BROKEN);
        assert_eq!(of_complete_run(0, broken), broken);
        assert_eq!(of_complete_run(2, broken), broken);
        assert_eq!(of_complete_run(2, ExitCode::SUCCESS), ExitCode::FAILURE);
        assert_eq!(of_complete_run(0, ExitCode::SUCCESS), ExitCode::SUCCESS);
    }
}
