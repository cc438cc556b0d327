//! From the experiment's candidates to what takes part: builds, installed servers, servers that
//! run already.

mod building;
mod given;
mod record;
pub(crate) mod serving;

pub(crate) use building::build as build_all;

use std::path::PathBuf;
use std::sync::Arc;

use dbdyno_audit::Audit;
use dbdyno_builds::{Build, CacheLease};
use dbdyno_engines::server::ServerPlan;
use dbdyno_relayout::Profile;
use dbdyno_results::Role;
use dbdyno_spec::experiment::{Candidate, ExistingServer, Experiment, System};

use building::Built;

use crate::error::RunError;
use crate::pgo_training::PgoTrainer;

/// The name of the second instance of the baseline.
const CONTROL: &str = "control";

/// One of the candidates, or the control, with what it takes to start it.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedCandidate {
    /// Its name in all results.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// What the experiment says of it.
    pub spec: Candidate,
    /// What it runs.
    pub deployment: Deployment,
    /// How its server was compiled, where it was compiled for the run.
    pub server_build: Option<Box<Build>>,
    /// The flag audit of what was compiled for it.
    pub audit: Option<Arc<Audit>>,
    /// What the live optimizer is given, where it does not sample the server.
    pub samples: Option<Arc<Profile>>,
    /// Keeps in the cache what was compiled, as long as it takes part.
    pub _held: Option<Arc<Vec<CacheLease>>>,
}

impl ResolvedCandidate {
    /// What was compiled for it.
    pub fn build(&self) -> Option<&Build> {
        match &self.deployment {
            Deployment::Built(build) => Some(build),
            Deployment::Private(_) | Deployment::Existing(_) => self.server_build.as_deref(),
        }
    }
}

/// What a candidate runs.
#[derive(Clone, Debug)]
pub(crate) enum Deployment {
    /// A library of ours, inside the worker.
    Built(Box<Build>),
    /// A server that we start.
    Private(Box<ServerPlan>),
    /// A server that is there; for the control with another schema than the experiment names.
    Existing(Box<ExistingServer>),
}

/// Builds and finds everything, and lists who takes part: the baseline first, the control last.
pub(crate) fn find_all(
    experiment: &Experiment,
    cache: Option<PathBuf>,
    trainer: &PgoTrainer<'_>,
) -> Result<Vec<ResolvedCandidate>, RunError> {
    let baseline = experiment.baseline_candidate();
    let others = experiment.candidates.iter().filter(|candidate| candidate.name != baseline.name);
    let candidates: Vec<&Candidate> = std::iter::once(baseline).chain(others).collect();
    // What is missing is known at once, before anything is compiled.
    let servers = serving::find(experiment, &candidates)?;
    let mut builds = building::build(&candidates, cache, trainer)?;
    tracing::info!(candidates = candidates.len(), "found all servers and builds");
    let given = given::samples(&candidates, &builds)?;
    let mut servers: Vec<Option<Deployment>> = servers;
    let mut resolved = Vec::new();
    for (number, (candidate, samples)) in candidates.into_iter().zip(given).enumerate() {
        let (build, audit, held) = match builds[number].take() {
            Some(Built { build, audit, held, .. }) => {
                (Some(Box::new(build)), Some(audit), Some(held))
            }
            None => (None, None, None),
        };
        let (deployment, server_build) = match (&candidate.system, servers[number].take(), build) {
            (_, Some(server), _) => (server, None),
            (System::Private(_), None, Some(build)) => {
                let plan = serving::plan_of(experiment, candidate, Some(&build.artifact))?;
                (Deployment::Private(Box::new(plan)), Some(build))
            }
            (_, None, Some(build)) => (Deployment::Built(build), None),
            (_, None, None) => unreachable!("a candidate is a server, or it was built"),
        };
        resolved.push(ResolvedCandidate {
            name: candidate.name.clone(),
            role: if number == 0 { Role::Baseline } else { Role::Candidate },
            spec: candidate.clone(),
            deployment,
            server_build,
            audit,
            samples,
            _held: held,
        });
    }
    if experiment.control {
        let control = control(&resolved[0]);
        resolved.push(control);
    }
    Ok(resolved)
}

/// Those candidates whose tables lie on servers that run already.
pub(crate) fn existing(experiment: &Experiment) -> Vec<ResolvedCandidate> {
    let baseline = &experiment.baseline_candidate().name;
    let mut candidates = Vec::new();
    for candidate in &experiment.candidates {
        let System::Existing(server) = &candidate.system else { continue };
        let is_baseline = candidate.name == *baseline;
        let candidate = ResolvedCandidate {
            name: candidate.name.clone(),
            role: if is_baseline { Role::Baseline } else { Role::Candidate },
            spec: candidate.clone(),
            deployment: Deployment::Existing(Box::new(server.clone())),
            server_build: None,
            audit: None,
            samples: None,
            _held: None,
        };
        if is_baseline && experiment.control {
            candidates.push(control(&candidate));
        }
        candidates.push(candidate);
    }
    candidates
}

fn control(baseline: &ResolvedCandidate) -> ResolvedCandidate {
    let mut control =
        ResolvedCandidate { name: CONTROL.to_owned(), role: Role::Control, ..baseline.clone() };
    if let Deployment::Existing(server) = &mut control.deployment {
        // The same server cannot hold the same tables twice.
        **server = server.for_control();
    }
    control
}
