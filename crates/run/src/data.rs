//! The instances' data: loaded once per kind, then copied.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use dbdyno_engines::server::{ServerDirs, initialise};
use dbdyno_machine::facts::DiskFacts;
use dbdyno_results::RunDirectory;
use dbdyno_spec::experiment::System;
use dbdyno_units::Bytes;

use crate::context::RunContext;
use crate::data_location::DataLocation;
use crate::disk_space::DiskSpace;
use crate::error::RunError;
use crate::instance::Instance;
use crate::progress::{Progress, RunEvent};
use crate::resolved_candidate::{Deployment, ResolvedCandidate};

/// The kind of a candidate's data: data of one kind can be copied from candidate to candidate.
/// `None` if the data cannot be copied.
fn kind(candidate: &ResolvedCandidate) -> Option<String> {
    match (&candidate.deployment, &candidate.spec.system) {
        (Deployment::Private(plan), _) => Some(plan.data_kind()),
        (_, System::Sqlite { config, .. }) => {
            Some(format!("sqlite {}", config.page_size.as_bytes()))
        }
        _ => None,
    }
}

/// Gives every candidate a fresh copy of the loaded data.
pub(crate) fn fresh(
    context: &RunContext<'_>,
    candidates: &[ResolvedCandidate],
    progress: Progress<'_>,
) -> Result<(), RunError> {
    let mut kinds: BTreeMap<Option<String>, Vec<&ResolvedCandidate>> = BTreeMap::new();
    for candidate in candidates {
        kinds.entry(kind(candidate)).or_default().push(candidate);
    }
    let mut some_loaded = false;
    for (number, (kind, of_kind)) in kinds.into_iter().enumerate() {
        if kind.is_none() {
            for candidate in of_kind {
                report_loading(context, candidate, progress);
                load(context, candidate, &DataLocation::Schema)?;
            }
            continue;
        }
        let loaded = context.data_location(of_kind[0], &format!(".loaded-{number}"));
        if loaded.exists() {
            some_loaded = true;
        } else {
            // The estimate is for an empty disk: with some data loaded, the rest is unknown.
            if !std::mem::replace(&mut some_loaded, true) {
                check_free_space(context)?;
            }
            report_loading(context, of_kind[0], progress);
            // Under a temporary name, so that a killed load leaves nothing that looks complete.
            let unfinished = context.data_location(of_kind[0], &format!(".loading-{number}"));
            unfinished.remove()?;
            let outcome = load(context, of_kind[0], &unfinished);
            if outcome.is_err() {
                unfinished.remove()?;
            }
            outcome?;
            unfinished.move_to(&loaded)?;
            tracing::info!(candidate = of_kind[0].name, "loaded data");
        }
        for candidate in of_kind {
            loaded.copy_to(&context.data_location(candidate, &candidate.name))?;
            tracing::info!(candidate = candidate.name, "copied the loaded data");
        }
    }
    Ok(())
}

fn report_loading(context: &RunContext<'_>, candidate: &ResolvedCandidate, progress: Progress<'_>) {
    let workload = &context.experiment.workload;
    let name = &candidate.name;
    progress(RunEvent::Stage(format!(
        "loading {} × {} rows with {name}",
        workload.tables, workload.rows
    )));
}

/// Gives every candidate a copy of the baseline's current data, so that all continue from the same
/// state; with `kept`, of the copy that the baseline kept before its tables shrank.
///
/// Returns false, and does nothing, if the baseline has no data, or if some candidate's data is of
/// another kind.
pub(crate) fn from_baseline(
    context: &RunContext<'_>,
    candidates: &[ResolvedCandidate],
    kept: bool,
) -> Result<bool, RunError> {
    let baseline = &candidates[0];
    let source = context.data_location(baseline, &baseline.name);
    let same_kind = candidates.iter().all(|candidate| kind(candidate) == kind(baseline));
    if !source.can_be_copied() || !source.exists() || !same_kind {
        return Ok(false);
    }
    let copy = context.kept_copy(baseline);
    if kept && copy.exists() {
        copy.copy_to(&source)?;
    }
    // Opening recovers from the log what a killed instance left there; settling writes it back.
    let mut instance = Instance::at(baseline.clone(), source.clone());
    let settled = instance.open(context, 1, false).and_then(|()| {
        instance.worker_mut()?.settle()?;
        instance.close()
    });
    settled.map_err(|error| RunError::Baseline {
        candidate: baseline.name.clone(),
        at: "recovering its data".to_owned(),
        reason: error.to_string(),
    })?;
    for candidate in &candidates[1..] {
        source.copy_to(&context.data_location(candidate, &candidate.name))?;
    }
    Ok(true)
}

/// Removes all data of a run.
pub(crate) fn remove(directory: &RunDirectory) -> Result<(), RunError> {
    let path = directory.data();
    match fs::remove_dir_all(&path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(RunError::Io { path, source }),
    }
}

/// Checks that there is enough free disk space for all data, before any is loaded.
pub(crate) fn check_free_space(context: &RunContext<'_>) -> Result<(), RunError> {
    let DiskSpace { embedded, servers, .. } = DiskSpace::of(context.experiment);
    let path = context.directory.path();
    let Some(root) = context.server_dirs.as_ref().map(ServerDirs::root) else {
        return check_free_space_at(path, embedded);
    };
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    if device(path) == device(root) {
        return check_free_space_at(root, embedded + servers);
    }
    check_free_space_at(path, embedded)?;
    check_free_space_at(root, servers)
}

fn check_free_space_at(path: &Path, needed: Bytes) -> Result<(), RunError> {
    // Unknown free space is no reason to refuse.
    let Some(disk) = DiskFacts::of(path) else { return Ok(()) };
    if disk.free < needed {
        return Err(RunError::NoSpace { path: path.to_owned(), needed, free: disk.free });
    }
    Ok(())
}

/// Creates and loads a candidate's data in an empty location.
pub(crate) fn load(
    context: &RunContext<'_>,
    candidate: &ResolvedCandidate,
    location: &DataLocation,
) -> Result<(), RunError> {
    location.make()?;
    if let (Deployment::Private(plan), DataLocation::ServerDir(directory)) =
        (&candidate.deployment, location)
    {
        initialise(plan, directory).map_err(|source| RunError::Server {
            candidate: candidate.name.clone(),
            source: Box::new(source),
        })?;
    }
    let mut instance = Instance::at(candidate.clone(), location.clone());
    let mut load = || {
        instance.open(context, 1, true)?;
        let worker = instance.worker_mut()?;
        worker.load()?;
        worker.settle()?;
        instance.close()
    };
    load().map_err(|error| RunError::Load {
        candidate: candidate.name.clone(),
        source: instance.cause(error),
    })
}
