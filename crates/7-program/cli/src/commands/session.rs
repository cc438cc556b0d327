//! What commands share: experiments, the execution of runs, the worker program, signals, and the names of
//! run directories.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum as _;
use dbdyno_machine::clock::process_cpu;
use dbdyno_profile::{Layers, LayersError};
use dbdyno_report::model::{Report, RunStatus};
use dbdyno_report::{export, markdown};
use dbdyno_results::{ResultsError, RunReader, Warning};
use dbdyno_run::{Options, Outcome, RunError, RunEvent, WorkerProgram};
use dbdyno_scripts::text_of;
use dbdyno_spec::experiment::{Experiment, LayerRules, System};
use dbdyno_spec::parse_with_files;
use dbdyno_units::{Nanos, counted, shell_quoted};
use dbdyno_worker::STOP_TIME;
use jiff::{Timestamp, Zoned};

use crate::args::{SessionOptions, When};
use crate::commands::clean::note_stored_data;
use crate::commands::report::{self, files_of};
use crate::commands::{export_file, gate};
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
    let cancel = Arc::default();
    Ok(WorkerProgram { program: own_program()?, args: vec!["worker".into()], cancel })
}

/// The options of work that keeps no data and compiles into the default build cache.
pub fn options<'a>(
    cancel: Arc<AtomicBool>,
    progress: &'a (dyn Fn(RunEvent<'_>) + Sync),
) -> Result<Options<'a>, CliError> {
    Ok(Options {
        worker: WorkerProgram { cancel, ..worker_program()? },
        cache: None,
        keep_data: false,
        trust: false,
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
    let program = link.read_link().map_err(CliError::read(link))?;
    Ok(if program.exists() { program } else { link.to_owned() })
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
pub fn stop_on_signals(message: impl Into<String>) -> Result<Arc<AtomicBool>, CliError> {
    let message = message.into();
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

/// As [`stop_on_signals`], for runs.
pub fn stop_run_on_signals() -> Result<Arc<AtomicBool>, CliError> {
    stop_on_signals(format!(
        "stopping after the current slice or stage; what takes {STOP_TIME} longer than a slice is ended"
    ))
}

fn is_same_request(first: Instant, now: Instant) -> bool {
    now.saturating_duration_since(first) < SAME_REQUEST
}

/// The directory that was asked for, or else a new one of this name.
pub fn directory_or(asked: Option<&Path>, name: &str) -> PathBuf {
    let now = || Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
    asked.map_or_else(|| PathBuf::from(format!("results/{name}-{}", now())), Path::to_owned)
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
    pub options: &'a SessionOptions,
    /// Whether to resume the run of somebody else.
    pub trust: bool,
    /// What is printed without `--details`.
    pub extent: Extent,
    pub display: Display,
    /// By how much a complete run is extended.
    pub more: Option<Nanos>,
}

/// Why data is there that is not needed any more.
const KEEP_DATA: &str = "because of --keep-data";

/// A session of a run.
pub type Work<'a> = dyn Fn(&Options<'_>) -> Result<Outcome, RunError> + 'a;

impl Execution<'_> {
    /// Executes a session, prints and exports the report, and judges a complete run by the rules of `--fail-if`.
    pub fn execute(self, work: &Work<'_>) -> Result<ExitCode, CliError> {
        let cancel = stop_run_on_signals()?;
        let progress = |event: RunEvent<'_>| self.display.show(&event);
        let outcome = work(&Options {
            cache: self.options.cache.clone(),
            keep_data: self.options.keep_data,
            trust: self.trust,
            ..options(cancel, &progress)?
        });
        self.display.finish();
        if matches!(outcome, Err(RunError::Interrupted)) {
            // Before there is a run that could be resumed.
            output::note("stopped");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        let outcome = outcome.map_err(|error| self.failed(error))?;
        let report = self.show()?;
        if self.options.keep_data && matches!(outcome, Outcome::Complete { .. }) {
            note_stored_data(self.directory, KEEP_DATA);
        }
        let text = match outcome {
            Outcome::Complete { .. } => gate::text(&self.options.gate, &report),
            Outcome::Interrupted { .. } => markdown::render(&report),
        };
        let [json, csv, markdown] = self.options.exports();
        let exported = export_file::write_all(
            &(&report, text),
            [
                (json, |(report, _)| export::run_json(report)),
                (csv, |(report, _)| Ok(export::relative_csv(report))),
                (markdown, |(_, text)| Ok(text.clone())),
            ],
        );
        let code = match outcome {
            Outcome::Complete { failures } => {
                let files = files_of(self.directory, None)?;
                let judged = match gate::judge(&self.options.gate, &report, files.as_ref()) {
                    Ok(judged) => judged,
                    Err(error) => {
                        exported.unwrap_or_else(|first| output::note(&first.to_string()));
                        return Err(error);
                    }
                };
                if failures > 0 {
                    let failures = counted(failures as u64, "failure");
                    output::note(&format!("{failures}, see the report above"));
                }
                of_complete_run(failures, judged)
            }
            Outcome::Interrupted { if_resumed } => {
                // An extension that has not begun is not stored.
                let more = self.more.filter(|_| report.status == RunStatus::Complete);
                output::note(&format!("stopped; resume with: {}", self.resume_command(more)));
                note_if_resumed(if_resumed.as_ref());
                ExitCode::from(INTERRUPTED)
            }
        };
        match exported {
            // Continuous integration must learn that first.
            Err(error) if code == ExitCode::from(gate::BROKEN) => output::note(&error.to_string()),
            exported => exported?,
        }
        Ok(code)
    }

    fn show(&self) -> Result<Report, CliError> {
        let SessionOptions { details, view, .. } = *self.options;
        report::show(self.directory, view, if details { Extent::Details } else { self.extent })
    }

    /// The command that resumes the run with the same options, and extends it.
    fn resume_command(&self, more: Option<Nanos>) -> String {
        let (options, view) = (self.options, self.options.view);
        // Files of this process only, such as a shell's `>(…)`, are left out.
        let path = |path: Option<&Path>| {
            let path = path.filter(|path| !path.starts_with("/dev/fd"))?;
            Some(path.to_string_lossy().into_owned())
        };
        let color = view.color.to_possible_value().filter(|_| view.color != When::Auto);
        let mut words = vec![
            ("--resume", path(Some(self.directory))),
            ("--more", more.map(|more| format!("{}ms", more.as_nanos() / 1_000_000))),
            ("--cache", path(options.cache.as_deref())),
            ("--export-json", path(options.export_json.as_deref())),
            ("--export-csv", path(options.export_csv.as_deref())),
            ("--export-markdown", path(options.export_markdown.as_deref())),
            ("--color", color.map(|color| color.get_name().to_owned())),
        ];
        words.extend(options.gate.rules.iter().map(|rule| ("--fail-if", Some(rule.to_string()))));
        let flags = [
            ("--trust", self.trust),
            ("--keep-data", options.keep_data),
            ("--strict", options.gate.strict),
            ("--details", options.details),
            ("--three-groups", view.three_groups),
        ];
        let mut command = "dbdyno run".to_owned();
        for (name, value) in words.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            command.push_str(&format!(" {name}={}", shell_quoted(&value)));
        }
        command.extend(flags.into_iter().filter(|flag| flag.1).map(|flag| format!(" {}", flag.0)));
        command
    }

    /// Prints the report of what a failed run measured, if anything. Returns the failure.
    fn failed(&self, error: RunError) -> CliError {
        // The directory is that of another run, or nothing was done in it.
        if matches!(
            error,
            RunError::NotRegistered { .. }
                | RunError::Refused(_)
                | RunError::Interrupted
                | RunError::Results(ResultsError::Exists(_) | ResultsError::InUse { .. })
        ) {
            return error.into();
        }
        let measured = RunReader::open(self.directory).and_then(|run| run.has_measured());
        if !measured.unwrap_or(false) {
            let why = match self.options.keep_data {
                true => KEEP_DATA,
                false => "for --resume if the cause is outside the experiment",
            };
            note_stored_data(self.directory, why);
        } else if let Err(second) = self.show() {
            output::note(&format!("cannot report what was measured: {second}"));
        }
        if let Err(second) = gate::write_failure(&self.options.gate, self.directory, &error) {
            output::note(&format!("cannot report the failure: {second}"));
        }
        error.into()
    }
}

/// Says how to continue what was stopped and is continued by its own command. Returns the exit code.
pub fn stopped_in(directory: &Path) -> ExitCode {
    let directory = directory.display();
    output::note(&format!("stopped; continue with the same command and --out {directory}"));
    ExitCode::from(INTERRUPTED)
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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use clap::Parser as _;

    use super::*;
    use crate::args::{Arguments, Command as Given, Run};

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
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args([
            "--exact",
            "commands::session::tests::code_that_does_not_end_is_ended_with_the_reason",
        ]);
        let output = child.arg("--nocapture").env(CHILD, "1").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("more than 100 ms of CPU time"));
    }

    fn run_of(words: impl IntoIterator<Item = String>) -> Run {
        match Arguments::try_parse_from(words).unwrap().command {
            Given::Run(run) => run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn command_that_resumes_has_all_options_of_the_session() {
        let words = [
            "dbdyno",
            "run",
            "--resume",
            "it's results",
            "--more=10min",
            "--cache=/a b",
            "--export-json=all $.json",
            "--export-csv=all.csv",
            "--export-markdown=/dev/stdout",
            "--color=never",
            "--fail-if=slower 5%",
            "--fail-if=worse 2% in writes",
            "--trust",
            "--keep-data",
            "--strict",
            "--details",
            "--three-groups",
        ];
        for count in [4, 5, words.len()] {
            let given = run_of(words[..count].iter().map(|&word| word.to_owned()));
            let execution = Execution {
                directory: given.resume.as_deref().unwrap(),
                options: &given.session,
                trust: given.trust,
                extent: Extent::Report,
                display: Display::new(),
                more: given.more,
            };
            let command = execution.resume_command(given.more);
            let print = format!("printf '%s\\n' {command}");
            let output = Command::new("sh").args(["-c", &print]).output().unwrap();
            let words = String::from_utf8(output.stdout).unwrap();
            let resumed = run_of(words.lines().map(str::to_owned));
            assert_eq!(format!("{resumed:?}"), format!("{given:?}"), "{command}");
        }
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
