//! `dbdyno run`.

use std::path::Path;
use std::process::ExitCode;

use dbdyno_results::{ResultsError, RunReader};
use dbdyno_run::{Options, Outcome, RunError, continue_run, extend_run, start_run};

use crate::args::Run;
use crate::commands::{
    INTERRUPTED, directory_for, now, read_experiment, report, stop_on_signals, stored_data,
    worker_program,
};
use crate::error::CliError;
use crate::output::{self, Display};

/// Runs or resumes an experiment, and reports.
pub fn run(args: &Run) -> Result<ExitCode, CliError> {
    let cancel = stop_on_signals("stopping after this slice")?;
    let display = Display::new();
    let progress = |event: dbdyno_run::RunEvent<'_>| display.show(&event);
    let options = Options {
        worker: worker_program()?,
        cache: args.cache.clone(),
        keep_data: args.keep_data,
        trust: args.trust,
        cancel,
        progress: &progress,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        now: now(),
    };
    let (directory, outcome) = match (&args.file, &args.resume) {
        (Some(_), _) if args.more.is_some() => {
            return Err(CliError::Usage(
                "--more extends a complete run: dbdyno run --resume DIR --more TIME".to_owned(),
            ));
        }
        (Some(file), _) => {
            let (experiment, text) = read_experiment(file)?;
            let directory = args.out.clone().unwrap_or_else(|| directory_for(&experiment.name));
            let outcome = start_run(&experiment, &text, &directory, &options);
            (directory, outcome)
        }
        (None, Some(directory)) => {
            let outcome = match args.more {
                Some(more) => extend_run(directory, more, &options),
                None => continue_run(directory, &options),
            };
            (directory.clone(), outcome)
        }
        (None, None) => return Err(CliError::Usage("no experiment file given".to_owned())),
    };
    display.finish();
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => return Err(failed(error, &directory, args)),
    };
    report::show(&directory, args.view, false)?;
    if args.keep_data && matches!(outcome, Outcome::Complete { .. }) {
        stored_data::note(&directory, "because of --keep-data");
    }
    Ok(match outcome {
        Outcome::Complete { failures: 0 } => ExitCode::SUCCESS,
        Outcome::Complete { failures } => {
            output::note(&format!("{failures} failures, see the report above"));
            ExitCode::FAILURE
        }
        Outcome::Interrupted => {
            let directory = directory.display();
            output::note(&format!("stopped; resume with: dbdyno run --resume {directory}"));
            ExitCode::from(INTERRUPTED)
        }
    })
}

/// Prints the report of what a failed run measured, if anything. Returns the failure.
fn failed(error: RunError, directory: &Path, args: &Run) -> CliError {
    let measured = RunReader::open(directory)
        .and_then(|run| run.slices(0))
        .is_ok_and(|slices| !slices.is_empty());
    // The directory may be that of another run.
    let is_of_this_run = !matches!(
        error,
        RunError::NotRegistered { .. }
            | RunError::NotReplaced { .. }
            | RunError::Results(ResultsError::Exists(_) | ResultsError::InUse { .. })
    );
    if !measured {
        if is_of_this_run {
            stored_data::note(directory, stored_data::TO_RESUME);
        }
    } else if let Err(second) = report::show(directory, args.view, false) {
        output::note(&format!("cannot report what was measured: {second}"));
    }
    error.into()
}
