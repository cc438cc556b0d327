//! Collecting profiles: an instrumented build runs microbenchmarks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dbdyno_bench::protocol::Prepare;
use dbdyno_bench::slice::{Quota, SliceOrder};
use dbdyno_bench::worker::WorkerError;
use dbdyno_builds::{Build, BuildError, Collecting, Profile, Profiles};
use dbdyno_engines::server::Quarters;
use dbdyno_machine::Split;
use dbdyno_results::{Role, RunDirectory};
use dbdyno_spec::experiment::{Candidate, Experiment, System, Training};

use crate::candidates::{Contender, Subject, serving};
use crate::data;
use crate::error::RunError;
use crate::instances::{Instance, Site, WorkerProgram};
use crate::progress::{Event, Progress};

/// What training takes.
pub(crate) struct Trainer<'a> {
    pub experiment: &'a Experiment,
    pub directory: RunDirectory,
    pub worker: &'a WorkerProgram,
    pub cpus: Split,
    pub cancel: &'a Arc<AtomicBool>,
    pub progress: Progress<'a>,
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
        self.train(candidate, training, instrumented, &collecting)?;
        collecting.finish().map_err(failed)
    }

    /// What the profile depends on besides the build, for people.
    fn describe(&self, training: &Training) -> String {
        let workload = &self.experiment.workload;
        format!(
            "{} ({} × {} rows, {} of each, seed {})",
            training.words.join(" "),
            workload.tables,
            workload.rows,
            training.time,
            self.experiment.seed
        )
    }

    fn train(
        &self,
        candidate: &Candidate,
        training: &Training,
        instrumented: &Build,
        collecting: &Collecting<'_>,
    ) -> Result<(), RunError> {
        let environment = collecting.environment();
        let subject = match &candidate.system {
            System::Private(_) => {
                let program = Some(instrumented.artifact.as_path());
                let plan = serving::plan_of(self.experiment, candidate, program)?;
                Subject::Private(Box::new(plan.with_environment(environment.clone())))
            }
            System::Sqlite { .. } | System::Existing(_) => {
                Subject::Built(Box::new(instrumented.clone()))
            }
        };
        let quarters = match &subject {
            Subject::Private(_) => Some(Quarters::open(&self.directory.data())?),
            Subject::Built(_) | Subject::Existing(_) => None,
        };
        let site = Site {
            experiment: self.experiment,
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
        data::load(&site, &contender, &home)?;
        // Loading is no part of what it is trained on.
        collecting
            .forget()
            .map_err(|error| RunError::Build(vec![(candidate.name.clone(), error)]))?;
        let mut instance = Instance::at(contender, home.clone());
        let failed = |source| RunError::Load { candidate: name.clone(), source };
        let outcome = self.run_all(&site, training, &mut instance);
        // Counts are written by what ends by itself.
        let outcome = outcome.and(instance.close());
        home.remove()?;
        outcome.map_err(failed)
    }

    fn run_all(
        &self,
        site: &Site<'_>,
        training: &Training,
        instance: &mut Instance,
    ) -> Result<(), WorkerError> {
        let clients = self.experiment.workload.most_clients();
        instance.open(site, clients, false)?;
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
