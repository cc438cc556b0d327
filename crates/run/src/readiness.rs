//! Whether this machine and the existing servers are ready for a run: for `dbdyno check`.

use std::collections::BTreeSet;
use std::path::Path;

use dbdyno_builds::{Bolt, Compiler, SourceOrigin};
use dbdyno_engines::server::check_settings;
use dbdyno_machine::facts::DiskFacts;
use dbdyno_record::{RunId, RunIdentity};
use dbdyno_spec::experiment::{Build, Candidate, Experiment, System};
use dbdyno_units::Bytes;

use crate::access;
use crate::context::WorkerProgram;
use crate::cpus::divide_cpus;
use crate::data::planned_space;
use crate::resolved_candidate::Deployment;
use crate::server_plan;
use crate::server_process::describe_process;

/// What a run needs of this machine and of existing servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// What was found: label and value.
    pub found: Vec<(String, String)>,
    /// What is missing or wrong, each with what to do.
    pub problems: Vec<String>,
}

impl Readiness {
    /// Looks for programs and compilers, logs in to existing servers, and compares the data with the
    /// free disk space. Changes nothing. `run` is the run directory, which does not have to exist.
    ///
    /// Call it on the main thread: workers end with the thread that started them.
    #[must_use]
    pub fn of(experiment: &Experiment, run: &Path, worker: &WorkerProgram) -> Self {
        let mut readiness = Self::default();
        if let Err(error) = divide_cpus(experiment) {
            readiness.problems.push(error.to_string());
        }
        let mut compilers = BTreeSet::new();
        for candidate in &experiment.candidates {
            match (candidate.system.build(), &candidate.system) {
                (Some(build), system) => {
                    if compilers.insert(&build.compiler) {
                        readiness.compiler(&build.compiler);
                    }
                    readiness.build(candidate, build);
                    if let System::Private(server) = system
                        && let Err(error) = check_settings(server.system, &server.configuration)
                    {
                        readiness.problem(&candidate.name, error);
                    }
                }
                (None, System::Private(_)) => readiness.program(experiment, candidate),
                (None, System::Existing(_) | System::Sqlite { .. }) => {}
            }
        }
        readiness.existing_servers(experiment, worker);
        readiness.disk(experiment, run);
        readiness
    }

    fn add(&mut self, label: &str, value: String) {
        self.found.push((label.to_owned(), value));
    }

    fn problem(&mut self, candidate: &str, what: impl std::fmt::Display) {
        self.problems.push(format!("candidate {candidate}: {what}"));
    }

    fn compiler(&mut self, name: &str) {
        match Compiler::find(name) {
            Ok(compiler) => self.add(name, compiler.to_string()),
            Err(error) => self.problems.push(error.to_string()),
        }
    }

    /// The parts of a build that are on this machine. Sources that are to be fetched are not looked for.
    fn build(&mut self, candidate: &Candidate, build: &Build) {
        if let SourceOrigin::Path(path) = &build.source
            && !path.is_dir()
        {
            self.problem(
                &candidate.name,
                format!("there is no source directory {}", path.display()),
            );
        }
        let uses_bolt = build.resolved_variant().is_ok_and(|variant| variant.bolt) && build.bolt;
        if uses_bolt && let Err(error) = Bolt::find() {
            self.problem(&candidate.name, error);
        }
    }

    /// The installed program of a private server, and whether it accepts the settings' names.
    fn program(&mut self, experiment: &Experiment, candidate: &Candidate) {
        match server_plan::find(experiment, &[candidate]) {
            Ok(deployments) => {
                for deployment in deployments.into_iter().flatten() {
                    if let Deployment::Private(plan) = deployment {
                        let program = plan.installation();
                        let path = program.program.display();
                        self.add(&candidate.name, format!("{path}, version {}", program.version));
                    }
                }
            }
            Err(error) => self.problems.push(error.to_string()),
        }
    }

    fn existing_servers(&mut self, experiment: &Experiment, worker: &WorkerProgram) {
        // A run that does not exist: all schemas belong to others.
        let nobody = RunIdentity::new(RunId::from_random([0; 16]), "", "");
        for (name, checked) in access::check_all(experiment, worker, &nobody) {
            let version = match checked {
                Ok(version) => version,
                Err(error) => {
                    self.problem(&name, error);
                    continue;
                }
            };
            // The control is on the baseline's server.
            let candidate = experiment.candidates.iter().find(|one| one.name == name);
            let Some(System::Existing(server)) = candidate.map(|one| &one.system) else { continue };
            match describe_process(server) {
                Ok(process) => {
                    let (title, address) = (server.system.title(), &server.target.address);
                    self.add(&name, format!("{title} {version} at {address}, {process}"));
                }
                Err(reason) => self.problem(&name, reason),
            }
        }
    }

    fn disk(&mut self, experiment: &Experiment, run: &Path) {
        for (path, needed) in planned_space(experiment, run) {
            // Unknown free space is no problem.
            let Some(DiskFacts { free, .. }) = DiskFacts::of(&path) else { continue };
            if needed == Bytes::default() {
                continue;
            }
            let path = path.display();
            self.add("disk", format!("about {needed} needed, {free} free in {path}"));
            if free < needed {
                self.problems.push(format!(
                    "the data needs about {needed} in {path}, but only {free} are free: free disk \
                     space, choose another disk with --out, or lower `rows` or `tables`"
                ));
            }
        }
    }
}
