//! Takes away what an interrupted run left: databases, servers, schemas.

use std::path::Path;

use dbdyno_bench::worker::WorkerError;
use dbdyno_engines::server::ServerDirs;
use dbdyno_results::RunWriter;
use dbdyno_spec::experiment::Experiment;

use crate::candidates::existing;
use crate::cpus::divide_cpus;
use crate::data;
use crate::error::RunError;
use crate::instances::{Instance, RunContext, WorkerProgram};

/// Removes all data of a run, on servers that are not ours, too; what was measured stays. The run
/// can still be resumed: its data is loaded anew then.
///
/// # Errors
/// Somebody is writing to the run, a server cannot be reached, or something cannot be removed.
pub fn clean_run(directory: &Path, worker: &WorkerProgram) -> Result<(), RunError> {
    let results = RunWriter::resume(directory)?;
    let experiment: Experiment = results.reader()?.experiment()?;
    let context = RunContext {
        experiment: &experiment,
        directory: results.directory().clone(),
        worker,
        cpus: divide_cpus(&experiment)?,
        server_dirs: None,
        environment: Vec::new(),
    };
    if let Some((candidate, source)) = remove_schemas(&context).into_iter().next() {
        return Err(RunError::Clean { candidate, source });
    }
    if results.directory().data().exists() {
        ServerDirs::open(&results.directory().data())?.remove()?;
    }
    data::remove(results.directory())
}

/// Takes away what a run made on servers that are not ours to remove; returns what could not be
/// removed, with its candidate's name.
pub(crate) fn remove_schemas(context: &RunContext<'_>) -> Vec<(String, WorkerError)> {
    let mut left = Vec::new();
    for candidate in existing(context.experiment) {
        let name = candidate.name.clone();
        let mut instance = Instance::new(context, candidate);
        // Without a connection: the schema may be gone already.
        let opened = instance.open(context, 0, false);
        let removed = opened.and_then(|()| instance.worker_mut()?.remove());
        left.extend(removed.err().map(|error| (name, error)));
        instance.stop();
    }
    left
}
