//! Servers that are not compiled for the run, and the plans of private servers.

use std::path::Path;

use dbdyno_engines::server::{DataShape, Installation, ServerPlan};
use dbdyno_spec::experiment::{Candidate, Experiment, PrivateServer, System};

use crate::error::RunError;
use crate::resolved_candidate::Deployment;

/// The installed and existing servers among the candidates, in the order of the list; `None` for a
/// candidate that is to be compiled.
pub(crate) fn find(
    experiment: &Experiment,
    candidates: &[&Candidate],
) -> Result<Vec<Option<Deployment>>, RunError> {
    let find = |candidate: &&Candidate| match &candidate.system {
        system if system.build().is_some() => Ok(None),
        System::Existing(server) => Ok(Some(Deployment::Existing(Box::new(server.clone())))),
        System::Sqlite { .. } | System::Private(_) => plan_of(experiment, candidate, None)
            .map(|plan| Some(Deployment::Private(Box::new(plan)))),
    };
    candidates.iter().map(find).collect()
}

/// The plan of a private server: with the program `compiled`, else the one that the experiment
/// names, else the installed one.
///
/// # Panics
/// The candidate is not a private server.
pub(crate) fn plan_of(
    experiment: &Experiment,
    candidate: &Candidate,
    compiled: Option<&Path>,
) -> Result<ServerPlan, RunError> {
    let System::Private(server) = &candidate.system else {
        panic!("{} is no private server", candidate.name);
    };
    let workload = &experiment.workload;
    let shape = DataShape {
        tables: workload.tables,
        rows: workload.rows,
        clients: workload.most_clients(),
    };
    let plan = plan(server, compiled.or(server.program.as_deref()), shape);
    plan.map_err(|source| RunError::Server {
        candidate: candidate.name.clone(),
        source: Box::new(source),
    })
}

fn plan(
    server: &PrivateServer,
    program: Option<&Path>,
    shape: DataShape,
) -> Result<ServerPlan, dbdyno_engines::server::ServerError> {
    let installation = Installation::find(server.system, server.engine, program)?;
    let overrides = server.configuration.clone();
    ServerPlan::new(installation, server.engine, server.durability, overrides, shape)
}
