//! Removes the data of an interrupted run: databases, servers, schemas.

use std::path::Path;

use dbdyno_engines::SchemaRemoval;
use dbdyno_engines::server::ServerDirs;
use dbdyno_results::RunWriter;
use dbdyno_spec::experiment::Experiment;
use dbdyno_worker::WorkerError;

use crate::context::{RunContext, WorkerProgram};
use crate::cpus::chosen_cpus;
use crate::data;
use crate::error::RunError;
use crate::hosts::Hosts;
use crate::instance::Instance;
use crate::resolved_candidate::{Deployment, ResolvedCandidate, on_existing_servers};
use crate::stored_data::StoredData;
use crate::stored_run::open_stored_run;

/// What was removed of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// The data in directories.
    pub data: StoredData,
    /// The dropped schemas, each with its server.
    pub schemas: Vec<String>,
    /// Why schemas were left alone that are not this run's.
    pub left_alone: Vec<String>,
}

/// Removes all data of a run, also from existing servers. The results stay, and the run can still
/// be resumed: its data is then loaded again.
///
/// With `trust`, also of a run that this user did not make on this machine.
///
/// # Errors
/// The run is not trusted, another process writes to it, a server cannot be reached, or something
/// cannot be removed.
pub fn clean_run(
    directory: &Path,
    worker: &WorkerProgram,
    trust: bool,
) -> Result<Cleaned, RunError> {
    let (mut results, experiment) = open_stored_run(directory, trust)?;
    let cleaned = remove_data(&mut results, &experiment, worker, true)?;
    // An agent removes what killed ones have left on its host.
    drop(Hosts::connect(&experiment, worker, None)?);
    Ok(cleaned)
}

/// Removes the data of a run; from existing servers only `with_schemas`.
pub(crate) fn remove_data(
    results: &mut RunWriter,
    experiment: &Experiment,
    worker: &WorkerProgram,
    with_schemas: bool,
) -> Result<Cleaned, RunError> {
    let (run, directory) = (results.identity().clone(), results.directory().clone());
    let mut cleaned = Cleaned::default();
    if with_schemas {
        // Nothing is measured: the machine may have other CPUs now.
        let cpus = chosen_cpus(experiment);
        let context = RunContext::new(experiment, Some(run), directory, worker, cpus);
        for one in on_existing_servers(experiment) {
            let (candidate, schema) = (one.name.clone(), describe_schema(&one));
            match remove_schema(&context, one) {
                Ok(SchemaRemoval::LeftAlone(reason)) => cleaned.left_alone.push(reason),
                Ok(SchemaRemoval::Dropped) => cleaned.schemas.extend(schema),
                Ok(SchemaRemoval::Absent) => {}
                Err(source) => return Err(RunError::Clean { candidate, source }),
            }
        }
        results.set_may_have_schemas(false)?;
    }
    cleaned.data = StoredData::of(results.directory().path());
    if results.directory().data().exists() {
        ServerDirs::open(&results.directory().data())?.remove()?;
    }
    data::remove(results.directory())?;
    Ok(cleaned)
}

/// The schema of a candidate and its server; `None` if it is on no existing server.
fn describe_schema(candidate: &ResolvedCandidate) -> Option<String> {
    let Deployment::Existing(server) = &candidate.deployment else { return None };
    Some(format!("{} at {}", server.schema, server.target.address))
}

/// Removes a run's schemas from existing servers. Returns the outcome for each candidate.
pub(crate) fn remove_schemas(
    context: &RunContext<'_>,
) -> Vec<(String, Result<SchemaRemoval, WorkerError>)> {
    let candidates = on_existing_servers(context.experiment).into_iter();
    candidates.map(|one| (one.name.clone(), remove_schema(context, one))).collect()
}

/// Which schemas are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemovedSchemas {
    /// Those of all candidates.
    All,
    /// Those that this session used, and no others.
    Used,
    /// Some could not be removed.
    NotAll,
}

/// Removes the schemas that this session used. Errors are logged only: a resumed run and
/// [`clean_run`] report them.
pub(crate) fn remove_used_schemas(context: &RunContext<'_>) -> RemovedSchemas {
    let mut removed = RemovedSchemas::All;
    for one in on_existing_servers(context.experiment) {
        let name = one.name.clone();
        if !context.used_schemas.borrow().contains(&name) {
            removed = if removed == RemovedSchemas::All { RemovedSchemas::Used } else { removed };
        } else if let Err(error) = remove_schema(context, one) {
            tracing::info!(candidate = name, %error, "cannot remove its tables");
            removed = RemovedSchemas::NotAll;
        }
    }
    removed
}

fn remove_schema(
    context: &RunContext<'_>,
    candidate: ResolvedCandidate,
) -> Result<SchemaRemoval, WorkerError> {
    let mut instance = Instance::new(context, candidate);
    // With no connection to the schema, which may not exist any more.
    let opened = instance.open(context, 0, false);
    let removed = opened.and_then(|()| instance.worker_mut()?.remove());
    instance.stop();
    removed
}
