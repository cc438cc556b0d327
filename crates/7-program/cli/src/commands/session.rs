//! What commands share: experiments, the execution of runs, the worker program, signals, and the names of
//! run directories.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dbdyno_machine::clock::process_cpu;
use dbdyno_profile::{Layers, LayersError};
use dbdyno_report::model::Report;
use dbdyno_results::{ResultsError, RunReader, Warning};
use dbdyno_run::{Options, Outcome, RunError, RunEvent, WorkerProgram};
use dbdyno_scripts::text_of;
use dbdyno_spec::experiment::{Experiment, LayerRules, System};
use dbdyno_spec::parse_with_files;
use dbdyno_units::Nanos;
use jiff::{Timestamp, Zoned};

use crate::args::View;
use crate::commands::clean::note_stored_data;
use crate::commands::report;
use crate::error::CliError;
use crate::output::{self, Display};

/// Reads an experiment file; also returns its text.
pub fn read_experiment(file: &Path) -> Result<(Experiment, String), CliError> {
    if file.is_dir() {
        let (file, run) = (file.display(), "continue a run with `dbdyno run --resume DIR`");
        return Err(CliError::usage(format!(
            "{file} is a directory: name an experiment file, or {run}"
        )));
    }
    let text = std::fs::read_to_string(file).map_err(CliError::read(file))?;
    let directory = file.parent().unwrap_or(Path::new(""));
    let _limit = ScriptLimit::start();
    let read_file = |name: &str| read_file(&directory.join(name));
    let experiment = parse_with_files(&file.display().to_string(), &text, &read_file)
        .map_err(|problems| CliError::Experiment(problems.to_string()))?;
    check_layers(&experiment)?;
    note_left_out(&experiment);
    Ok((experiment, text))
}

/// Refuses rules for layers that cannot be read.
fn check_layers(experiment: &Experiment) -> Result<(), CliError> {
    let own = experiment.profile.as_ref().and_then(|profile| profile.layers.as_ref());
    let Some(LayerRules { file, rules }) = own else { return Ok(()) };
    Layers::check(rules)
        .map_err(|LayersError { line, why }| CliError::Usage(format!("{file}:{line}: {why}")))
}

/// The text of a file, in any encoding if it is a script; of a path that ends in `/`, the names in the directory, one
/// per line.
pub fn read_file(path: &Path) -> Result<String, String> {
    let read = match path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        false if path.extension().is_some_and(|extension| extension == "lua") => {
            std::fs::read(path).map(|bytes| text_of(&bytes))
        }
        false => std::fs::read_to_string(path),
        true => std::fs::read_dir(path).and_then(|entries| {
            let name = |entry: std::io::Result<std::fs::DirEntry>| {
                Ok(format!("{}\n", entry?.file_name().to_string_lossy()))
            };
            entries.map(name).collect()
        }),
    };
    read.map_err(|error| format!("reading {}: {error}", path.display()))
}

/// Prints what candidates do not have of their option files.
pub fn note_left_out(experiment: &Experiment) {
    let mut seen = Vec::new();
    for candidate in &experiment.candidates {
        let System::Private(server) = &candidate.system else { continue };
        for options in server.options.iter().filter(|one| one.left_out_text().is_some()) {
            if !seen.contains(&options) {
                let left_out = options.left_out_text().unwrap_or_default();
                output::note(&format!("left out of {}: {left_out}", options.name()));
                seen.push(options);
            }
        }
    }
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

/// The path of the running program. If a new version was installed over it, which may not understand this one, it is
/// the kernel's link to the old file.
pub fn own_program() -> Result<PathBuf, CliError> {
    existing_target(Path::new("/proc/self/exe"))
}

fn existing_target(link: &Path) -> Result<PathBuf, CliError> {
    match link.read_link() {
        Ok(program) if program.exists() => Ok(program),
        Ok(_) => Ok(link.to_owned()),
        Err(source) => Err(CliError::Read { path: link.to_owned(), source }),
    }
}

/// CPU time of scripts outside of a run, where they are only loaded and their statements listed.
const SCRIPT_TIME: Nanos = Nanos::from_secs(60);

/// Limits the CPU time of scripts until this is dropped: ends the program, because only some of what a script does can
/// be interrupted.
pub struct ScriptLimit(Arc<AtomicBool>);

impl ScriptLimit {
    pub fn start() -> Self {
        Self::of(SCRIPT_TIME)
    }

    fn of(time: Nanos) -> Self {
        let has_ended = Arc::new(AtomicBool::new(false));
        let (flag, end) = (Arc::clone(&has_ended), process_cpu() + time);
        std::thread::spawn(move || {
            while !flag.load(Ordering::Relaxed) {
                if process_cpu() > end {
                    output::note(&format!(
                        "error: the script takes more than {time} of CPU time: an endless loop?"
                    ));
                    output::exit_immediately(2);
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        Self(has_ended)
    }
}

impl Drop for ScriptLimit {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Exit code after Ctrl-C, as in shells: 128 + SIGINT.
pub const INTERRUPTED: u8 = 130;

/// Signals that follow the first one so soon are the same request: `timeout` sends one to the program, and one to its
/// process group.
const SAME_REQUEST: Duration = Duration::from_millis(500);

/// Returns a flag that SIGINT, SIGTERM and SIGHUP set; they also print `message`. A second request
/// exits immediately.
pub fn stop_on_signals(message: &'static str) -> Result<Arc<AtomicBool>, CliError> {
    let cancel = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&cancel);
    let mut first = None;
    ctrlc::set_handler(move || match first {
        Some(at) if is_same_request(at, Instant::now()) => {}
        Some(_) => output::exit_immediately(INTERRUPTED),
        None => {
            first = Some(Instant::now());
            flag.store(true, Ordering::Relaxed);
            output::note(&format!("{message}; repeat to stop immediately"));
        }
    })
    .map_err(|error| CliError::Other(format!("handling Ctrl-C: {error}")))?;
    Ok(cancel)
}

fn is_same_request(first: Instant, now: Instant) -> bool {
    now.saturating_duration_since(first) < SAME_REQUEST
}

pub fn directory_for(name: &str) -> PathBuf {
    let now = Zoned::now().strftime("%Y%m%d-%H%M%S");
    PathBuf::from(format!("results/{name}-{now}"))
}

pub fn now() -> String {
    Timestamp::now().round(jiff::Unit::Second).unwrap_or_default().to_string()
}

/// How much of a report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The answer to a question in one line, on one screen.
    Answer,
    /// Of an insert benchmark its answer.
    Report,
    /// Also the costs of each microbenchmark.
    Details,
}

pub struct Execution<'a> {
    pub directory: &'a Path,
    pub cache: Option<&'a Path>,
    pub keep_data: bool,
    /// Whether to resume the run of somebody else.
    pub trust: bool,
    pub view: View,
    pub extent: Extent,
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
        after: &dyn Fn(&Report, &Outcome) -> Result<ExitCode, CliError>,
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
            Err(error) => return Err(failed(error, self.directory, (self.view, self.extent))),
        };
        let report = report::show(self.directory, self.view, self.extent)?;
        if self.keep_data && matches!(outcome, Outcome::Complete { .. }) {
            note_stored_data(self.directory, "because of --keep-data");
        }
        let judged = after(&report, &outcome)?;
        Ok(match outcome {
            Outcome::Complete { failures } => {
                if failures > 0 {
                    output::note(&format!("{failures} failures, see the report above"));
                }
                of_complete_run(failures, judged)
            }
            Outcome::Interrupted { if_resumed } => {
                let directory = self.directory.display();
                output::note(&format!("stopped; resume with: dbdyno run --resume {directory}"));
                note_if_resumed(if_resumed.as_ref());
                ExitCode::from(INTERRUPTED)
            }
        })
    }
}

/// Prints what is wrong with the results of a run if it is resumed.
pub fn note_if_resumed(warning: Option<&Warning>) {
    if let Some(Warning { what, advice }) = warning {
        output::note(&format!("warning: if it is resumed: {what}; {advice}"));
    }
}

/// The exit code of a complete run. A broken rule is certain whatever else failed, and `dbdyno report`
/// exits with its code, too.
fn of_complete_run(failures: usize, judged: ExitCode) -> ExitCode {
    if failures > 0 && judged == ExitCode::SUCCESS { ExitCode::FAILURE } else { judged }
}

/// Prints the report of what a failed run measured, if anything. Returns the failure.
fn failed(error: RunError, directory: &Path, (view, extent): (View, Extent)) -> CliError {
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
    let measured = RunReader::open(directory).and_then(|run| run.has_measured());
    if !measured.unwrap_or(false) {
        note_stored_data(directory, "for --resume if the cause is outside of the experiment");
    } else if let Err(second) = report::show(directory, view, extent) {
        output::note(&format!("cannot report what was measured: {second}"));
    }
    error.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::gate;

    #[test]
    fn replaced_program_is_reached_by_its_link() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("exe");
        std::os::unix::fs::symlink("/usr/bin/dbdyno (deleted)", &link).unwrap();
        assert_eq!(existing_target(&link).unwrap(), link);
        assert_eq!(own_program().unwrap(), std::env::current_exe().unwrap());
    }

    #[test]
    fn second_signal_of_timeout_is_no_second_request() {
        let first = Instant::now();
        assert!(is_same_request(first, first));
        assert!(is_same_request(first, first + Duration::from_millis(20)));
        assert!(!is_same_request(first, first + SAME_REQUEST));
    }

    /// In a process of its own, which ends.
    #[test]
    fn code_that_does_not_end_is_ended_with_the_reason() {
        const CHILD: &str = "DBDYNO_TEST_ENDLESS";
        if std::env::var_os(CHILD).is_some() {
            let _limit = ScriptLimit::of(Nanos::from_millis(100));
            loop {
                std::hint::spin_loop();
            }
        }
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args([
            "--exact",
            "commands::session::tests::code_that_does_not_end_is_ended_with_the_reason",
        ]);
        let output = child.arg("--nocapture").env(CHILD, "1").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("more than 100 ms of CPU time"));
    }

    #[test]
    fn broken_rule_is_not_hidden_by_a_failure() {
        let broken = ExitCode::from(gate::BROKEN);
        assert_eq!(of_complete_run(0, broken), broken);
        assert_eq!(of_complete_run(2, broken), broken);
        assert_eq!(of_complete_run(2, ExitCode::SUCCESS), ExitCode::FAILURE);
        assert_eq!(of_complete_run(0, ExitCode::SUCCESS), ExitCode::SUCCESS);
    }
}
