use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dbdyno_results::RunReader;
use dbdyno_run::{Options, Outcome, RunError, continue_run, start_run};

use crate::args::Run;
use crate::commands::{directory_for, now, read_experiment, report, worker_program};
use crate::error::CliError;
use crate::output::{self, Display};

/// The shell's exit code for a program that was ended by SIGINT.
const INTERRUPTED: u8 = 130;

/// Runs an experiment, or goes on with one, and reports.
pub fn run(args: &Run) -> Result<ExitCode, CliError> {
    let cancel = stop_on_signals()?;
    let display = Display::new();
    let progress = |event: dbdyno_run::Event<'_>| display.show(&event);
    let options = Options {
        worker: worker_program()?,
        cache: args.cache.clone(),
        keep_data: args.keep_data,
        cancel,
        progress: &progress,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        now: now(),
    };
    let (directory, outcome) = match (&args.file, &args.resume) {
        (Some(file), _) => {
            let (experiment, text) = read_experiment(file)?;
            let directory = args.out.clone().unwrap_or_else(|| directory_for(&experiment.name));
            let outcome = start_run(&experiment, &text, &directory, &options);
            (directory, outcome)
        }
        (None, Some(directory)) => (directory.clone(), continue_run(directory, &options)),
        (None, None) => return Err(CliError::Usage("name an experiment file".to_owned())),
    };
    display.finish();
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => return Err(failed(error, &directory, args)),
    };
    report::show(&directory, args.view, false)?;
    Ok(match outcome {
        Outcome::Complete { failures: 0 } => ExitCode::SUCCESS,
        Outcome::Complete { failures } => {
            output::note(&format!("{failures} failures: see the report above"));
            ExitCode::FAILURE
        }
        Outcome::Interrupted => {
            let directory = directory.display();
            output::note(&format!("stopped; go on with: dbdyno run --resume {directory}"));
            ExitCode::from(INTERRUPTED)
        }
    })
}

/// What there is of a run that failed is worth showing; the failure is what counts.
fn failed(error: RunError, directory: &Path, args: &Run) -> CliError {
    let measured = RunReader::open(directory)
        .and_then(|run| run.slices(0))
        .is_ok_and(|slices| !slices.is_empty());
    if measured && let Err(second) = report::show(directory, args.view, false) {
        output::note(&format!("no report either: {second}"));
    }
    error.into()
}

/// A flag that SIGINT, SIGTERM and SIGHUP set; the second one ends the program at once.
fn stop_on_signals() -> Result<Arc<AtomicBool>, CliError> {
    let cancel = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&cancel);
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            output::end_at_once(INTERRUPTED);
        }
        output::note("stopping after this slice; once more to stop at once");
    })
    .map_err(|error| CliError::Other(format!("handling Ctrl-C: {error}")))?;
    Ok(cancel)
}
