//! Runs of whole experiments inside the benchmark's process.

use std::io::{BufReader, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Context, anyhow, bail};
use dbdyno_document::parse_duration;
use dbdyno_machine::{
    CpuAssignment, CpuSet, FsRoot, IdlePreventer, IdlePreventerError, Topology, pin_current_thread,
};
use dbdyno_report::assemble::assemble;
use dbdyno_report::model::{Failure, Report};
use dbdyno_results::RunReader;
use dbdyno_run::{Options, Outcome, RunEvent, WorkerProgram, start_run};
use dbdyno_spec::experiment::Experiment;
use dbdyno_spec::parse_with_files;
use dbdyno_types::ClientWait;
use dbdyno_units::Nanos;
use dbdyno_worker::{WorkerError, WorkerHandle};
use jiff::Timestamp;

use crate::output::{self, Progress, workspace};

/// The argument that starts a benchmark program as a worker.
const WORKER: &str = "worker";

/// The `main` of a benchmark that runs experiments; acts as a worker if called with `worker`.
pub fn main(bench: impl FnOnce() -> anyhow::Result<output::Outcome>) -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    if args != [WORKER] {
        return output::exit_code(bench());
    }
    let served = dbdyno_worker::serve(&mut BufReader::new(stdin()), &mut stdout());
    output::exit_code(served.map(|()| output::Outcome::Met).map_err(|error| anyhow!(error)))
}

/// Parses a duration on the command line, such as `600ms`.
pub fn duration(text: &str) -> Result<Nanos, String> {
    parse_duration(text).map_err(|error| format!("{error}; {}", error.help))
}

/// Parses a way to wait for answers on the command line: `poll` or `sleep`.
pub fn client_wait(text: &str) -> Result<ClientWait, String> {
    ClientWait::by_name(text).ok_or_else(|| "use poll or sleep".to_owned())
}

/// A flag that SIGINT, SIGTERM and SIGHUP set, so that workers and data are cleaned up.
pub fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let cancel = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&cancel);
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))?;
    Ok(cancel)
}

/// Options of benchmarks that run an experiment of this repository.
#[derive(clap::Args)]
pub struct ExperimentArgs {
    /// Maximum measuring time per candidate and microbenchmark; overrides the experiment's
    #[arg(long, value_parser = duration)]
    budget: Option<Nanos>,
    /// Only microbenchmarks of this group, or with WORD in their name
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
    /// How clients of servers wait for answers: poll or sleep; overrides the experiment's
    #[arg(long, value_parser = client_wait)]
    wait: Option<ClientWait>,
}

/// An experiment of this repository.
pub struct ExperimentFile {
    /// The parsed experiment; may be changed before it is run.
    pub experiment: Experiment,
    text: String,
}

impl ExperimentFile {
    /// Reads `experiments/NAME.toml` and applies the options.
    pub fn read(name: &str, args: &ExperimentArgs) -> anyhow::Result<Self> {
        let directory = workspace().join("experiments");
        let read = |name: &str| {
            let path = directory.join(name);
            std::fs::read_to_string(&path)
                .map_err(|error| format!("reading {}: {error}", path.display()))
        };
        let name = format!("{name}.toml");
        let text = read(&name).map_err(|reason| anyhow!(reason))?;
        let path = directory.join(name);
        let mut experiment = parse_with_files(&path.display().to_string(), &text, &read)
            .map_err(|problems| anyhow!("{problems}"))?;
        if let Some(budget) = args.budget {
            experiment.schedule.budget = budget;
        }
        if args.wait.is_some() {
            experiment.cpus.wait = args.wait;
        }
        if let Some(word) = &args.only {
            let all = &mut experiment.workload.microbenchmarks;
            all.retain(|one| one.group.name() == word || one.name.contains(word));
            if all.is_empty() {
                bail!("no microbenchmark of the experiment has `{word}` in its name or group");
            }
        }
        Ok(Self { experiment, text })
    }
}

/// Runs experiments and workers for a benchmark.
pub struct Harness {
    worker: WorkerProgram,
    cpus: CpuSet,
}

impl Harness {
    /// Call it once, before the first run, on the main thread.
    pub fn new() -> anyhow::Result<Self> {
        // Not the path it was started with: a new build may replace that file.
        let program = PathBuf::from("/proc/self/exe").read_link()?;
        let (args, cancel) = (vec![WORKER.into()], stop_on_signals()?);
        Ok(Self { worker: WorkerProgram { program, args, cancel }, cpus: CpuSet::allowed()? })
    }

    /// Starts a worker that writes its error output to the file `log`.
    pub fn worker(&self, log: &Path) -> Result<WorkerHandle, WorkerError> {
        let mut command = Command::new(&self.worker.program);
        WorkerHandle::start(command.args(&self.worker.args), log, Arc::clone(&self.worker.cancel))
    }

    /// Keeps CPUs from idling, on machines where a run does so by default.
    pub fn prevent_idle(
        &self,
        cpus: &CpuAssignment,
    ) -> Result<Option<IdlePreventer>, IdlePreventerError> {
        let all = cpus.system.iter().chain(cpus.dbdyno.iter()).collect();
        IdlePreventer::is_worthwhile(&FsRoot::this_machine())
            .then(|| IdlePreventer::start(&all))
            .transpose()
    }

    /// The CPUs that this process was allowed to use when it started.
    pub const fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// Chooses CPUs for a number of clients, as a run does, and pins this thread to dbdyno's.
    pub fn pin(&self, clients: u32) -> anyhow::Result<CpuAssignment> {
        let topology = Topology::read(&FsRoot::this_machine());
        let cpus = CpuAssignment::choose(&self.cpus, &topology, clients, false);
        pin_current_thread(&cpus.dbdyno)?;
        Ok(cpus)
    }

    /// How clients on these CPUs wait if it was not requested: they poll on CPUs of their own.
    pub fn default_wait(cpus: &CpuAssignment) -> ClientWait {
        if cpus.is_shared() { ClientWait::Sleep } else { ClientWait::Poll }
    }

    /// Fails if the user has requested to stop.
    pub fn check_cancelled(&self) -> anyhow::Result<()> {
        if self.worker.cancel.load(Ordering::Relaxed) {
            bail!("stopped");
        }
        Ok(())
    }

    /// Runs the only experiment of a benchmark and shows its progress.
    pub fn run_with_progress(&self, file: &ExperimentFile) -> anyhow::Result<Report> {
        let progress = Mutex::new(Progress::start());
        self.run(file, &|event| {
            if let Ok(progress) = progress.lock() {
                progress.follow(&event);
            }
        })
    }

    /// Runs an experiment several times, each with its own seed and new instances, and shows the
    /// progress. `each` gets the number of the run, from 1, and its report.
    pub fn repeat(
        &self,
        file: &mut ExperimentFile,
        runs: u64,
        mut each: impl FnMut(u64, &Report) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let progress = Mutex::new(Progress::start());
        for run in 1..=runs {
            let show = |event: RunEvent<'_>| {
                let (done, what) = match event {
                    RunEvent::Stage(what) => (0.0, what),
                    RunEvent::Microbenchmark { number, of, name, .. } => {
                        ((number - 1) as f64 / of as f64, name.to_owned())
                    }
                    _ => return,
                };
                if let Ok(progress) = progress.lock() {
                    let done = ((run - 1) as f64 + done) / runs as f64;
                    progress.show(done, &format!("run {run} of {runs}, {what}"));
                }
            };
            file.experiment.seed = run;
            let context = || format!("run {run} of {runs}");
            each(run, &self.run(file, &show).with_context(context)?).with_context(context)?;
        }
        Ok(())
    }

    /// Runs the experiment in a temporary directory and returns its report.
    pub fn run(
        &self,
        file: &ExperimentFile,
        progress: &(dyn Fn(RunEvent<'_>) + Sync),
    ) -> anyhow::Result<Report> {
        // The previous run has pinned this thread to dbdyno's CPUs; the next one must see all.
        pin_current_thread(&self.cpus)?;
        let directory = tempfile::Builder::new().prefix("dbdyno-bench-").tempdir()?;
        let run = directory.path().join("run");
        let options = Options {
            trust: false,
            worker: self.worker.clone(),
            cache: None,
            keep_data: false,
            progress,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            now: Timestamp::now().round(jiff::Unit::Second)?.to_string(),
        };
        match start_run(&file.experiment, &file.text, &run, &options)? {
            Outcome::Complete { .. } => {}
            Outcome::Interrupted { .. } => bail!("stopped"),
        }
        let report = assemble(&RunReader::open(&run)?)?;
        if let Some(Failure { candidate, at, reason }) = report.failures.first() {
            bail!("{candidate} failed at {at}: {reason}");
        }
        Ok(report)
    }
}
