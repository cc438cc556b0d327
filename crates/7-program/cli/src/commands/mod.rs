//! The commands.

mod audit;
mod bisect;
mod builds;
mod check;
mod clean;
mod compare;
mod doctor;
mod export_file;
mod fleet;
mod gate;
mod hidden;
mod history;
mod list;
mod live;
mod report;
mod run;

pub use audit::audit;
pub use bisect::bisect;
pub use builds::builds;
pub use check::check;
pub use clean::clean;
pub use compare::compare;
pub use doctor::doctor;
pub use fleet::fleet;
pub use hidden::{agent, completions, man, worker};
pub use history::history;
pub use list::list;
pub use live::live;
pub use report::{import, report};
pub use run::run;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dbdyno_run::WorkerProgram;
use dbdyno_spec::experiment::Experiment;
use dbdyno_spec::parse_with_files;
use jiff::{Timestamp, Zoned};

use crate::error::CliError;
use crate::output;

/// Reads an experiment file; also returns its text.
fn read_experiment(file: &Path) -> Result<(Experiment, String), CliError> {
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
fn worker_program() -> Result<WorkerProgram, CliError> {
    Ok(WorkerProgram { program: own_program()?, args: vec!["worker".into()] })
}

/// The path of this program.
pub(crate) fn own_program() -> Result<PathBuf, CliError> {
    // Resolved by the kernel: a new version may be installed over this one while it runs.
    let program = PathBuf::from("/proc/self/exe");
    program.read_link().map_err(|source| CliError::Read { path: program, source })
}

/// Exit code after Ctrl-C, as in shells: 128 + SIGINT.
const INTERRUPTED: u8 = 130;

/// Returns a flag that SIGINT, SIGTERM and SIGHUP set; they also print `message`. A second signal
/// exits immediately.
pub(crate) fn stop_on_signals(message: &'static str) -> Result<Arc<AtomicBool>, CliError> {
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
fn directory_for(name: &str) -> PathBuf {
    let now = Zoned::now().strftime("%Y%m%d-%H%M%S");
    PathBuf::from(format!("results/{name}-{now}"))
}

/// The current time in RFC 3339.
fn now() -> String {
    Timestamp::now().round(jiff::Unit::Second).unwrap_or_default().to_string()
}
