//! Runs of whole experiments inside the benchmark's own process.

use std::io::{BufReader, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, anyhow, bail};
use dbdyno_bench::worker::{WorkerError, WorkerHandle};
use dbdyno_document::parse_duration;
use dbdyno_machine::{
    CpuAssignment, CpuSet, FsRoot, IdlePreventer, IdlePreventerError, pin_current_thread,
};
use dbdyno_report::assemble::assemble;
use dbdyno_report::model::{Failure, Report};
use dbdyno_results::RunReader;
use dbdyno_run::{Options, Outcome, RunEvent, WorkerProgram, start_run};
use dbdyno_spec::experiment::Experiment;
use dbdyno_spec::parse;
use dbdyno_units::Nanos;
use jiff::Timestamp;

use crate::figures::workspace;
use crate::outcome;

/// The argument that makes a benchmark its own worker.
const WORKER: &str = "worker";

/// The `main` of a benchmark that runs experiments: a worker when it is called as one.
pub fn main(bench: impl FnOnce() -> anyhow::Result<outcome::Outcome>) -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    if args != [WORKER] {
        return outcome::exit_code(bench());
    }
    let served = dbdyno_bench::worker::serve(&mut BufReader::new(stdin()), &mut stdout());
    outcome::exit_code(served.map(|()| outcome::Outcome::Met).map_err(|error| anyhow!(error)))
}

/// A length of time on the command line, such as `600ms`.
///
/// # Errors
/// The text is no length of time.
pub fn duration(text: &str) -> Result<Nanos, String> {
    parse_duration(text).map_err(|error| format!("{error}; {}", error.help))
}

/// A flag that SIGINT, SIGTERM and SIGHUP set, so that workers and data go away in order.
///
/// # Errors
/// The system refuses the handler.
pub fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let cancel = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&cancel);
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))?;
    Ok(cancel)
}

/// An experiment of this repository.
pub struct Subject {
    /// What it says; may be changed before it is run.
    pub experiment: Experiment,
    text: String,
}

impl Subject {
    /// Reads `experiments/NAME.toml`.
    ///
    /// # Errors
    /// The file is missing or is no valid experiment.
    pub fn read(name: &str) -> anyhow::Result<Self> {
        let path = workspace().join(format!("experiments/{name}.toml"));
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("reading {}", path.display()))?;
        let experiment =
            parse(&path.display().to_string(), &text).map_err(|problems| anyhow!("{problems}"))?;
        Ok(Self { experiment, text })
    }

    /// Changes what the command line changes: the budget, and which microbenchmarks are run, by a
    /// word that is their group or a part of their name.
    ///
    /// # Errors
    /// The word selects nothing.
    pub fn adjust(&mut self, budget: Option<Nanos>, only: Option<&str>) -> anyhow::Result<()> {
        if let Some(budget) = budget {
            self.experiment.schedule.budget = budget;
        }
        if let Some(word) = only {
            let all = &mut self.experiment.workload.microbenchmarks;
            all.retain(|one| one.group.name() == word || one.name.contains(word));
            if all.is_empty() {
                bail!("no microbenchmark of the experiment has `{word}` in its name or group");
            }
        }
        Ok(())
    }
}

/// Where experiments are run.
pub struct Lab {
    cancel: Arc<AtomicBool>,
    worker: WorkerProgram,
    cpus: CpuSet,
}

impl Lab {
    /// Looks at the machine; call it once, before the first run, on the main thread.
    ///
    /// # Errors
    /// The system does not tell, or refuses the handling of signals.
    pub fn new() -> anyhow::Result<Self> {
        // Not the path that it was started by: a new build may replace that file meanwhile.
        let program = PathBuf::from("/proc/self/exe").read_link()?;
        Ok(Self {
            cancel: stop_on_signals()?,
            worker: WorkerProgram { program, args: vec![WORKER.into()] },
            cpus: CpuSet::allowed()?,
        })
    }

    /// Starts a worker, with its error output in the file `log`.
    ///
    /// # Errors
    /// The program or the log file cannot be had.
    pub fn worker(&self, log: &Path) -> Result<WorkerHandle, WorkerError> {
        let mut command = Command::new(&self.worker.program);
        WorkerHandle::start(command.args(&self.worker.args), log)
    }

    /// Keeps CPUs from sleeping, on machines where a run does so by default.
    ///
    /// # Errors
    /// This cannot be done.
    pub fn prevent_idle(
        &self,
        cpus: &CpuAssignment,
    ) -> Result<Option<IdlePreventer>, IdlePreventerError> {
        let all = cpus.system.iter().chain(cpus.dbdyno.iter()).collect();
        IdlePreventer::is_worthwhile(&FsRoot::this_machine())
            .then(|| IdlePreventer::start(&all))
            .transpose()
    }

    /// The CPUs that this process might use when it started.
    #[must_use]
    pub const fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// Fails when the user wants to stop.
    ///
    /// # Errors
    /// The user wants to stop.
    pub fn go_on(&self) -> anyhow::Result<()> {
        if self.cancel.load(Ordering::Relaxed) {
            bail!("stopped");
        }
        Ok(())
    }

    /// Runs the experiment in a directory of its own, which is gone afterwards, and reports.
    ///
    /// # Errors
    /// The run cannot start or go on, any candidate failed, or the user stopped it.
    pub fn run(
        &self,
        subject: &Subject,
        progress: &(dyn Fn(RunEvent<'_>) + Sync),
    ) -> anyhow::Result<Report> {
        // The run before has confined this thread to dbdyno's part of the machine, which would
        // be all that the next one sees.
        pin_current_thread(&self.cpus)?;
        let directory = tempfile::Builder::new().prefix("dbdyno-bench-").tempdir()?;
        let run = directory.path().join("run");
        let options = Options {
            worker: self.worker.clone(),
            cache: None,
            keep_data: false,
            cancel: Arc::clone(&self.cancel),
            progress,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            now: Timestamp::now().round(jiff::Unit::Second)?.to_string(),
        };
        match start_run(&subject.experiment, &subject.text, &run, &options)? {
            Outcome::Complete { .. } => {}
            Outcome::Interrupted => bail!("stopped"),
        }
        let report = assemble(&RunReader::open(&run)?)?;
        if let Some(Failure { candidate, at, reason }) = report.failures.first() {
            bail!("{candidate} failed at {at}: {reason}");
        }
        Ok(report)
    }
}
