//! Removes the data of an interrupted run: databases, servers, schemas.

use std::path::Path;

use dbdyno_bench::worker::WorkerError;
use dbdyno_engines::SchemaRemoval;
use dbdyno_engines::server::ServerDirs;

use crate::context::{RunContext, WorkerProgram};
use crate::cpus::divide_cpus;
use crate::data;
use crate::error::RunError;
use crate::instance::Instance;
use crate::resolved_candidate::{ResolvedCandidate, on_existing_servers};
use crate::stored_run::open_stored_run;

/// Removes all data of a run, also from existing servers. The results stay, and the run can still
/// be resumed: its data is then loaded again.
///
/// With `trust`, also of a run that this user did not make on this machine. Returns why schemas were
/// left alone that are not this run's.
///
/// # Errors
/// The run is not trusted, another process writes to it, a server cannot be reached, or something
/// cannot be removed.
pub fn clean_run(
    directory: &Path,
    worker: &WorkerProgram,
    trust: bool,
) -> Result<Vec<String>, RunError> {
    let (results, experiment) = open_stored_run(directory, trust)?;
    let (run, directory) = (results.identity().clone(), results.directory().clone());
    let cpus = divide_cpus(&experiment)?;
    let context = RunContext::new(&experiment, Some(run), directory, worker, cpus);
    let mut left_alone = Vec::new();
    for (candidate, removed) in remove_schemas(&context) {
        match removed {
            Ok(SchemaRemoval::LeftAlone(reason)) => left_alone.push(reason),
            Ok(SchemaRemoval::Dropped | SchemaRemoval::Absent) => {}
            Err(source) => return Err(RunError::Clean { candidate, source }),
        }
    }
    if results.directory().data().exists() {
        ServerDirs::open(&results.directory().data())?.remove()?;
    }
    data::remove(results.directory())?;
    Ok(left_alone)
}

/// Removes a run's schemas from existing servers. Returns the outcome for each candidate.
pub(crate) fn remove_schemas(
    context: &RunContext<'_>,
) -> Vec<(String, Result<SchemaRemoval, WorkerError>)> {
    let candidates = on_existing_servers(context.experiment).into_iter();
    candidates.map(|one| (one.name.clone(), remove_schema(context, one))).collect()
}

/// Removes the schemas that this session used. Errors are logged only: a resumed run and
/// [`clean_run`] report them.
pub(crate) fn remove_used_schemas(context: &RunContext<'_>) {
    for one in on_existing_servers(context.experiment) {
        let name = one.name.clone();
        if context.used_schemas.borrow().contains(&name)
            && let Err(error) = remove_schema(context, one)
        {
            tracing::info!(candidate = name, %error, "cannot remove its tables");
        }
    }
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
