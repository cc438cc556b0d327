//! The instances that are alive, each with its worker and, where it has one, its server.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dbdyno_bench::protocol::{Open, Opened, Prepare, SystemUnderTest};
use dbdyno_bench::worker::{WorkerError, WorkerHandle};
use dbdyno_engines::server::{Server, ServerAccess, ServerDirs, ServerError};
use dbdyno_engines::sqlite::{self, Sqlite};
use dbdyno_live::Sampled;
use dbdyno_machine::CpuAssignment;
use dbdyno_record::Counting;
use dbdyno_results::{OptimizationRecord, RunDirectory};
use dbdyno_spec::experiment::{Experiment, PrivateServer, SqliteConfig, System};

use crate::candidates::{Deployment, ResolvedCandidate};
use crate::data_location::DataLocation;
use crate::error::RunError;
use crate::live_optimize::{OptimizedServer, Optimizer};
use crate::sampling::Process;
use crate::settings;

/// The schema of dbdyno's tables on a server of its own.
const SCHEMA: &str = "dbdyno";

/// How a worker is started: a program that serves as a worker when it is given these arguments.
#[derive(Clone, Debug)]
pub struct WorkerProgram {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

impl WorkerProgram {
    fn start(
        &self,
        log: &Path,
        environment: &[(String, String)],
    ) -> Result<WorkerHandle, WorkerError> {
        let mut command = Command::new(&self.program);
        command.args(&self.args).envs(environment.iter().map(|(name, value)| (name, value)));
        WorkerHandle::start(&mut command, log)
    }
}

/// Instances with their numbers, in this order.
pub(crate) fn arranged<'i>(
    instances: &'i mut [Instance],
    order: &[usize],
) -> Vec<(u32, &'i mut Instance)> {
    let mut all: Vec<(u32, &mut Instance)> = (0..).zip(instances).collect();
    all.sort_by_key(|(number, _)| order.iter().position(|one| *one == *number as usize));
    all
}

/// Everything that opening an instance takes.
#[derive(Debug)]
pub(crate) struct RunContext<'a> {
    pub experiment: &'a Experiment,
    pub directory: RunDirectory,
    pub worker: &'a WorkerProgram,
    pub cpus: CpuAssignment,
    /// Where private servers live; `None` in a run without any.
    pub server_dirs: Option<ServerDirs>,
    /// What workers have in their environment besides: for libraries that are instrumented.
    pub environment: Vec<(String, String)>,
}

impl RunContext<'_> {
    /// The home of this name for data of the candidate's kind.
    pub fn home(&self, candidate: &ResolvedCandidate, name: &str) -> DataLocation {
        match (&candidate.deployment, &self.server_dirs) {
            (Deployment::Built(_), _) => DataLocation::Directory(self.directory.data().join(name)),
            (Deployment::Private(_), Some(server_dirs)) => {
                DataLocation::ServerDir(server_dirs.server_dir(name))
            }
            (Deployment::Private(_), None) | (Deployment::Existing(_), _) => DataLocation::Schema,
        }
    }

    /// Where a candidate keeps its data from before its tables shrink.
    pub fn kept_home(&self, candidate: &ResolvedCandidate) -> DataLocation {
        self.home(candidate, &format!(".kept-{}", candidate.name))
    }
}

/// One candidate's place in the run.
pub(crate) struct Instance {
    pub candidate: ResolvedCandidate,
    home: DataLocation,
    /// Its server, where it has one of its own, as long as that lives.
    server: Option<Server>,
    /// Its worker, as long as that lives.
    worker: Option<WorkerHandle>,
    /// What the system said of itself when it was opened last.
    opened: Option<Opened>,
    /// How often in the session its server or its connections were lost and it was started again.
    revivals: u32,
    /// Whether its data is another than that of instances that did all the writes: a slice of
    /// writes was lost.
    differs: bool,
    /// The same of the data that was kept last.
    kept_differs: bool,
    /// What the live optimizer made of its server.
    tuned: Option<OptimizedServer>,
    /// Optimizations after a revival, to be stored.
    retuned: Vec<OptimizationRecord>,
}

impl Instance {
    /// An instance that is not started yet, with its data in the home of its name.
    pub fn new(context: &RunContext<'_>, candidate: ResolvedCandidate) -> Self {
        let home = context.home(&candidate, &candidate.name);
        Self::at(candidate, home)
    }

    /// An instance that is not started yet, with its data in this home.
    pub const fn at(candidate: ResolvedCandidate, home: DataLocation) -> Self {
        Self {
            candidate,
            home,
            server: None,
            worker: None,
            opened: None,
            revivals: 0,
            differs: false,
            kept_differs: false,
            tuned: None,
            retuned: Vec::new(),
        }
    }

    /// Whether it takes part.
    pub const fn is_alive(&self) -> bool {
        self.worker.is_some()
    }

    /// Whether a slice of writes was lost that is in the data of the others.
    pub const fn differs(&self) -> bool {
        self.differs
    }

    /// Its worker.
    pub fn worker_mut(&mut self) -> Result<&mut WorkerHandle, WorkerError> {
        let gone = || WorkerError::NotStarted("the instance has been stopped".to_owned());
        self.worker.as_mut().ok_or_else(gone)
    }

    /// Where the system pipeline: its server with all that it starts, or the worker itself.
    pub fn process(&self) -> Result<Process, WorkerError> {
        let server = self.server.as_ref().map(|server| Process { pid: server.pid(), family: true });
        let worker = self.worker.as_ref();
        let worker = worker.map(|worker| Process { pid: worker.pid(), family: false });
        let gone = || WorkerError::NotStarted("the instance has been stopped".to_owned());
        server.or(worker).ok_or_else(gone)
    }

    /// The system's version, as it said itself.
    pub fn version(&self) -> Option<&str> {
        self.opened.as_ref().map(|opened| opened.version.as_str())
    }

    /// What the CPU and the kernel count for it; `None` before it was opened.
    pub fn counting(&self) -> Option<&Counting> {
        self.opened.as_ref()?.counting.as_ref()
    }

    /// Starts the instance anew and reads its data into its caches.
    pub fn start(&mut self, context: &RunContext<'_>) -> Result<(), WorkerError> {
        self.stop();
        self.open(context, context.experiment.workload.most_clients(), false)?;
        self.worker_mut()?.warm()
    }

    /// Starts the server, where there is one to start and it does not run, and a worker with so
    /// many connections. `create` is for a home that has no tables yet.
    pub fn open(
        &mut self,
        context: &RunContext<'_>,
        clients: u32,
        create: bool,
    ) -> Result<(), WorkerError> {
        self.worker = None;
        if let (Deployment::Private(plan), DataLocation::ServerDir(place), None) =
            (&self.candidate.deployment, &self.home, &self.server)
        {
            let cpus = context.cpus.system.to_string();
            self.server = Some(Server::start(plan, place, Some(&cpus)).map_err(server_failed)?);
        }
        let embedded = self.candidate.spec.system.is_embedded();
        let log = context.directory.logs().join(format!("{}.log", self.candidate.name));
        let mut worker = context.worker.start(&log, &context.environment)?;
        let workload = &context.experiment.workload;
        self.opened = Some(worker.open(Open {
            system: self.system_under_test(),
            create,
            clients,
            threads: if embedded { clients } else { context.cpus.dbdyno.len() as u32 },
            tables: workload.tables,
            rows: workload.rows,
            seed: context.experiment.seed,
            cpus: Some(
                if embedded { &context.cpus.system } else { &context.cpus.dbdyno }.to_string(),
            ),
            injected_delay: self.candidate.spec.injected_delay,
            // Its seconds have accounts of their own.
            count: context.experiment.schedule.counters
                && context.experiment.insert_benchmark.is_none(),
            insert: context.experiment.insert_benchmark.as_ref().map(|one| one.plan.clone()),
        })?);
        self.worker = Some(worker);
        Ok(())
    }

    fn system_under_test(&self) -> SystemUnderTest {
        match (&self.candidate.spec.system, &self.candidate.deployment, &self.server) {
            (System::Sqlite { config, .. }, Deployment::Built(build), _) => {
                SystemUnderTest::Sqlite {
                    library: build.artifact.clone(),
                    settings: sqlite_settings(config),
                    file: match &self.home {
                        DataLocation::Directory(directory) => Sqlite::file_in(directory),
                        DataLocation::ServerDir(_) | DataLocation::Schema => PathBuf::new(),
                    },
                }
            }
            (System::Private(private), Deployment::Private(plan), Some(server)) => {
                let PrivateServer { system, statements, .. } = *private;
                SystemUnderTest::Server {
                    settings: ServerAccess {
                        system,
                        engine: plan.engine(),
                        target: server.target(),
                        schema: SCHEMA.to_owned(),
                        statements,
                        private: true,
                    },
                    pid: Some(server.pid()),
                }
            }
            (_, Deployment::Existing(server), _) => SystemUnderTest::Server {
                settings: ServerAccess {
                    system: server.system,
                    engine: server.engine,
                    target: server.target.clone(),
                    schema: server.schema.clone(),
                    statements: server.statements,
                    private: false,
                },
                pid: server.pid,
            },
            _ => unreachable!("a candidate's deployment is of its candidate's system"),
        }
    }

    /// Takes away what was made on a server that is not ours to remove. What cannot be taken away
    /// is told by the next run that wants to make it.
    pub fn remove_schema(&mut self) {
        if let (DataLocation::Schema, Some(worker)) = (&self.home, &mut self.worker) {
            let _ = worker.remove();
        }
    }

    /// Ends the worker and the server, and tells whether they ended well.
    pub fn close(&mut self) -> Result<(), WorkerError> {
        let worker = self.worker.take().map_or(Ok(()), WorkerHandle::close);
        let server = self.server.take().map_or(Ok(()), |server| server.stop());
        worker.and(server.map_err(server_failed))
    }

    /// Ends the worker and the server: two must not hold the same data. They close it properly;
    /// what does not is ended, and the next recovers what it left.
    pub fn stop(&mut self) {
        let _ = self.close();
    }

    /// Takes it out of the run: something failed.
    pub fn kill(&mut self) {
        self.worker = None;
        self.server = None;
    }

    /// Why something failed: what the server says of its end tells more than what its client saw
    /// of it. A server that is about to end may take a moment longer than its connections.
    pub fn why(&mut self, error: WorkerError) -> WorkerError {
        const MOMENTS: u32 = 10;
        for _ in 0..MOMENTS {
            if let Some(ended) = self.server_ended() {
                return server_failed(ended);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        error
    }

    /// Whether its server has ended, and how.
    fn server_ended(&mut self) -> Option<ServerError> {
        self.server.as_mut().and_then(Server::ended)
    }

    /// Starts it again after it lost its server or its connections in a slice, if that is allowed
    /// once more: with what was prepared. Returns whether it goes on. What that slice should have
    /// written is missing from its data, or half of it.
    pub fn revive(
        &mut self,
        context: &RunContext<'_>,
        prepare: &Prepare,
    ) -> Result<bool, WorkerError> {
        let allowed = match &self.candidate.spec.system {
            System::Sqlite { .. } => 0,
            System::Private(server) => server.restarts_after_death,
            System::Existing(_) => 1,
        };
        if self.revivals >= allowed {
            return Ok(false);
        }
        self.revivals += 1;
        if self.server_ended().is_some() {
            self.server = None;
        }
        self.open(context, context.experiment.workload.most_clients(), false)?;
        self.worker_mut()?.warm()?;
        self.tune_again(context)?;
        self.worker_mut()?.prepare(prepare.clone())?;
        self.differs |= prepare.microbenchmark.writes();
        Ok(true)
    }

    /// How its server is optimized; `None` where it stays as it is, or does not run.
    pub fn optimizer(&self, context: &RunContext<'_>) -> Option<Optimizer<'_>> {
        let System::Private(server) = &self.candidate.spec.system else { return None };
        let live = self.candidate.spec.live.as_ref()?;
        let pid = self.server.as_ref().filter(|_| self.is_alive())?.pid();
        Some(Optimizer::of(server, live, pid, context.directory.data().join(".live")))
    }

    /// Whether its server is to be optimized with a microbenchmark, and was not yet.
    pub fn wants_training(&self, with: u32) -> bool {
        let has_it = |tuned: &OptimizedServer| tuned.trained_with == with && tuned.is_in_force();
        self.is_alive()
            && self.candidate.spec.live.is_some()
            && !self.tuned.as_ref().is_some_and(has_it)
    }

    /// Optimizes its server by what was sampled while it worked on a microbenchmark.
    pub fn optimize(
        &mut self,
        context: &RunContext<'_>,
        sampled: &Sampled,
        with: u32,
    ) -> Result<Option<OptimizationRecord>, String> {
        let Some(optimizer) = self.optimizer(context) else { return Ok(None) };
        let (tuned, record) = optimizer.optimize(sampled, with)?;
        self.tuned = Some(tuned);
        Ok(Some(record))
    }

    /// Optimizes its server by the samples that it is given, where it is given some.
    pub fn optimize_as_given(
        &mut self,
        context: &RunContext<'_>,
        with: u32,
    ) -> Result<Option<OptimizationRecord>, String> {
        let (Some(profile), Some(optimizer)) = (&self.candidate.samples, self.optimizer(context))
        else {
            return Ok(None);
        };
        let name = optimizer.live.samples_of.as_deref().unwrap_or_default();
        let (tuned, record) = optimizer.optimize_by(profile, name, with)?;
        self.tuned = Some(tuned);
        Ok(Some(record))
    }

    /// A server that was started again gets what the one before had.
    fn tune_again(&mut self, context: &RunContext<'_>) -> Result<(), WorkerError> {
        let Some(tuned) = self.tuned.as_ref().filter(|tuned| !tuned.is_in_force()) else {
            return Ok(());
        };
        let Some(optimizer) = self.optimizer(context) else { return Ok(()) };
        let failed = |message| WorkerError::Failed { doing: "optimizing it again", message };
        let (tuned, record) = optimizer.optimize_again(tuned).map_err(failed)?;
        self.tuned = Some(tuned);
        self.retuned.push(record);
        Ok(())
    }

    /// The optimizations since the last call that came of a server that was started again.
    pub fn take_retuned(&mut self) -> Vec<OptimizationRecord> {
        std::mem::take(&mut self.retuned)
    }

    /// Where its database's files are, if they are ours.
    pub fn files(&self) -> Option<PathBuf> {
        self.home.files()
    }

    /// Copies the data while it lives, with nothing under way: what is started there recovers all
    /// that was committed.
    pub fn copy_live(&self, to: &DataLocation) -> Result<(), RunError> {
        match (&self.home, &self.server, to) {
            (DataLocation::ServerDir(_), Some(server), DataLocation::ServerDir(to)) => {
                Ok(server.copy_paused(to)?)
            }
            (home, ..) => home.copy_to(to),
        }
    }

    /// Keeps a copy of the data as it stands, for [`Self::restore`].
    pub fn keep(&mut self, context: &RunContext<'_>) -> Result<(), WorkerError> {
        let kept = context.kept_home(&self.candidate);
        self.kept_differs = self.differs;
        self.copy(context, |home| home.copy_to(&kept)).map(drop)
    }

    /// Goes back to the data that was kept.
    pub fn restore(&mut self, context: &RunContext<'_>) -> Result<(), WorkerError> {
        let kept = context.kept_home(&self.candidate);
        if self.copy(context, |home| kept.copy_to(home))? {
            self.differs = self.kept_differs;
        }
        Ok(())
    }

    /// Copies to or from the data, starts on it, and returns whether there is something to copy;
    /// where there is not, it goes on as it is.
    fn copy(
        &mut self,
        context: &RunContext<'_>,
        copy: impl FnOnce(&DataLocation) -> Result<(), RunError>,
    ) -> Result<bool, WorkerError> {
        if !self.home.can_be_copied() {
            return Ok(false);
        }
        self.stop();
        copy(&self.home).map_err(|error| WorkerError::Failed {
            doing: "copying its data",
            message: error.to_string(),
        })?;
        self.start(context)?;
        Ok(true)
    }
}

fn sqlite_settings(config: &SqliteConfig) -> sqlite::Settings {
    sqlite::Settings {
        page_size: config.page_size,
        cache_size: config.cache_size,
        journal_mode: settings::journal_mode(config),
        synchronous: settings::synchronous(config),
    }
}

fn server_failed(error: ServerError) -> WorkerError {
    WorkerError::Server { brief: error.brief(), whole: error.to_string() }
}
