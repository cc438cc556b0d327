//! Removing a run's data, and how much of it is stored.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use dbdyno_engines::SchemaRemoval;
use dbdyno_engines::server::{ServerDirs, external_servers};
use dbdyno_results::{RunDirectory, RunWriter};
use dbdyno_spec::experiment::Experiment;
use dbdyno_units::Bytes;
use dbdyno_worker::WorkerError;

use crate::candidates::hosts::Hosts;
use crate::candidates::{Deployment, ResolvedCandidate, on_existing_servers};
use crate::error::RunError;
use crate::instance::context::{RunContext, WorkerProgram};
use crate::instance::cpus::chosen_cpus;
use crate::instance::{Instance, data};
use crate::session::stored_run::open_stored_run;

/// What was removed of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
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
                Err(error) => {
                    let text = format!("removing the tables of {candidate}: {error}");
                    return Err(RunError::Other(text));
                }
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
    All,
    /// Those that this session used, and no others.
    Used,
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

/// The unit of `st_blocks`.
const BLOCK: u64 = 512;

/// Databases of a run in directories of this machine. What is on existing servers is not included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredData {
    /// Directories with files, and the disk space of these.
    pub places: Vec<(PathBuf, Bytes)>,
}

impl StoredData {
    /// The stored data of the run in a directory, as far as this user may read it. Links are not
    /// followed, except that to the servers' data, if dbdyno made it.
    #[must_use]
    pub fn of(run: &Path) -> Self {
        let data = RunDirectory::at(run).data();
        let external = external_servers(&data);
        let mut places = Vec::new();
        for place in std::iter::once(data).chain(external) {
            // Files beside the directories of databases, such as the one that names the run, are no data.
            let size = subdirectories(&place).iter().map(|one| size_of(one)).sum();
            if size > 0 {
                places.push((place, Bytes::from_bytes(size)));
            }
        }
        Self { places }
    }

    #[must_use]
    pub fn total(&self) -> Bytes {
        Bytes::from_bytes(self.places.iter().map(|(_, size)| size.as_bytes()).sum())
    }
}

fn subdirectories(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|one| one.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|one| one.path()).collect()
}

/// The disk space of all files in a directory; 0 if it does not exist. Files that are copies may share
/// blocks with others, and count in full.
fn size_of(directory: &Path) -> u64 {
    let mut size = 0;
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries {
        let Ok(metadata) = entry.path().symlink_metadata() else { continue };
        if metadata.is_dir() {
            size += size_of(&entry.path());
        } else if metadata.is_file() {
            size += metadata.blocks() * BLOCK;
        }
    }
    size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_data_of_the_run_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        assert_eq!(StoredData::of(dir.path()), StoredData::default());
        fs::create_dir_all(data.join("a/empty")).unwrap();
        fs::write(data.join("run.txt"), "no data").unwrap();
        // A link that dbdyno did not make is not followed.
        let other = tempfile::tempdir().unwrap();
        fs::write(other.path().join("precious"), [1; 100_000]).unwrap();
        std::os::unix::fs::symlink(other.path(), data.join("servers")).unwrap();
        assert_eq!(StoredData::of(dir.path()), StoredData::default());
        fs::write(data.join("a/test.sqlite"), [1; 100_000]).unwrap();
        let stored = StoredData::of(dir.path());
        assert_eq!(stored.places[0].0, data);
        assert!(stored.total() >= Bytes::from_bytes(100_000), "{stored:?}");
        assert!(stored.total() < Bytes::from_bytes(200_000), "{stored:?}");
    }
}
