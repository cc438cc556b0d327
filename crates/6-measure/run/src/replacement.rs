//! A run that measured nothing, such as one of an experiment with a mistake, is replaced by the next run
//! in its directory.

use std::path::Path;

use dbdyno_results::RunReader;

use crate::clean::remove_data;
use crate::context::WorkerProgram;
use crate::error::RunError;
use crate::stored_data::StoredData;
use crate::stored_run::open_stored_run;

/// Removes the run in a directory, with its data, if it measured nothing and this user made it on this
/// machine. Returns whether it did.
///
/// A run of an experiment with the same text that has loaded data is kept: it can be resumed with that.
///
/// # Errors
/// The data of such a run cannot be removed, for example because an existing server that has a schema of
/// the run cannot be reached.
pub(crate) fn remove_empty_run(
    directory: &Path,
    text: &str,
    worker: &WorkerProgram,
) -> Result<bool, RunError> {
    let Ok(run) = RunReader::open(directory) else { return Ok(false) };
    if run.writer_pid().is_some() || run.has_measured()? {
        return Ok(false);
    }
    let stored = StoredData::of(directory);
    if run.experiment_text()? == text && !stored.places.is_empty() {
        return Ok(false);
    }
    let may_have_schemas = run.may_have_schemas()?;
    drop(run);
    let (mut results, experiment) = match open_stored_run(directory, false) {
        Ok(opened) => opened,
        Err(RunError::NotRegistered { .. }) => return Ok(false),
        Err(error) => return Err(error),
    };
    remove_data(&mut results, &experiment, worker, may_have_schemas).map_err(|source| {
        RunError::NotReplaced { path: directory.to_owned(), source: Box::new(source) }
    })?;
    results.delete()?;
    Ok(true)
}
