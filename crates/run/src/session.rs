//! The stages of a session, in order.

mod insert;
mod resuming;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dbdyno_bench::schedule::start_order;
use dbdyno_bench::worker::WorkerError;
use dbdyno_engines::server::ServerDirs;
use dbdyno_machine::{
    CpuAssignment, CpuSet, HostFacts, IdlePreventer, Needs, Severity, check, clock,
    pin_current_thread,
};
use dbdyno_results::{
    FailureKind, FailureRecord, MicrobenchmarkRecord, NewRun, RunWriter, SessionRecord,
    StateSnapshotRecord, Warning,
};
use dbdyno_spec::experiment::{Experiment, System};
use dbdyno_units::{Bytes, Nanos};
use dbdyno_workloads::definition::{Stage, Throughput};

use crate::candidates::{Deployment, find_all};
use crate::clean::remove_schemas;
use crate::cpus::{allowed_cpus, divide_cpus, idle_prevention_cpus};
use crate::data;
use crate::error::RunError;
use crate::instances::{Instance, RunContext, WorkerProgram, arranged};
use crate::live_training::{self, LiveTraining};
use crate::microbenchmark::{Measured, Measuring};
use crate::pgo_training::PgoTrainer;
use crate::plan::{self, MicrobenchmarkCase, RunPlan, cases};
use crate::progress::{InterimEstimate, Outcome, Progress, RunEvent};
use crate::settings;

/// How long the machine is watched for load by others before a run.
const WATCH: Duration = Duration::from_millis(500);

/// What a session needs besides the experiment.
pub struct Options<'a> {
    /// How workers are started.
    pub worker: WorkerProgram,
    /// Where builds are cached; the user's cache directory where there is none.
    pub cache: Option<PathBuf>,
    /// Whether the instances' data stays after a complete run.
    pub keep_data: bool,
    /// Set when the user wants to stop.
    pub cancel: Arc<AtomicBool>,
    /// Where events go.
    pub progress: Progress<'a>,
    /// dbdyno's version.
    pub version: String,
    /// The present time, RFC 3339.
    pub now: String,
}

/// Starts a run in a new directory.
///
/// Call it on the main thread: workers end with the thread that started them.
///
/// # Errors
/// The run cannot start or go on; what was measured until then is kept.
pub fn start_run(
    experiment: &Experiment,
    experiment_text: &str,
    directory: &Path,
    options: &Options<'_>,
) -> Result<Outcome, RunError> {
    let results = RunWriter::create(directory, &new_run(experiment, experiment_text))?;
    tracing::info!(directory = %directory.display(), "started a run");
    Session::new(experiment, options, results)?.run()
}

/// Continues the run in a directory where it stopped.
///
/// Call it on the main thread: workers end with the thread that started them.
///
/// # Errors
/// The run cannot go on; what was measured until then is kept.
pub fn continue_run(directory: &Path, options: &Options<'_>) -> Result<Outcome, RunError> {
    let results = RunWriter::resume(directory)?;
    tracing::info!(directory = %directory.display(), "resumed a run");
    let experiment: Experiment = results.reader()?.experiment()?;
    Session::new(&experiment, options, results)?.run()
}

fn new_run(experiment: &Experiment, text: &str) -> NewRun {
    let rows = experiment.workload.rows;
    let record = |MicrobenchmarkCase { microbenchmark, clients }| MicrobenchmarkRecord {
        name: microbenchmark.name,
        clients,
        group: microbenchmark.group.name().to_owned(),
        three_group: microbenchmark.group.name_of_three().to_owned(),
        rows_read_per_statement: match microbenchmark.throughput {
            Throughput::Statements => None,
            Throughput::MillionRowsRead => Some(rows),
        },
    };
    NewRun {
        name: experiment.name.clone(),
        baseline: experiment.baseline.clone(),
        experiment_text: text.to_owned(),
        experiment: serde_json::to_value(experiment).expect("an experiment is plain data"),
        settings: settings::of_experiment(experiment),
        microbenchmarks: cases(experiment).into_iter().map(record).collect(),
        insert: insert::plan_record(experiment),
    }
}

struct Session<'a> {
    experiment: &'a Experiment,
    options: &'a Options<'a>,
    results: RunWriter,
    started: Nanos,
    failures: usize,
    facts: HostFacts,
    cpus: CpuAssignment,
    /// Those that are kept from sleeping.
    idle_prevention: CpuSet,
}

impl<'a> Session<'a> {
    fn new(
        experiment: &'a Experiment,
        options: &'a Options<'a>,
        results: RunWriter,
    ) -> Result<Self, RunError> {
        let started = clock::monotonic();
        (options.progress)(RunEvent::Stage("looking at the machine".to_owned()));
        let cpus = divide_cpus(experiment)?;
        let facts = HostFacts::gather_over(results.directory().path(), WATCH);
        let idle_prevention = idle_prevention_cpus(experiment, &cpus);
        let mut session = Self {
            experiment,
            options,
            results,
            started,
            failures: 0,
            facts,
            cpus,
            idle_prevention,
        };
        let warnings = session.warnings();
        (options.progress)(RunEvent::Warnings(&warnings));
        session.results.start_session(&SessionRecord {
            started: options.now.clone(),
            version: options.version.clone(),
            host: session.host(),
            facts: serde_json::to_value(&session.facts).unwrap_or_default(),
            warnings,
            client_cpus: session.has_servers().then(|| session.cpus.dbdyno.len() as u32),
            system_cpus: session.has_own_servers().then(|| session.cpus.system.len() as u32),
            counting: Vec::new(),
            elapsed: Nanos::ZERO,
        })?;
        Ok(session)
    }

    /// Facts of the host, and what is done about one of them.
    fn host(&self) -> Vec<(String, String)> {
        let mut rows = self.facts.rows();
        if !self.idle_prevention.is_empty() {
            let how = format!(
                "CPUs {}, by threads that run when nothing else does",
                self.idle_prevention
            );
            rows.push(("kept from sleeping".to_owned(), how));
        }
        rows
    }

    fn has_servers(&self) -> bool {
        self.experiment.candidates.iter().any(|candidate| !candidate.system.is_embedded())
    }

    /// Whether all servers are ours, on this machine and on the CPUs that are theirs.
    fn has_own_servers(&self) -> bool {
        let mut systems = self.experiment.candidates.iter().map(|candidate| &candidate.system);
        systems.all(|system| matches!(system, System::Private(_)))
    }

    fn warnings(&self) -> Vec<Warning> {
        let plan = RunPlan::of(self.experiment);
        let clients = self.experiment.workload.most_clients();
        // The files are cached by the kernel; beside that, a server caches its data once, and an
        // embedded engine once per client.
        let caches = match (&self.experiment.insert_benchmark, self.has_servers()) {
            // Its data may well be larger than memory.
            (Some(_), _) => 0,
            (None, true) => 1,
            (None, false) => clients,
        };
        let needs = Needs {
            memory: Some(Bytes::from_bytes(plan.tables_size.as_bytes() * u64::from(caches + 1))),
            disk: Some(plan.data_size),
            // The clients of a server take turns on few CPUs.
            cpus: Some(if self.has_servers() { 2 } else { clients as usize + 1 }),
        };
        check(&self.facts, &needs)
            .into_iter()
            .filter(|finding| finding.severity == Severity::Warning)
            .map(|finding| Warning {
                what: finding.what,
                advice: finding.advice.unwrap_or_default(),
            })
            .collect()
    }

    fn run(mut self) -> Result<Outcome, RunError> {
        let outcome = self.stages();
        // However it ended, the time was spent.
        self.note_time()?;
        outcome
    }

    fn stages(&mut self) -> Result<Outcome, RunError> {
        let done = self.done()?;
        let steps = self.results.reader()?.insert_steps()?;
        if done.iter().all(|done| *done) && insert::is_done(self.experiment, &steps) {
            return self.complete();
        }
        let options = self.options;
        let trainer = PgoTrainer {
            experiment: self.experiment,
            directory: self.results.directory().clone(),
            worker: &options.worker,
            cpus: self.cpus.clone(),
            cancel: &options.cancel,
            progress: options.progress,
        };
        let candidates = find_all(self.experiment, options.cache.clone(), &trainer);
        if self.cancelled() {
            return Ok(Outcome::Interrupted);
        }
        let candidates = candidates?;
        self.store_candidates(&candidates)?;
        let mut context = RunContext {
            experiment: self.experiment,
            directory: self.results.directory().clone(),
            worker: &options.worker,
            cpus: self.cpus.clone(),
            server_dirs: None,
            environment: Vec::new(),
        };
        if candidates.iter().any(|candidate| matches!(candidate.deployment, Deployment::Private(_)))
        {
            context.server_dirs = Some(ServerDirs::open(&context.directory.data())?);
        }
        let inserts = self.experiment.insert_benchmark.as_ref();
        if inserts.is_none() {
            self.prepare_data(&context, &candidates)?;
        }
        if self.cancelled() {
            return Ok(Outcome::Interrupted);
        }
        tracing::info!(dbdyno = %self.cpus.dbdyno, systems = %self.cpus.system, "assigned CPUs");
        // Compilers ran on all CPUs; from here on dbdyno keeps out of the way.
        pin_current_thread(&self.cpus.dbdyno).map_err(|error| RunError::Cpus {
            given: error.to_string(),
            allowed: allowed_cpus().to_string(),
        })?;
        if let Some(benchmark) = inserts {
            let outcome = self.run_inserts(&context, benchmark, &candidates)?;
            let steps = self.results.reader()?.insert_steps()?;
            let whole = insert::is_done(self.experiment, &steps);
            if !whole || options.keep_data {
                return Ok(outcome);
            }
            if let Some(server_dirs) = context.server_dirs {
                server_dirs.remove()?;
            }
            return self.complete();
        }
        let _idle_preventer = IdlePreventer::start(&self.idle_prevention)?;
        (options.progress)(RunEvent::Stage("starting the instances".to_owned()));
        let mut instances: Vec<Instance> =
            candidates.into_iter().map(|candidate| Instance::new(&context, candidate)).collect();
        self.start(&context, &mut instances)?;
        self.store_versions(&instances)?;
        self.store_counting(&instances)?;
        self.record_state_snapshots(&mut instances, "at the start of the session")?;
        if self.measure_all(&context, &done, &mut instances)?.interrupted {
            return Ok(Outcome::Interrupted);
        }
        self.record_state_snapshots(&mut instances, "after the last microbenchmark")?;
        for instance in &mut instances {
            // Its work is done and stored; how it closes changes nothing.
            instance.stop();
        }
        drop(instances);
        if let Some(server_dirs) = context.server_dirs.filter(|_| !options.keep_data) {
            server_dirs.remove()?;
        }
        self.complete()
    }

    fn complete(&mut self) -> Result<Outcome, RunError> {
        if !self.options.keep_data {
            self.remove_schemas()?;
            data::remove(self.results.directory())?;
        }
        Ok(Outcome::Complete { failures: self.failures })
    }

    /// Leaves nothing on servers of others, whatever happened to their candidates in between.
    fn remove_schemas(&mut self) -> Result<(), RunError> {
        let context = RunContext {
            experiment: self.experiment,
            directory: self.results.directory().clone(),
            worker: &self.options.worker,
            cpus: self.cpus.clone(),
            server_dirs: None,
            environment: Vec::new(),
        };
        let candidates = self.results.reader()?.candidates()?;
        for (candidate, error) in remove_schemas(&context) {
            let number = candidates.iter().position(|one| one.name == candidate);
            let directory = context.directory.path().display();
            let reason = format!("{error}; `dbdyno clean {directory}` tries it again");
            self.fail(number.unwrap_or(0) as u32, &candidate, "removing its tables", reason)?;
        }
        Ok(())
    }

    /// Which microbenchmarks are done.
    fn done(&self) -> Result<Vec<bool>, RunError> {
        let microbenchmarks = self.results.reader()?.microbenchmarks()?;
        Ok(microbenchmarks.into_iter().map(|(_, done)| done).collect())
    }

    /// Stores what is counted of each instance, and why the rest is not: that shows when they are
    /// opened.
    fn store_counting(&mut self, instances: &[Instance]) -> Result<(), RunError> {
        let Some(mut session) = self.results.reader()?.sessions()?.pop() else { return Ok(()) };
        session.counting = instances.iter().map(|one| one.counting().cloned()).collect();
        Ok(self.results.update_session(&session)?)
    }

    /// Stores what servers that run already say of their version: nobody knew before.
    fn store_versions(&mut self, instances: &[Instance]) -> Result<(), RunError> {
        let records = self.results.reader()?.candidates()?;
        for ((number, instance), mut record) in (0..).zip(instances).zip(records) {
            if let (true, Some(version)) = (record.version.is_empty(), instance.version()) {
                version.clone_into(&mut record.version);
                self.results.update_candidate(number, &record)?;
            }
        }
        Ok(())
    }

    /// Whether instances keep a copy of their data before a microbenchmark: what shrinks the tables
    /// gets them back for each start and each number of clients.
    fn keeps_data(&self, case: &MicrobenchmarkCase) -> bool {
        case.microbenchmark.shrinks_tables() && plan::repeats(self.experiment)
    }

    fn start(
        &mut self,
        context: &RunContext<'_>,
        instances: &mut [Instance],
    ) -> Result<(), RunError> {
        let order = start_order(self.experiment.seed, None, 0, instances.len());
        self.each_of(arranged(instances, &order), STARTING, |instance| instance.start(context))
    }

    /// Stores where every instance stands.
    fn record_state_snapshots(
        &mut self,
        instances: &mut [Instance],
        at: &str,
    ) -> Result<(), RunError> {
        let mut state_snapshots = Vec::new();
        self.each(instances, "reading the state", |instance| {
            state_snapshots
                .push((instance.candidate.name.clone(), instance.worker_mut()?.state_snapshot()?));
            Ok(())
        })?;
        for (name, state_snapshot) in state_snapshots {
            let number = instances.iter().position(|instance| instance.candidate.name == name);
            let candidate = number.unwrap_or_default() as u32;
            let at = at.to_owned();
            self.results.add_state_snapshot(&StateSnapshotRecord {
                candidate,
                at,
                state_snapshot,
            })?;
        }
        Ok(())
    }

    /// Writes back what the writes left, on all instances.
    fn settle(&mut self, instances: &mut [Instance], warm: bool) -> Result<(), RunError> {
        self.each(instances, "settling", |instance| {
            let worker = instance.worker_mut()?;
            worker.free_statements()?;
            worker.settle()?;
            if warm { worker.warm() } else { Ok(()) }
        })
    }

    fn measure_all(
        &mut self,
        context: &RunContext<'_>,
        done: &[bool],
        instances: &mut [Instance],
    ) -> Result<Measured, RunError> {
        let all = cases(self.experiment);
        let mut settled = true;
        for (index, case) in all.iter().enumerate() {
            let MicrobenchmarkCase { microbenchmark, clients } = case;
            if done[index] {
                continue;
            }
            let reads_after_writes =
                !settled && microbenchmark.stage >= Stage::Post && !microbenchmark.writes();
            if microbenchmark.writes() || reads_after_writes {
                let warm = reads_after_writes;
                self.settle(instances, warm)?;
                if reads_after_writes {
                    self.record_state_snapshots(instances, "after the writes")?;
                    settled = true;
                }
            }
            if microbenchmark.writes() {
                settled = false;
            }
            let keeps = self.keeps_data(case);
            if keeps {
                self.each(instances, "keeping its data", |instance| instance.keep(context))?;
            }
            let (number, of) = (index + 1, all.len());
            let name = &case_name(self.experiment, case);
            tracing::info!(number, of, name, "measuring a microbenchmark");
            (self.options.progress)(RunEvent::Microbenchmark { number, of, name });
            let time_after = self.time_after(done, index);
            let measured = Measuring {
                context,
                microbenchmark,
                clients: *clients,
                id: index as u32,
                before: self.results.reader()?.slices(index as u32)?,
                training: live_training::trained_with(self.experiment, index).map(|id| {
                    LiveTraining {
                        context,
                        case: all[id as usize].clone(),
                        id,
                        before: index as u32,
                        cancel: &self.options.cancel,
                        progress: self.options.progress,
                    }
                }),
                cancel: &self.options.cancel,
                progress: self.options.progress,
                time_after,
            }
            .run(instances, &mut self.results)?;
            self.failures += measured.failures;
            if keeps {
                self.each(instances, "restoring its data", |instance| instance.restore(context))?;
            }
            if measured.interrupted {
                return Ok(measured);
            }
            self.results.set_done(index as u32)?;
            tracing::info!(name, blocks = measured.rule.blocks(), "completed a microbenchmark");
            self.note_time()?;
            let estimates = estimates(&measured, instances);
            let (blocks, estimates) = (measured.rule.blocks(), &estimates[..]);
            (self.options.progress)(RunEvent::MicrobenchmarkDone {
                number,
                of,
                name,
                blocks,
                estimates,
                time_left: time_after,
            });
        }
        Ok(Measured::default())
    }

    /// How long the microbenchmarks after this one will take, at most.
    fn time_after(&self, done: &[bool], index: usize) -> Nanos {
        let schedule = &self.experiment.schedule;
        let instances = plan::instances(self.experiment) as u64;
        cases(self.experiment)[index + 1..]
            .iter()
            .zip(&done[index + 1..])
            .filter(|(_, done)| !**done)
            .map(|(case, _)| {
                let slice = plan::slice(schedule, &case.microbenchmark);
                let (_, most) = plan::blocks(schedule, slice);
                plan::time(schedule, slice, most, instances)
            })
            .sum()
    }

    /// Does something with every instance that is alive; one that fails is out.
    fn each(
        &mut self,
        instances: &mut [Instance],
        doing: &str,
        work: impl FnMut(&mut Instance) -> Result<(), WorkerError>,
    ) -> Result<(), RunError> {
        self.each_of((0..).zip(instances), doing, work)
    }

    fn each_of<'i>(
        &mut self,
        instances: impl IntoIterator<Item = (u32, &'i mut Instance)>,
        doing: &str,
        mut work: impl FnMut(&mut Instance) -> Result<(), WorkerError>,
    ) -> Result<(), RunError> {
        let starting = doing == STARTING;
        for (number, instance) in instances {
            if !starting && !instance.is_alive() {
                continue;
            }
            tracing::debug!(candidate = instance.candidate.name, "{doing}");
            let Err(error) = work(instance) else { continue };
            instance.kill();
            let candidate = instance.candidate.name.clone();
            let reason = error.to_string();
            self.fail(number, &candidate, doing, reason.clone())?;
            if number == 0 {
                return Err(RunError::Baseline { candidate, reason });
            }
        }
        Ok(())
    }

    fn fail(
        &mut self,
        number: u32,
        candidate: &str,
        at: &str,
        reason: String,
    ) -> Result<(), RunError> {
        (self.options.progress)(RunEvent::Failure { candidate, at, reason: &reason });
        self.failures += 1;
        let at = at.to_owned();
        Ok(self.results.add_failure(&FailureRecord {
            kind: FailureKind::Ended,
            recovered: false,
            candidate: number,
            microbenchmark: None,
            at,
            reason,
        })?)
    }

    fn cancelled(&self) -> bool {
        self.options.cancel.load(Ordering::Relaxed)
    }

    fn note_time(&mut self) -> Result<(), RunError> {
        Ok(self.results.session_elapsed(clock::monotonic() - self.started)?)
    }
}

fn estimates<'a>(measured: &Measured, instances: &'a [Instance]) -> Vec<InterimEstimate<'a>> {
    (0..)
        .zip(instances)
        .skip(1)
        .map(|(number, instance)| InterimEstimate {
            candidate: &instance.candidate.name,
            estimate: measured.rule.estimate(number),
        })
        .collect()
}

/// What [`Session::each`] does with instances that are not alive yet.
const STARTING: &str = "starting";

/// A microbenchmark's name, with the number of clients where a run has several.
fn case_name(experiment: &Experiment, case: &MicrobenchmarkCase) -> String {
    let name = &case.microbenchmark.name;
    match (experiment.workload.clients.len(), case.clients) {
        (1, _) => name.clone(),
        (_, 1) => format!("{name}, 1 client"),
        (_, clients) => format!("{name}, {clients} clients"),
    }
}
