//! The candidates of a run and the control, resolved to the programs that they run.

pub(crate) mod auditing;
pub(crate) mod hosts;
pub(crate) mod server_plan;
pub(crate) mod server_process;

use std::sync::Arc;

use dbdyno_audit::Audit;
use dbdyno_builds::{Build, CacheLease, Release};
use dbdyno_engines::server::ServerPlan;
use dbdyno_hosts::HostConnection;
use dbdyno_relayout::Profile;
use dbdyno_results::Role;
use dbdyno_spec::CONTROL;
use dbdyno_spec::experiment::{Candidate, ExistingServer, Experiment, System};

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
    pub fn new(experiment: &Experiment, spec: &Candidate, deployment: Deployment) -> Self {
        let is_baseline = spec.name == experiment.baseline;
        Self {
            name: spec.name.clone(),
            role: if is_baseline { Role::Baseline } else { Role::Candidate },
            spec: spec.clone(),
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
    let mut resolved = Vec::new();
    for spec in &experiment.candidates {
        let System::Existing(server) = &spec.system else { continue };
        let server = ExistingServer { pid: None, ..server.clone() };
        let deployment = Deployment::Existing(Box::new(server));
        let one = ResolvedCandidate::new(experiment, spec, deployment);
        if one.role == Role::Baseline && experiment.control {
            resolved.push(one.control());
        }
        resolved.push(one);
    }
    resolved
}
