//! Opening a stored run to change it: somebody else may have made it.

use std::path::Path;

use dbdyno_results::{OriginRecord, ResultsError, RunDirectory, RunReader, RunWriter};
use dbdyno_spec::experiment::{Experiment, System};

use crate::error::RunError;
use crate::run_registry::RunRegistry;

/// Opens a run to resume it or to remove its data; also returns its experiment.
///
/// The experiment names programs, compilers, sources and servers. They are used only if the run is
/// registered: if this user made it on this machine, or trusted it before. With `trust`, it is
/// registered.
///
/// # Errors
/// There is no run, its results are imported, it is not this user's own, it is not registered and not trusted, it is damaged,
/// another process writes to it, or it cannot be written.
pub(crate) fn open_stored_run(
    directory: &Path,
    trust: bool,
) -> Result<(RunWriter, Experiment), RunError> {
    let reader = RunReader::open(directory)?;
    RunDirectory::at(directory).check_own()?;
    let is_imported = |origin: &OriginRecord| matches!(origin, OriginRecord::Imported { .. });
    if reader.candidates()?.iter().any(|one| one.origin.as_ref().is_some_and(is_imported)) {
        return Err(RunError::Imported { path: directory.to_owned() });
    }
    let experiment: Experiment = reader.experiment()?;
    if !experiment.candidates.iter().any(|candidate| candidate.name == experiment.baseline) {
        return Err(RunError::Results(ResultsError::Damaged {
            path: directory.to_owned(),
            what: "the experiment",
            why: "its baseline is not one of its candidates".to_owned(),
        }));
    }
    let registry = RunRegistry::of_user();
    let id = reader.identity()?.map(|identity| identity.id);
    drop(reader);
    let is_registered =
        registry.as_ref().zip(id).is_some_and(|(registry, id)| registry.contains(directory, &id));
    if !is_registered && !trust {
        let path = directory.to_owned();
        return Err(RunError::NotRegistered { path, uses: uses(&experiment) });
    }
    let results = RunWriter::resume(directory)?;
    if !is_registered {
        register(&results);
    }
    Ok((results, experiment))
}

/// Registers a run that this user has made or trusts. If the registry cannot be written, resuming
/// the run requires trust.
pub(crate) fn register(results: &RunWriter) {
    let (path, id) = (results.directory().path(), &results.identity().id);
    let registered = RunRegistry::of_user().map(|registry| registry.add(path, id));
    if let Some(Err(error)) = registered {
        tracing::warn!(%error, "the run is not registered: resuming it will require --trust");
    }
}

/// What a run of the experiment starts and connects to, one per line. Control characters are escaped.
fn uses(experiment: &Experiment) -> Vec<String> {
    let mut uses = Vec::new();
    for host in &experiment.hosts {
        uses.push(format!("run dbdyno on {} with ssh", host.ssh));
    }
    for candidate in &experiment.candidates {
        if let Some(build) = candidate.system.build() {
            uses.push(format!("compile {} with {}", build.source, build.compiler));
        }
        match &candidate.system {
            System::Private(server) if server.build.is_none() => {
                let title = server.system.title();
                let host = server.host.as_ref().map(|host| format!(" on host {host}"));
                let host = host.unwrap_or_default();
                let start = match (&server.release, &server.program) {
                    (Some(release), _) => format!("start {title}, release {release}"),
                    (None, Some(program)) => format!("start {}", program.display()),
                    (None, None) => format!("start the installed {title}"),
                };
                uses.push(start + &host);
            }
            System::Existing(server) => {
                let target = &server.target;
                uses.push(format!("connect to {} as {}", target.address, target.user));
            }
            System::Private(_) | System::Sqlite { .. } => {}
        }
    }
    let mut escaped: Vec<String> =
        uses.iter().map(|text| text.escape_debug().to_string()).collect();
    escaped.sort();
    escaped.dedup();
    escaped
}
