//! Servers that are not compiled for the run, and the plans of private servers.

use std::path::Path;

use dbdyno_builds::Release;
use dbdyno_engines::server::{DataShape, Installation, ServerPlan};
use dbdyno_record::ReleaseOrigin;
use dbdyno_spec::experiment::{Candidate, Experiment, PrivateServer, System};

use crate::error::RunError;
use crate::resolved_candidate::Deployment;

/// The installed, unpacked and existing servers among the candidates, in the order of the list; `None`
/// for a candidate that is to be compiled. `releases` are those of the candidates.
pub(crate) fn find(
    experiment: &Experiment,
    candidates: &[&Candidate],
    releases: &[Option<Release>],
) -> Result<Vec<Option<Deployment>>, RunError> {
    let find = |(candidate, release): (&&Candidate, &Option<Release>)| match &candidate.system {
        system if system.build().is_some() => Ok(None),
        System::Existing(server) => Ok(Some(Deployment::Existing(Box::new(server.clone())))),
        System::Sqlite { .. } | System::Private(_) => {
            let program = release.as_ref().map(Release::program);
            let plan = plan_of(experiment, candidate, program)?;
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
    let workload = &experiment.workload;
    let shape = DataShape {
        tables: workload.tables,
        rows: workload.rows,
        clients: workload.most_clients(),
    };
    let plan = plan(server, made, shape);
    plan.map_err(|source| RunError::Server {
        candidate: candidate.name.clone(),
        source: Box::new(source),
    })
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
