//! `dbdyno run`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use dbdyno_engines::server::Installation;
use dbdyno_report::model::Report;
use dbdyno_results::{ResultsError, RunReader};
use dbdyno_run::{Options, Outcome, RunError, continue_run, extend_run, start_run};
use dbdyno_types::server::ServerSystem;

use crate::args::{Run, View};
use crate::commands::clean::{TO_RESUME, note_stored_data};
use crate::commands::compare::Comparison;
use crate::commands::{
    INTERRUPTED, directory_for, gate, now, read_experiment, report, stop_on_signals, worker_program,
};
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

/// Runs or resumes an experiment, and reports.
pub fn run(args: &Run) -> Result<ExitCode, CliError> {
    refuse_without_effect(args)?;
    if args.comparison.script.is_some() {
        return run_script(args);
    }
    let execute = |directory: &Path, work: &Work<'_>| {
        let execution = Execution {
            directory,
            cache: args.cache.as_deref(),
            keep_data: args.keep_data,
            trust: args.trust,
            view: args.view,
            display: Display::with_first_ratio(),
        };
        execution.execute(work, &|report, outcome| match outcome {
            Outcome::Complete { .. } => gate::judge(&args.gate.rules, report, directory),
            Outcome::Interrupted => Ok(ExitCode::SUCCESS),
        })
    };
    if let Some(directory) = &args.resume {
        if !args.gate.rules.is_empty() {
            gate::check(&args.gate.rules, &RunReader::open(directory)?.experiment()?)?;
        }
        return execute(directory, &|options| match args.more {
            Some(more) => extend_run(directory, more, options),
            None => continue_run(directory, options),
        });
    }
    let [file] = &args.words[..] else {
        return Err(CliError::Usage("name one experiment file".to_owned()));
    };
    let (experiment, text) = read_experiment(file)?;
    gate::check(&args.gate.rules, &experiment)?;
    let directory = args.out.clone().unwrap_or_else(|| directory_for(&experiment.name));
    execute(&directory, &|options| start_run(&experiment, &text, &directory, options))
}

/// Refuses what would be ignored. clap's `requires` has no effect on options that are given together with what
/// conflicts with the required one.
fn refuse_without_effect(args: &Run) -> Result<(), CliError> {
    let of_script = args.comparison.of_script().or_else(|| args.comparison.given());
    let message = if args.resume.is_none() && args.more.is_some() {
        "--more extends a complete run: dbdyno run --resume DIR --more TIME".to_owned()
    } else if args.resume.is_none() && args.trust {
        "--trust is for runs that are resumed: dbdyno run --resume DIR --trust".to_owned()
    } else if let Some(option) = of_script.filter(|_| args.comparison.script.is_none()) {
        format!("{option} needs --script; an experiment file has keys for it")
    } else {
        return Ok(());
    };
    Err(CliError::Usage(message))
}

/// Measures a script without an experiment file.
fn run_script(args: &Run) -> Result<ExitCode, CliError> {
    let word = |path: &PathBuf| {
        path.to_str().map(str::to_owned).ok_or_else(|| {
            CliError::Usage(format!("{} is not a candidate: it is not UTF-8", path.display()))
        })
    };
    let mut candidates = args.words.iter().map(word).collect::<Result<Vec<_>, _>>()?;
    if candidates.is_empty() {
        candidates = installed_servers()?;
    }
    let comparison = Comparison {
        command: "run",
        candidates: &candidates,
        microbenchmarks: &[],
        options: &args.comparison,
        rules: &args.gate.rules,
        out: args.out.as_deref(),
        cache: args.cache.as_deref(),
        keep_data: args.keep_data,
        view: args.view,
    };
    comparison.run(&|_| Ok(()))
}

/// The systems with a program on this machine.
fn installed_servers() -> Result<Vec<String>, CliError> {
    let is_installed = |system: &ServerSystem| Installation::find(*system, None, None).is_ok();
    let installed = ServerSystem::ALL.into_iter().filter(is_installed);
    let names: Vec<String> = installed.map(|system| system.name().to_owned()).collect();
    if names.is_empty() {
        let message = "no server is installed: install mariadb-server or postgresql, or name candidates, such as \
                       mariadb@trixie";
        return Err(CliError::Usage(message.to_owned()));
    }
    Ok(names)
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
        let progress = |event: dbdyno_run::RunEvent<'_>| self.display.show(&event);
        let outcome = work(&Options {
            worker: worker_program()?,
            cache: self.cache.map(Path::to_owned),
            keep_data: self.keep_data,
            trust: self.trust,
            cancel,
            progress: &progress,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            now: now(),
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

    #[test]
    fn broken_rule_is_not_hidden_by_a_failure() {
        let broken = ExitCode::from(gate::BROKEN);
        assert_eq!(of_complete_run(0, broken), broken);
        assert_eq!(of_complete_run(2, broken), broken);
        assert_eq!(of_complete_run(2, ExitCode::SUCCESS), ExitCode::FAILURE);
        assert_eq!(of_complete_run(0, ExitCode::SUCCESS), ExitCode::SUCCESS);
    }
}
