//! Removes the data of an interrupted run: databases, servers, schemas.

use std::path::Path;

use dbdyno_bench::worker::WorkerError;
use dbdyno_engines::server::ServerDirs;
use dbdyno_results::RunWriter;
use dbdyno_spec::experiment::Experiment;

use crate::context::{RunContext, WorkerProgram};
use crate::cpus::divide_cpus;
use crate::data;
use crate::error::RunError;
use crate::instance::Instance;
use crate::resolved_candidate::on_existing_servers;

/// Removes all data of a run, also from existing servers. The results stay, and the run can still
/// be resumed: its data is then loaded again.
///
/// # Errors
/// Another process writes to the run, a server cannot be reached, or something cannot be removed.
pub fn clean_run(directory: &Path, worker: &WorkerProgram) -> Result<(), RunError> {
    let results = RunWriter::resume(directory)?;
    let experiment: Experiment = results.reader()?.experiment()?;
    let directory = results.directory().clone();
    let context = RunContext::new(&experiment, directory, worker, divide_cpus(&experiment)?);
    if let Some((candidate, source)) = remove_schemas(&context).into_iter().next() {
        return Err(RunError::Clean { candidate, source });
    }
    if results.directory().data().exists() {
        ServerDirs::open(&results.directory().data())?.remove()?;
    }
    data::remove(results.directory())
}

/// Removes a run's schemas from existing servers. Returns the candidates for which this failed.
pub(crate) fn remove_schemas(context: &RunContext<'_>) -> Vec<(String, WorkerError)> {
    let mut failures = Vec::new();
    for candidate in on_existing_servers(context.experiment) {
        let name = candidate.name.clone();
        let mut instance = Instance::new(context, candidate);
        // With no connection to the schema, which may not exist any more.
        let opened = instance.open(context, 0, false);
        let removed = opened.and_then(|()| instance.worker_mut()?.remove());
        failures.extend(removed.err().map(|error| (name, error)));
        instance.stop();
    }
    failures
}
