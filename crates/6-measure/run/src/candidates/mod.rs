//! The candidates of a run and the control, resolved to the programs that they run.

pub(crate) mod auditing;
pub(crate) mod building;
pub(crate) mod hosts;
pub(crate) mod server_plan;
pub(crate) mod server_process;

pub(crate) use building::build as build_all;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use dbdyno_audit::Audit;
use dbdyno_builds::{Build, CacheLease, Release};
use dbdyno_engines::server::ServerPlan;
use dbdyno_hosts::HostConnection;
use dbdyno_relayout::Profile;
use dbdyno_results::Role;
use dbdyno_spec::CONTROL;
use dbdyno_spec::experiment::{Candidate, ExistingServer, Experiment, System};

use crate::candidates::building::BuiltCandidate;
use crate::candidates::hosts::{Copying, Hosts};
use crate::error::RunError;
use crate::training::PgoTrainer;
use crate::training::sampling::SamplingError;

/// Builds libraries and servers, finds installed programs, and lists the candidates and the
/// control: the baseline first, the control last.
pub(crate) fn resolve_all(
    experiment: &Experiment,
    cache: Option<PathBuf>,
    trainer: &PgoTrainer<'_>,
    hosts: &Hosts,
) -> Result<Vec<ResolvedCandidate>, RunError> {
    let baseline = experiment.baseline_candidate();
    let others = experiment.candidates.iter().filter(|candidate| candidate.name != baseline.name);
    let candidates: Vec<&Candidate> = std::iter::once(baseline).chain(others).collect();
    // First, so that a missing program is reported before anything is compiled.
    let (cancel, progress) = (trainer.cancel, trainer.progress);
    let copying = Copying { progress, cancel };
    let releases = building::obtain_all(&candidates, cache.as_deref(), cancel, progress)?;
    let servers = server_plan::find(experiment, &candidates, &releases, hosts, copying)?;
    let builds = building::build(&candidates, cache, trainer)?;
    tracing::info!(candidates = candidates.len(), "found all servers and builds");
    let samples = reused_samples(&candidates, &builds)?;
    let mut resolved = Vec::new();
    let parts =
        candidates.into_iter().zip(servers.into_iter().zip(releases)).zip(builds).zip(samples);
    for (number, (((spec, (server, release)), built), samples)) in parts.enumerate() {
        let role = if number == 0 { Role::Baseline } else { Role::Candidate };
        let of =
            |deployment| ResolvedCandidate::new(spec.name.clone(), role, spec.clone(), deployment);
        resolved.push(match (server, built) {
            (Some(server), _) => {
                let host = hosts.of(spec)?.cloned();
                ResolvedCandidate { host, samples, release, ..of(server) }
            }
            (None, Some(BuiltCandidate { build, audit, held, .. })) => {
                let build = Box::new(build);
                let host = hosts.of(spec)?;
                let (deployment, server_build) = if matches!(spec.system, System::Private(_)) {
                    let plan = match host {
                        Some(host) => server_plan::plan_of_build_on_host(
                            experiment, spec, host, &build, copying,
                        )?,
                        None => server_plan::plan_of(experiment, spec, Some(&build.artifact))?,
                    };
                    (Deployment::Private(Box::new(plan)), Some(build))
                } else {
                    (Deployment::Library(build), None)
                };
                ResolvedCandidate {
                    host: host.cloned(),
                    server_build,
                    audit: Some(audit),
                    samples,
                    _held: Some(held),
                    ..of(deployment)
                }
            }
            (None, None) => unreachable!("a candidate is a server, or it was built"),
        });
    }
    if experiment.control {
        resolved.push(resolved[0].control());
    }
    Ok(resolved)
}

/// A candidate or the control, ready to start.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedCandidate {
    /// Its name in all results.
    pub name: String,
    pub role: Role,
    pub spec: Candidate,
    pub deployment: Deployment,
    /// The host that its server runs on, where its usage is read; `None` for this machine.
    pub host: Option<HostConnection>,
    /// The build of its private server, if it was compiled for the run.
    pub server_build: Option<Box<Build>>,
    /// The release that its private server was unpacked from; keeps it in the cache.
    pub release: Option<Release>,
    pub audit: Option<Arc<Audit>>,
    /// Samples for the live optimizer, if it does not sample the server.
    pub samples: Option<Arc<Profile>>,
    /// Locks that keep its builds in the cache.
    pub _held: Option<Arc<Vec<CacheLease>>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Deployment {
    /// A library that was compiled for the run and is loaded into the worker.
    Library(Box<Build>),
    /// A server that dbdyno starts.
    Private(Box<ServerPlan>),
    /// An existing server; for the control, with another schema than in the experiment.
    Existing(Box<ExistingServer>),
}

impl ResolvedCandidate {
    /// A candidate that was not compiled.
    pub fn new(name: String, role: Role, spec: Candidate, deployment: Deployment) -> Self {
        Self {
            name,
            role,
            spec,
            deployment,
            host: None,
            server_build: None,
            release: None,
            audit: None,
            samples: None,
            _held: None,
        }
    }

    /// Its build, if it was compiled.
    pub fn build(&self) -> Option<&Build> {
        match &self.deployment {
            Deployment::Library(build) => Some(build),
            Deployment::Private(_) | Deployment::Existing(_) => self.server_build.as_deref(),
        }
    }

    /// The control of a run with this baseline.
    pub fn control(&self) -> Self {
        let mut control = Self { name: CONTROL.to_owned(), role: Role::Control, ..self.clone() };
        if let Deployment::Existing(server) = &mut control.deployment {
            // Both have tables of the same names on the same server.
            **server = server.for_control();
        }
        control
    }
}

/// The candidates on existing servers, for the removal of their schemas: without the servers'
/// processes, which may have ended.
pub(crate) fn on_existing_servers(experiment: &Experiment) -> Vec<ResolvedCandidate> {
    let baseline = &experiment.baseline_candidate().name;
    let mut resolved = Vec::new();
    for spec in &experiment.candidates {
        let System::Existing(server) = &spec.system else { continue };
        let is_baseline = spec.name == *baseline;
        let role = if is_baseline { Role::Baseline } else { Role::Candidate };
        let server = ExistingServer { pid: None, ..server.clone() };
        let deployment = Deployment::Existing(Box::new(server));
        let one = ResolvedCandidate::new(spec.name.clone(), role, spec.clone(), deployment);
        if is_baseline && experiment.control {
            resolved.push(one.control());
        }
        resolved.push(one);
    }
    resolved
}

/// The samples for each candidate, in the order of the list.
pub(super) fn reused_samples(
    candidates: &[&Candidate],
    builds: &[Option<BuiltCandidate>],
) -> Result<Vec<Option<Arc<Profile>>>, RunError> {
    let mut all = Vec::new();
    for (candidate, own) in candidates.iter().zip(builds) {
        let name = candidate.live.as_ref().and_then(|live| live.samples_of.as_deref());
        let Some(name) = name else {
            all.push(None);
            continue;
        };
        let index = candidates.iter().position(|other| other.name == name);
        let other = index.and_then(|index| builds[index].as_ref());
        let samples = read(own.as_ref(), other).map_err(|source| {
            let candidate_of = name.to_owned();
            let reused =
                SamplingError::Reused { candidate: candidate_of, source: Box::new(source) };
            RunError::sampling(&candidate.name, &reused)
        })?;
        all.push(Some(Arc::new(samples)));
    }
    Ok(all)
}

fn read(
    own: Option<&BuiltCandidate>,
    other: Option<&BuiltCandidate>,
) -> Result<Profile, SamplingError> {
    let (own, other) = own.zip(other).ok_or(SamplingError::NoSamples)?;
    let base = other.build.bolt.as_ref().map(|bolt| bolt.base);
    if base != Some(own.build.fingerprint) {
        return Err(SamplingError::OtherBuild(own.build.fingerprint.short()));
    }
    let path = other.samples.as_ref().ok_or(SamplingError::NoSamples)?;
    let text = fs::read(path).map_err(|source| SamplingError::Io { path: path.clone(), source })?;
    Ok(serde_json::from_slice(&text)?)
}
