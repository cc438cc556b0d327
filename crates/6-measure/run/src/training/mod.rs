//! Training for profile-guided optimization: a build runs microbenchmarks while it is instrumented
//! or sampled.
//!
//! A compiler's profile is collected with a build that the compiler instrumented, or by sampling a
//! normal build; BOLT's with a copy of the finished build that BOLT instrumented, or by sampling.
//! The training is the same for all.

pub(crate) mod live;
pub(crate) mod sampling;

use std::sync::atomic::Ordering;

use dbdyno_builds::{
    Bolt, Build, BuildError, CachedBoltProfile, Lookup, Profile, ProfileWriter, Profiles,
    SampleTools, TrainingId,
};
use dbdyno_engines::server::server_user;
use dbdyno_machine::CpuAssignment;
use dbdyno_results::{Role, RunDirectory};
use dbdyno_spec::experiment::{Candidate, Experiment, PrivateServer, System, Training};
use dbdyno_types::build::BoltProfileMethod;
use dbdyno_worker::WorkerError;
use dbdyno_worker::protocol::{Prepare, Quota, SliceRequest};
use serde_json::json;

use crate::candidates::{Deployment, ResolvedCandidate, server_plan};
use crate::error::RunError;
use crate::instance::context::RunContext;
use crate::instance::{Instance, data};
use crate::options::WorkerProgram;
use crate::plan::script_data;
use crate::session::progress::{Progress, RunEvent};
use crate::training::sampling::{ProcessSamples, SamplingError};

/// Row limit: more rows do not change the profile, and an instrumented server loads them slowly.
const MAX_ROWS: u64 = 100_000;

/// Collects profiles.
pub(crate) struct PgoTrainer<'a> {
    pub experiment: &'a Experiment,
    pub directory: RunDirectory,
    pub worker: &'a WorkerProgram,
    pub cpus: CpuAssignment,
    pub progress: Progress<'a>,
}

/// A build to train.
#[derive(Clone, Copy)]
pub(crate) struct TrainingTarget<'a> {
    pub candidate: &'a Candidate,
    pub training: &'a Training,
    /// The build that runs: instrumented, or sampled.
    pub build: &'a Build,
}

impl TrainingTarget<'_> {
    fn failed(&self, error: BuildError) -> RunError {
        RunError::Build(vec![(self.candidate.name.clone(), error)])
    }

    fn not_sampled(&self, source: SamplingError) -> RunError {
        RunError::sampling(&self.candidate.name, &source)
    }

    fn cancelled(&self) -> RunError {
        self.failed(BuildError::Cancelled { what: self.build.to_string() })
    }
}

impl PgoTrainer<'_> {
    /// The profile for the candidate's compiler, from the cache or newly collected: with an
    /// instrumented build, or with `tools` from samples.
    pub fn compilers_profile(
        &self,
        target: &TrainingTarget<'_>,
        tools: Option<&SampleTools>,
        profiles: &Profiles,
    ) -> Result<Profile, RunError> {
        let name = &target.candidate.name;
        let trained_on = self.trained_on(target, "");
        let waiting = || self.say_waiting(name);
        let failed = |error| target.failed(error);
        let found = profiles.lookup(target.build, &trained_on, &self.worker.cancel, &waiting);
        let lock = match found.map_err(failed)? {
            Lookup::Found(profile) => return Ok(profile),
            Lookup::Missing(lock) => lock,
            Lookup::Cancelled => return Err(target.cancelled()),
        };
        let trained_on = trained_on.words;
        let Some(tools) = tools else {
            self.say(format!("training {name} on {trained_on}"));
            let collecting = lock.begin(target.build, writer(target)?).map_err(failed)?;
            self.count(target, collecting.environment(), &|| collecting.discard())?;
            return collecting.finish().map_err(failed);
        };
        self.say(format!("sampling {name}, trained on {trained_on}"));
        let code = self.sample(target)?.executed(target.build);
        let code = code.map_err(|error| target.not_sampled(error))?;
        let samples: u64 = code.iter().map(|code| code.samples).sum();
        self.say(format!("making a profile of {samples} samples of {name}"));
        lock.store_samples(target.build, &code, tools).map_err(failed)
    }

    /// The profile for BOLT, from the cache or newly collected: with a copy of the build that BOLT
    /// instruments, or from samples.
    pub fn bolts_profile(
        &self,
        target: &TrainingTarget<'_>,
        bolt: &Bolt,
        profiles: &Profiles,
    ) -> Result<CachedBoltProfile, RunError> {
        let by_samples = target.training.bolt_profile == BoltProfileMethod::Samples;
        let name = &target.candidate.name;
        let trained_on = self.trained_on(target, if by_samples { ", sampled" } else { "" });
        let waiting = || self.say_waiting(name);
        let failed = |error| target.failed(error);
        let cancel = &self.worker.cancel;
        let found = profiles.lookup_bolt(target.build, bolt, &trained_on, cancel, &waiting);
        let lock = match found.map_err(failed)? {
            Lookup::Found(profile) => return Ok(profile),
            Lookup::Missing(lock) => lock,
            Lookup::Cancelled => return Err(target.cancelled()),
        };
        let trained_on = trained_on.words;
        if by_samples {
            self.say(format!("sampling {name} for BOLT, trained on {trained_on}"));
            let sampled = self.sample(target)?.for_bolt(target.build);
            let sampled = sampled.map_err(|error| target.not_sampled(error))?;
            self.say(format!("giving BOLT {} samples of {name}", sampled.samples));
            let kept = lock.store_bolt_samples(target.build, bolt, &sampled, cancel);
            return kept.map_err(failed)?.ok_or_else(|| target.cancelled());
        }
        self.say(format!("instrumenting {name} with BOLT"));
        let collecting = lock.begin_bolt(target.build, bolt, writer(target)?, cancel);
        let collecting = collecting.map_err(failed)?.ok_or_else(|| target.cancelled())?;
        self.say(format!("training {name} for BOLT on {trained_on}"));
        let instrumented = TrainingTarget { build: collecting.instrumented(), ..*target };
        self.count(&instrumented, Vec::new(), &|| collecting.discard())?;
        collecting.finish().map_err(failed)
    }

    fn say(&self, line: String) {
        (self.progress)(RunEvent::Stage(line));
    }

    /// Trains an instrumented build, which writes its counts. `discard` discards those so far.
    fn count(
        &self,
        target: &TrainingTarget<'_>,
        environment: Vec<(String, String)>,
        discard: &dyn Fn() -> Result<(), BuildError>,
    ) -> Result<(), RunError> {
        self.train(target, environment, discard, |instance, clients| {
            self.run_all(target, clients, instance)
        })
    }

    /// Samples a build while it is trained.
    fn sample(&self, target: &TrainingTarget<'_>) -> Result<ProcessSamples, RunError> {
        let sampled = self.train(target, Vec::new(), &|| Ok(()), |instance, clients| {
            let process = instance.process()?;
            sampling::sample_while(process, || self.run_all(target, clients, instance))
        });
        sampled?.map_err(|error| target.not_sampled(error))
    }

    /// The experiment with the training's microbenchmarks, whose tables are loaded, and at most
    /// [`MAX_ROWS`] rows.
    fn training_experiment(&self, training: &Training) -> Result<Experiment, RunError> {
        let mut experiment = self.experiment.clone();
        experiment.workload.microbenchmarks.clone_from(&training.microbenchmarks);
        experiment.workload.rows = experiment.workload.rows.min(MAX_ROWS);
        // Its tables are others than those of microbenchmarks.
        experiment.insert_benchmark = None;
        script_data::assign(&mut experiment, &self.worker.cancel, self.progress)?;
        Ok(experiment)
    }

    /// What the profile depends on in addition to the build. `how` distinguishes ways to collect
    /// it.
    fn trained_on(&self, target: &TrainingTarget<'_>, how: &str) -> TrainingId {
        let Experiment { workload, seed, .. } = self.experiment;
        let Training { words, microbenchmarks, time, .. } = target.training;
        let (tables, rows) = (workload.tables, workload.rows.min(MAX_ROWS));
        let words = words.join(" ");
        let words = format!("{words} ({tables} × {rows} rows, {time} of each, seed {seed}){how}");
        // The words alone do not identify the work: their meaning and the settings may change.
        let system = match &target.candidate.system {
            System::Sqlite { config, .. } => json!(config),
            System::Private(server) => {
                let PrivateServer { engine, durability, configuration, statements, .. } = server;
                json!([engine, durability, configuration, statements, server.defaults])
            }
            System::Existing(_) => json!(null),
        };
        let clients = workload.most_clients();
        let mut whole = json!([microbenchmarks, time, tables, rows, seed, clients, system, how]);
        if let (Some(whole), false) = (whole.as_array_mut(), workload.setup.is_empty()) {
            whole.push(json!(workload.setup));
        }
        TrainingId { words, whole: whole.to_string() }
    }

    fn say_waiting(&self, name: &str) {
        self.say(format!("waiting for another dbdyno that collects the profile of {name}"));
    }

    /// Loads data, runs `work` with an instance and its number of clients, and shuts it down.
    fn train<T>(
        &self,
        target: &TrainingTarget<'_>,
        environment: Vec<(String, String)>,
        discard: &dyn Fn() -> Result<(), BuildError>,
        work: impl FnOnce(&mut Instance, u32) -> Result<T, WorkerError>,
    ) -> Result<T, RunError> {
        let TrainingTarget { candidate, training, build } = *target;
        let experiment = self.training_experiment(training)?;
        let deployment = match &candidate.system {
            System::Private(_) => {
                let program = Some(build.artifact.as_path());
                let plan = server_plan::plan_of(&experiment, candidate, program)?;
                Deployment::Private(Box::new(plan.with_environment(environment.clone())))
            }
            System::Sqlite { .. } | System::Existing(_) => {
                Deployment::Library(Box::new(build.clone()))
            }
        };
        let (directory, cpus) = (self.directory.clone(), self.cpus.clone());
        let mut context = RunContext::new(&experiment, None, directory, self.worker, cpus);
        if matches!(deployment, Deployment::Private(_)) {
            context.open_local()?;
        }
        // A server has the environment itself; its worker is not instrumented.
        if candidate.system.is_embedded() {
            context.environment = environment;
        }
        let name = format!("training-{}", candidate.name);
        let resolved = ResolvedCandidate {
            name: name.clone(),
            role: Role::Candidate,
            ..ResolvedCandidate::new(&experiment, candidate, deployment)
        };
        let location = context.data_location(&resolved, &name);
        location.remove()?;
        let discard = || discard().map_err(|error| target.failed(error));
        // The version query was counted, too.
        discard()?;
        data::load(&context, &resolved, &location)?;
        // Loading is no part of the training.
        discard()?;
        let mut instance = Instance::at(resolved, location.clone());
        let clients = experiment.workload.most_clients();
        let outcome =
            instance.open(&context, clients, false).and_then(|()| work(&mut instance, clients));
        // Counts are written on a clean exit.
        let closed = instance.close();
        location.remove_data()?;
        let done = outcome.and_then(|done| closed.map(|()| done));
        done.map_err(|source| RunError::load(&name, &source))
    }

    fn run_all(
        &self,
        target: &TrainingTarget<'_>,
        clients: u32,
        instance: &mut Instance,
    ) -> Result<(), WorkerError> {
        let Training { microbenchmarks, time, .. } = target.training;
        for (position, microbenchmark) in (0..).zip(microbenchmarks) {
            if self.worker.cancel.load(Ordering::Relaxed) {
                return Err(WorkerError::NotStarted("the training was cancelled".to_owned()));
            }
            let worker = instance.worker_mut()?;
            let microbenchmark = microbenchmark.clone();
            worker.prepare(Prepare { microbenchmark, position, clients })?;
            worker.slice(SliceRequest::of(Quota::Time(*time)))?;
            worker.free_statements()?;
        }
        Ok(())
    }
}

/// The user as whom an instrumented build writes its counts; `None` if it is dbdyno's user.
fn writer(target: &TrainingTarget<'_>) -> Result<Option<ProfileWriter>, RunError> {
    let System::Private(server) = &target.candidate.system else { return Ok(None) };
    let user = server_user(server.system)
        .map_err(|error| RunError::server(&target.candidate.name, error))?;
    Ok(user.map(|(uid, gid)| ProfileWriter { uid, gid }))
}
