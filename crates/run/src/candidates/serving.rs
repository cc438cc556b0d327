//! Candidates that are servers.

use dbdyno_engines::server::{DataShape, Installation, ServerPlan};
use dbdyno_spec::experiment::{Candidate, Experiment, PrivateServer, System};

use super::Subject;
use crate::error::RunError;

/// Finds those of the candidates that are servers; each with its number in the list.
pub(super) fn find(
    experiment: &Experiment,
    candidates: &[&Candidate],
) -> Result<Vec<(usize, Subject)>, RunError> {
    let workload = &experiment.workload;
    let shape = DataShape {
        tables: workload.tables,
        rows: workload.rows,
        clients: workload.most_clients(),
    };
    let mut subjects = Vec::new();
    for (number, candidate) in candidates.iter().enumerate() {
        let subject = match &candidate.system {
            System::Sqlite { .. } => continue,
            System::Existing(server) => Subject::Existing(Box::new(server.clone())),
            System::Private(server) => {
                let plan = plan(server, shape).map_err(|source| RunError::Server {
                    candidate: candidate.name.clone(),
                    source: Box::new(source),
                })?;
                Subject::Private(Box::new(plan))
            }
        };
        subjects.push((number, subject));
    }
    Ok(subjects)
}

fn plan(
    server: &PrivateServer,
    shape: DataShape,
) -> Result<ServerPlan, dbdyno_engines::server::ServerError> {
    let installation = Installation::find(server.system, server.engine, server.program.as_deref())?;
    let overrides = server.configuration.clone();
    ServerPlan::new(installation, server.engine, server.durability, overrides, shape)
}
