//! Servers that are not compiled for the run, and the plans of private servers.

use std::path::Path;

use dbdyno_builds::Release;
use dbdyno_engines::server::{DataShape, Installation, ServerPlan};
use dbdyno_hosts::HostConnection;
use dbdyno_hosts::protocol::PlanRequest;
use dbdyno_record::ReleaseOrigin;
use dbdyno_spec::experiment::{Candidate, Experiment, PrivateServer, System};

use crate::error::RunError;
use crate::hosts::Hosts;
use crate::resolved_candidate::Deployment;

/// The installed, unpacked and existing servers among the candidates, in the order of the list; `None`
/// for a candidate that is to be compiled. `releases` are those of the candidates.
pub(crate) fn find(
    experiment: &Experiment,
    candidates: &[&Candidate],
    releases: &[Option<Release>],
    hosts: &Hosts,
) -> Result<Vec<Option<Deployment>>, RunError> {
    let find = |(candidate, release): (&&Candidate, &Option<Release>)| match &candidate.system {
        system if system.build().is_some() => Ok(None),
        System::Existing(server) => Ok(Some(Deployment::Existing(Box::new(server.clone())))),
        System::Sqlite { .. } | System::Private(_) => {
            let plan = match hosts.of(candidate)? {
                Some(host) => plan_on_host(experiment, candidate, host)?,
                None => plan_of(experiment, candidate, release.as_ref().map(Release::program))?,
            };
            Ok(Some(Deployment::Private(Box::new(plan))))
        }
    };
    candidates.iter().zip(releases).map(find).collect()
}

/// The plan of a private server: with the program `made`, which was compiled or unpacked for the run,
/// else the one that the experiment names, else the installed one.
///
/// # Panics
/// The candidate is not a private server.
pub(crate) fn plan_of(
    experiment: &Experiment,
    candidate: &Candidate,
    made: Option<&Path>,
) -> Result<ServerPlan, RunError> {
    let System::Private(server) = &candidate.system else {
        panic!("{} is no private server", candidate.name);
    };
    let plan = plan(server, made, shape(experiment));
    plan.map_err(|source| RunError::Server {
        candidate: candidate.name.clone(),
        source: Box::new(source),
    })
}

fn plan_on_host(
    experiment: &Experiment,
    candidate: &Candidate,
    host: &HostConnection,
) -> Result<ServerPlan, RunError> {
    let System::Private(server) = &candidate.system else {
        panic!("{} is no private server", candidate.name);
    };
    let plan = host.plan(PlanRequest {
        system: server.system,
        engine: server.engine,
        program: server.program.clone(),
        durability: server.durability,
        configuration: server.configuration.clone(),
        shape: shape(experiment),
    });
    plan.map_err(|source| match source.is_lost() {
        true => source.into(),
        false => RunError::OnHost { candidate: candidate.name.clone(), source },
    })
}

fn shape(experiment: &Experiment) -> DataShape {
    let workload = &experiment.workload;
    DataShape { tables: workload.tables, rows: workload.rows, clients: workload.most_clients() }
}

fn plan(
    server: &PrivateServer,
    made: Option<&Path>,
    shape: DataShape,
) -> Result<ServerPlan, dbdyno_engines::server::ServerError> {
    let (system, engine) = (server.system, server.engine);
    let installation = match (&server.release, made) {
        (Some(ReleaseOrigin::Installed { name }), None) => {
            Installation::of_release(system, engine, name)?
        }
        (_, made) => Installation::find(system, engine, made.or(server.program.as_deref()))?,
    };
    let overrides = server.configuration.clone();
    ServerPlan::new(installation, server.engine, server.durability, overrides, shape)
}
