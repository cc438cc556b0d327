//! Collecting profiles: a build runs microbenchmarks, instrumented or sampled.
//!
//! A compiler's profile is collected with a build that the compiler instrumented, or by sampling
//! one that it did not; BOLT's with a copy of a finished build that BOLT instrumented. What they run
//! is the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dbdyno_bench::protocol::Prepare;
use dbdyno_bench::slice::{Quota, SliceOrder};
use dbdyno_bench::worker::WorkerError;
use dbdyno_builds::{
    Bolt, BoltProfile, BoltSamples, Build, BuildError, Profile, Profiles, SampleTools,
};
use dbdyno_engines::server::Quarters;
use dbdyno_machine::Split;
use dbdyno_results::{Role, RunDirectory};
use dbdyno_spec::experiment::{Candidate, Experiment, System, Training};

use crate::candidates::{Contender, Subject, serving};
use crate::data;
use crate::error::RunError;
use crate::instances::{Instance, Site, WorkerProgram};
use crate::progress::{Event, Progress};
use crate::sampling::{self, Observed};

/// More rows than that teach nothing new, and an instrumented server loads them slowly.
const MOST_ROWS: u64 = 100_000;

/// What training takes.
pub(crate) struct Trainer<'a> {
    pub experiment: &'a Experiment,
    pub directory: RunDirectory,
    pub worker: &'a WorkerProgram,
    pub cpus: Split,
    pub cancel: &'a Arc<AtomicBool>,
    pub progress: Progress<'a>,
}

/// One training.
struct Lesson<'a> {
    candidate: &'a Candidate,
    training: &'a Training,
    /// What runs.
    build: &'a Build,
    environment: Vec<(String, String)>,
    /// Whether it is sampled meanwhile.
    sampled: bool,
    /// Forgets what was counted until now.
    forget: &'a dyn Fn() -> Result<(), BuildError>,
}

impl Trainer<'_> {
    /// The candidate's profile, collected with this build if it was not before.
    pub fn profile(
        &self,
        candidate: &Candidate,
        training: &Training,
        instrumented: &Build,
        profiles: &Profiles,
    ) -> Result<Profile, RunError> {
        let trained_on = self.describe(training);
        if let Some(profile) = profiles.find(instrumented, &trained_on) {
            return Ok(profile);
        }
        let failed = |error: BuildError| RunError::Build(vec![(candidate.name.clone(), error)]);
        let collecting = profiles.begin(instrumented, &trained_on).map_err(failed)?;
        (self.progress)(Event::Stage(format!("training {} on {trained_on}", candidate.name)));
        self.train(&Lesson {
            candidate,
            training,
            build: instrumented,
            environment: collecting.environment(),
            sampled: false,
            forget: &|| collecting.forget(),
        })?;
        collecting.finish().map_err(failed)
    }

    /// The candidate's profile, for which this build is sampled if it was not before.
    pub fn sampled_profile(
        &self,
        candidate: &Candidate,
        training: &Training,
        build: &Build,
        profiles: &Profiles,
        tools: &SampleTools,
    ) -> Result<Profile, RunError> {
        let trained_on = self.describe(training);
        if let Some(profile) = profiles.find(build, &trained_on) {
            return Ok(profile);
        }
        let name = &candidate.name;
        (self.progress)(Event::Stage(format!("sampling {name}, trained on {trained_on}")));
        let code = self.observe(candidate, training, build, |seen| seen.executed(build))?;
        let samples: u64 = code.iter().map(|code| code.samples).sum();
        (self.progress)(Event::Stage(format!("making a profile of {samples} samples of {name}")));
        profiles
            .keep_samples(build, &trained_on, &code, tools)
            .map_err(|error| RunError::Build(vec![(name.clone(), error)]))
    }

    /// The candidate's profile for BOLT, for which this build is sampled if it was not before.
    pub fn bolts_sampled_profile(
        &self,
        candidate: &Candidate,
        training: &Training,
        base: &Build,
        bolt: &Bolt,
        profiles: &Profiles,
    ) -> Result<BoltProfile, RunError> {
        let trained_on = format!("{}, sampled", self.describe(training));
        if let Some(profile) = profiles.find_bolts(base, bolt, &trained_on) {
            return Ok(profile);
        }
        let name = &candidate.name;
        (self.progress)(Event::Stage(format!("sampling {name} for BOLT, trained on {trained_on}")));
        let (text, samples) =
            self.observe(candidate, training, base, |seen| seen.for_bolt(base))?;
        (self.progress)(Event::Stage(format!("giving BOLT {samples} samples of {name}")));
        let failed = |error: BuildError| RunError::Build(vec![(name.clone(), error)]);
        let sampled = BoltSamples { text: &text, samples };
        let kept = profiles.keep_bolts_samples(base, bolt, &trained_on, sampled, self.cancel);
        kept.map_err(failed)?
            .ok_or_else(|| failed(BuildError::Cancelled { what: base.to_string() }))
    }

    /// What is made of the samples of a build that is trained.
    fn observe<T>(
        &self,
        candidate: &Candidate,
        training: &Training,
        build: &Build,
        make: impl FnOnce(&Observed) -> Result<T, String>,
    ) -> Result<T, RunError> {
        let lesson = Lesson {
            candidate,
            training,
            build,
            environment: Vec::new(),
            sampled: true,
            forget: &|| Ok(()),
        };
        let observed = self.train(&lesson)?.ok_or_else(|| "it was not sampled".to_owned());
        let failed = |reason| RunError::Sampling { candidate: candidate.name.clone(), reason };
        observed.and_then(|observed| make(&observed)).map_err(failed)
    }

    /// The candidate's profile for BOLT, collected with a copy of this build if it was not before.
    pub fn bolts_profile(
        &self,
        candidate: &Candidate,
        training: &Training,
        base: &Build,
        bolt: &Bolt,
        profiles: &Profiles,
    ) -> Result<BoltProfile, RunError> {
        let trained_on = self.describe(training);
        if let Some(profile) = profiles.find_bolts(base, bolt, &trained_on) {
            return Ok(profile);
        }
        let name = &candidate.name;
        let failed = |error: BuildError| RunError::Build(vec![(name.clone(), error)]);
        (self.progress)(Event::Stage(format!("instrumenting {name} with BOLT")));
        let collecting = profiles.begin_bolts(base, bolt, &trained_on, self.cancel);
        let Some(collecting) = collecting.map_err(failed)? else {
            return Err(failed(BuildError::Cancelled { what: base.to_string() }));
        };
        (self.progress)(Event::Stage(format!("training {name} for BOLT on {trained_on}")));
        self.train(&Lesson {
            candidate,
            training,
            build: collecting.instrumented(),
            environment: Vec::new(),
            sampled: false,
            forget: &|| collecting.forget(),
        })?;
        collecting.finish().map_err(failed)
    }

    /// The experiment, with as many rows as it takes.
    fn small(&self) -> Experiment {
        let mut experiment = self.experiment.clone();
        experiment.workload.rows = experiment.workload.rows.min(MOST_ROWS);
        experiment
    }

    /// What the profile depends on besides the build, for people.
    fn describe(&self, training: &Training) -> String {
        let workload = &self.experiment.workload;
        format!(
            "{} ({} × {} rows, {} of each, seed {})",
            training.words.join(" "),
            workload.tables,
            workload.rows.min(MOST_ROWS),
            training.time,
            self.experiment.seed
        )
    }

    /// Runs it all; what ran meanwhile, if it is sampled.
    fn train(&self, lesson: &Lesson<'_>) -> Result<Option<Observed>, RunError> {
        let Lesson { candidate, build, forget, .. } = *lesson;
        let environment = lesson.environment.clone();
        let experiment = self.small();
        let subject = match &candidate.system {
            System::Private(_) => {
                let program = Some(build.artifact.as_path());
                let plan = serving::plan_of(&experiment, candidate, program)?;
                Subject::Private(Box::new(plan.with_environment(environment.clone())))
            }
            System::Sqlite { .. } | System::Existing(_) => Subject::Built(Box::new(build.clone())),
        };
        let quarters = match &subject {
            Subject::Private(_) => Some(Quarters::open(&self.directory.data())?),
            Subject::Built(_) | Subject::Existing(_) => None,
        };
        let site = Site {
            experiment: &experiment,
            directory: self.directory.clone(),
            worker: self.worker,
            cpus: self.cpus.clone(),
            quarters,
            // A server has its own; its worker is not instrumented.
            environment: if candidate.system.is_embedded() { environment } else { Vec::new() },
        };
        let name = format!("training-{}", candidate.name);
        let contender = Contender {
            name: name.clone(),
            role: Role::Candidate,
            candidate: candidate.clone(),
            subject,
            server_build: None,
            audit: None,
        };
        let home = site.home(&contender, &name);
        home.remove()?;
        let forget =
            || forget().map_err(|error| RunError::Build(vec![(candidate.name.clone(), error)]));
        // It was asked for its version by us, and what it wrote then is ours: as the user whom
        // servers run as it could not write there.
        forget()?;
        data::load(&site, &contender, &home)?;
        // Loading is no part of what it is trained on.
        forget()?;
        let mut instance = Instance::at(contender, home.clone());
        let failed = |source| RunError::Load { candidate: name.clone(), source };
        let clients = experiment.workload.most_clients();
        let outcome = instance
            .open(&site, clients, false)
            .and_then(|()| self.run_sampled(lesson, clients, &mut instance));
        // Counts are written by what ends by itself.
        let closed = instance.close();
        home.remove()?;
        let observed = outcome.and_then(|seen| closed.map(|()| seen)).map_err(failed)?;
        observed.map_err(|reason| RunError::Sampling { candidate: candidate.name.clone(), reason })
    }

    /// The outer error is that of the training, the inner one that of sampling.
    fn run_sampled(
        &self,
        lesson: &Lesson<'_>,
        clients: u32,
        instance: &mut Instance,
    ) -> Result<Result<Option<Observed>, String>, WorkerError> {
        if !lesson.sampled {
            self.run_all(lesson.training, clients, instance)?;
            return Ok(Ok(None));
        }
        let process = instance.process()?;
        let observed =
            sampling::sample_while(process, || self.run_all(lesson.training, clients, instance))?;
        Ok(observed.map(Some))
    }

    fn run_all(
        &self,
        training: &Training,
        clients: u32,
        instance: &mut Instance,
    ) -> Result<(), WorkerError> {
        for (position, microbenchmark) in (0..).zip(&training.microbenchmarks) {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(WorkerError::NotStarted("training was stopped".to_owned()));
            }
            let worker = instance.worker_mut()?;
            let microbenchmark = microbenchmark.clone();
            worker.prepare(Prepare { microbenchmark, position, clients })?;
            let quota = Quota::Time(training.time);
            worker.slice(SliceOrder { block: 0, lead_in: None, quota })?;
            worker.forget()?;
        }
        Ok(())
    }
}
