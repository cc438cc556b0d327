//! Collection profiles: a build runs microbenchmarks, instrumented or sampled.
//!
//! A compiler's profile is collected with a build that the compiler instrumented, or by sampling
//! one that it did not; BOLT's with a copy of a finished build that BOLT instrumented. What they run
//! is the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dbdyno_bench::protocol::Prepare;
use dbdyno_bench::slice::{Quota, SliceRequest};
use dbdyno_bench::worker::WorkerError;
use dbdyno_builds::{
    Bolt, BoltProfile, Build, BuildError, Lookup, Profile, ProfileWriter, Profiles, SampleTools,
    TrainingId,
};
use dbdyno_engines::server::{ServerDirs, server_user};
use dbdyno_machine::CpuAssignment;
use dbdyno_record::build::BoltProfileMethod;
use dbdyno_results::{Role, RunDirectory};
use dbdyno_spec::experiment::{Candidate, Experiment, PrivateServer, System, Training};
use serde_json::json;

use crate::candidates::{Deployment, ResolvedCandidate, serving};
use crate::data;
use crate::error::RunError;
use crate::instances::{Instance, RunContext, WorkerProgram};
use crate::progress::{Progress, RunEvent};
use crate::sampling::{self, Observed};

/// More rows than that teach nothing new, and an instrumented server loads them slowly.
const MOST_ROWS: u64 = 100_000;

/// What training takes.
pub(crate) struct PgoTrainer<'a> {
    pub experiment: &'a Experiment,
    pub directory: RunDirectory,
    pub worker: &'a WorkerProgram,
    pub cpus: CpuAssignment,
    pub cancel: &'a Arc<AtomicBool>,
    pub progress: Progress<'a>,
}

/// A build that is to be trained.
#[derive(Clone, Copy)]
pub(crate) struct TrainingTarget<'a> {
    pub candidate: &'a Candidate,
    pub training: &'a Training,
    /// What the profile is collected with, or what is sampled.
    pub build: &'a Build,
}

impl TrainingTarget<'_> {
    fn failed(&self, error: BuildError) -> RunError {
        RunError::Build(vec![(self.candidate.name.clone(), error)])
    }

    fn not_sampled(&self, reason: String) -> RunError {
        RunError::Sampling { candidate: self.candidate.name.clone(), reason }
    }

    fn cancelled(&self) -> RunError {
        self.failed(BuildError::Cancelled { what: self.build.to_string() })
    }
}

/// How counts of an instrumented program are made.
struct Counting<'a> {
    environment: Vec<(String, String)>,
    /// Forgets what was counted until now.
    forget: &'a dyn Fn() -> Result<(), BuildError>,
}

impl PgoTrainer<'_> {
    /// The profile for the candidate's compiler, collected if it was not before: by the instrumented
    /// build, or with these tools of samples of the build.
    pub fn compilers_profile(
        &self,
        target: &TrainingTarget<'_>,
        tools: Option<&SampleTools>,
        profiles: &Profiles,
    ) -> Result<Profile, RunError> {
        let name = &target.candidate.name;
        let trained_on = self.trained_on(target, "");
        let waiting = || self.say_waiting(name);
        let sought = profiles.lookup(target.build, &trained_on, self.cancel, &waiting);
        let turn = match sought.map_err(|error| target.failed(error))? {
            Lookup::Found(profile) => return Ok(profile),
            Lookup::Missing(turn) => turn,
            Lookup::Cancelled => return Err(target.cancelled()),
        };
        let trained_on = trained_on.words;
        let Some(tools) = tools else {
            self.say(format!("training {name} on {trained_on}"));
            let collecting = turn.begin(target.build, writer(target)?);
            let collecting = collecting.map_err(|error| target.failed(error))?;
            let environment = collecting.environment();
            self.count(target, &Counting { environment, forget: &|| collecting.forget() })?;
            return collecting.finish().map_err(|error| target.failed(error));
        };
        self.say(format!("sampling {name}, trained on {trained_on}"));
        let code = self.sample(target)?.executed(target.build);
        let code = code.map_err(|reason| target.not_sampled(reason))?;
        let samples: u64 = code.iter().map(|code| code.samples).sum();
        self.say(format!("making a profile of {samples} samples of {name}"));
        let kept = turn.keep_samples(target.build, &code, tools);
        kept.map_err(|error| target.failed(error))
    }

    /// The profile for BOLT, collected if it was not before: by a copy of the build that BOLT
    /// instruments, or of samples of the build.
    pub fn bolts_profile(
        &self,
        target: &TrainingTarget<'_>,
        bolt: &Bolt,
        profiles: &Profiles,
    ) -> Result<BoltProfile, RunError> {
        let by_samples = target.training.bolt_profile == BoltProfileMethod::Samples;
        let name = &target.candidate.name;
        let trained_on = self.trained_on(target, if by_samples { ", sampled" } else { "" });
        let waiting = || self.say_waiting(name);
        let sought = profiles.lookup_bolt(target.build, bolt, &trained_on, self.cancel, &waiting);
        let turn = match sought.map_err(|error| target.failed(error))? {
            Lookup::Found(profile) => return Ok(profile),
            Lookup::Missing(turn) => turn,
            Lookup::Cancelled => return Err(target.cancelled()),
        };
        let trained_on = trained_on.words;
        if by_samples {
            self.say(format!("sampling {name} for BOLT, trained on {trained_on}"));
            let sampled = self.sample(target)?.for_bolt(target.build);
            let sampled = sampled.map_err(|reason| target.not_sampled(reason))?;
            self.say(format!("giving BOLT {} samples of {name}", sampled.samples));
            let kept = turn.keep_bolts_samples(target.build, bolt, &sampled, self.cancel);
            return kept.map_err(|error| target.failed(error))?.ok_or_else(|| target.cancelled());
        }
        self.say(format!("instrumenting {name} with BOLT"));
        let collecting = turn.begin_bolts(target.build, bolt, writer(target)?, self.cancel);
        let collecting = collecting.map_err(|error| target.failed(error))?;
        let collecting = collecting.ok_or_else(|| target.cancelled())?;
        self.say(format!("training {name} for BOLT on {trained_on}"));
        let instrumented = TrainingTarget { build: collecting.instrumented(), ..*target };
        let (environment, forget) = (Vec::new(), &|| collecting.forget());
        self.count(&instrumented, &Counting { environment, forget })?;
        collecting.finish().map_err(|error| target.failed(error))
    }

    fn say(&self, line: String) {
        (self.progress)(RunEvent::Stage(line));
    }

    /// Trains an instrumented build, which writes down what it counts.
    fn count(&self, target: &TrainingTarget<'_>, counting: &Counting<'_>) -> Result<(), RunError> {
        self.train(target, counting, |instance, clients| self.run_all(target, clients, instance))
    }

    /// What of a build runs while it is trained.
    fn sample(&self, target: &TrainingTarget<'_>) -> Result<Observed, RunError> {
        let nothing = Counting { environment: Vec::new(), forget: &|| Ok(()) };
        let sampled = self.train(target, &nothing, |instance, clients| {
            let process = instance.process()?;
            sampling::sample_while(process, || self.run_all(target, clients, instance))
        });
        sampled?.map_err(|reason| target.not_sampled(reason))
    }

    /// The experiment, with as many rows as it takes.
    fn small(&self) -> Experiment {
        let mut experiment = self.experiment.clone();
        experiment.workload.rows = experiment.workload.rows.min(MOST_ROWS);
        experiment
    }

    /// What the profile depends on besides the build; `how` it is collected, where there are several
    /// ways.
    fn trained_on(&self, target: &TrainingTarget<'_>, how: &str) -> TrainingId {
        let Experiment { workload, seed, .. } = self.experiment;
        let Training { words, microbenchmarks, time, .. } = target.training;
        let (tables, rows) = (workload.tables, workload.rows.min(MOST_ROWS));
        let words = words.join(" ");
        let words = format!("{words} ({tables} × {rows} rows, {time} of each, seed {seed}){how}");
        // Words may mean other microbenchmarks tomorrow, and settings make other code run.
        let system = match &target.candidate.system {
            System::Sqlite { config, .. } => json!(config),
            System::Private(server) => {
                let PrivateServer { engine, durability, configuration, statements, .. } = server;
                json!([engine, durability, configuration, statements])
            }
            System::Existing(_) => json!(null),
        };
        let clients = workload.most_clients();
        let whole = json!([microbenchmarks, time, tables, rows, seed, clients, system, how]);
        TrainingId { words, whole: whole.to_string() }
    }

    fn say_waiting(&self, name: &str) {
        self.say(format!("waiting for another dbdyno that collects the profile of {name}"));
    }

    /// Loads data, does `work` with an instance and the number of its clients, and ends it properly.
    fn train<T>(
        &self,
        target: &TrainingTarget<'_>,
        counting: &Counting<'_>,
        work: impl FnOnce(&mut Instance, u32) -> Result<T, WorkerError>,
    ) -> Result<T, RunError> {
        let TrainingTarget { candidate, build, .. } = *target;
        let environment = counting.environment.clone();
        let experiment = self.small();
        let deployment = match &candidate.system {
            System::Private(_) => {
                let program = Some(build.artifact.as_path());
                let plan = serving::plan_of(&experiment, candidate, program)?;
                Deployment::Private(Box::new(plan.with_environment(environment.clone())))
            }
            System::Sqlite { .. } | System::Existing(_) => {
                Deployment::Built(Box::new(build.clone()))
            }
        };
        let server_dirs = match &deployment {
            Deployment::Private(_) => Some(ServerDirs::open(&self.directory.data())?),
            Deployment::Built(_) | Deployment::Existing(_) => None,
        };
        let context = RunContext {
            experiment: &experiment,
            directory: self.directory.clone(),
            worker: self.worker,
            cpus: self.cpus.clone(),
            server_dirs,
            // A server has its own; its worker is not instrumented.
            environment: if candidate.system.is_embedded() { environment } else { Vec::new() },
        };
        let name = format!("training-{}", candidate.name);
        let candidate = ResolvedCandidate {
            name: name.clone(),
            role: Role::Candidate,
            spec: candidate.clone(),
            deployment,
            server_build: None,
            audit: None,
            samples: None,
            _held: None,
        };
        let home = context.home(&candidate, &name);
        home.remove()?;
        let forget = || (counting.forget)().map_err(|error| target.failed(error));
        // It was asked for its version by us, and what it wrote then is ours: as the user whom
        // servers run as it could not write there.
        forget()?;
        data::load(&context, &candidate, &home)?;
        // Loading is no part of what it is trained on.
        forget()?;
        let mut instance = Instance::at(candidate, home.clone());
        let clients = experiment.workload.most_clients();
        let outcome =
            instance.open(&context, clients, false).and_then(|()| work(&mut instance, clients));
        // Counts are written by what ends by itself.
        let closed = instance.close();
        home.remove()?;
        let done = outcome.and_then(|done| closed.map(|()| done));
        done.map_err(|source| RunError::Load { candidate: name.clone(), source })
    }

    fn run_all(
        &self,
        target: &TrainingTarget<'_>,
        clients: u32,
        instance: &mut Instance,
    ) -> Result<(), WorkerError> {
        let Training { microbenchmarks, time, .. } = target.training;
        for (position, microbenchmark) in (0..).zip(microbenchmarks) {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(WorkerError::NotStarted("training was stopped".to_owned()));
            }
            let worker = instance.worker_mut()?;
            let microbenchmark = microbenchmark.clone();
            worker.prepare(Prepare { microbenchmark, position, clients })?;
            let quota = Quota::Time(*time);
            worker.slice(SliceRequest { block: 0, lead_in: None, quota })?;
            worker.free_statements()?;
        }
        Ok(())
    }
}

/// Who writes the counts of an instrumented build.
fn writer(target: &TrainingTarget<'_>) -> Result<Option<ProfileWriter>, RunError> {
    let System::Private(server) = &target.candidate.system else { return Ok(None) };
    let candidate = || target.candidate.name.clone();
    let user = server_user(server.system)
        .map_err(|error| RunError::Server { candidate: candidate(), source: Box::new(error) })?;
    Ok(user.map(|(uid, gid)| ProfileWriter { uid, gid }))
}
