//! What commands share: experiments, the worker program, signals, and the names of run directories.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dbdyno_run::{Options, RunEvent, WorkerProgram};
use dbdyno_spec::experiment::Experiment;
use dbdyno_spec::parse_with_files;
use jiff::{Timestamp, Zoned};

use crate::error::CliError;
use crate::output;

/// Reads an experiment file; also returns its text.
pub fn read_experiment(file: &Path) -> Result<(Experiment, String), CliError> {
    let text = std::fs::read_to_string(file)
        .map_err(|source| CliError::Read { path: file.to_owned(), source })?;
    let directory = file.parent().unwrap_or(Path::new(""));
    let read_file = |name: &str| {
        let path = directory.join(name);
        std::fs::read_to_string(&path)
            .map_err(|error| format!("reading {}: {error}", path.display()))
    };
    let experiment = parse_with_files(&file.display().to_string(), &text, &read_file)
        .map_err(|problems| CliError::Experiment(problems.to_string()))?;
    Ok((experiment, text))
}

/// The command that starts this program as a worker.
pub fn worker_program() -> Result<WorkerProgram, CliError> {
    Ok(WorkerProgram { program: own_program()?, args: vec!["worker".into()] })
}

/// The options of work that keeps no data and compiles into the default build cache.
pub fn options<'a>(
    cancel: Arc<AtomicBool>,
    progress: &'a (dyn Fn(RunEvent<'_>) + Sync),
) -> Result<Options<'a>, CliError> {
    Ok(Options {
        worker: worker_program()?,
        cache: None,
        keep_data: false,
        trust: false,
        cancel,
        progress,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        now: now(),
    })
}

/// The path of this program.
pub fn own_program() -> Result<PathBuf, CliError> {
    // Resolved by the kernel: a new version may be installed over this one while it runs.
    let program = PathBuf::from("/proc/self/exe");
    program.read_link().map_err(|source| CliError::Read { path: program, source })
}

/// Exit code after Ctrl-C, as in shells: 128 + SIGINT.
pub const INTERRUPTED: u8 = 130;

/// Returns a flag that SIGINT, SIGTERM and SIGHUP set; they also print `message`. A second signal
/// exits immediately.
pub fn stop_on_signals(message: &'static str) -> Result<Arc<AtomicBool>, CliError> {
    let cancel = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&cancel);
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            output::exit_immediately(INTERRUPTED);
        }
        output::note(&format!("{message}; repeat to stop immediately"));
    })
    .map_err(|error| CliError::Other(format!("handling Ctrl-C: {error}")))?;
    Ok(cancel)
}

/// The default run directory.
pub fn directory_for(name: &str) -> PathBuf {
    let now = Zoned::now().strftime("%Y%m%d-%H%M%S");
    PathBuf::from(format!("results/{name}-{now}"))
}

/// The current time in RFC 3339.
pub fn now() -> String {
    Timestamp::now().round(jiff::Unit::Second).unwrap_or_default().to_string()
}
