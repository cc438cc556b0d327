//! The instances' data: loaded once per kind, cloned for everybody.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use dbdyno_engines::server::ServerDirs;
use dbdyno_machine::facts::DiskFacts;
use dbdyno_results::RunDirectory;
use dbdyno_spec::experiment::System;
use dbdyno_units::Bytes;

use crate::candidates::{Deployment, ResolvedCandidate};
use crate::data_location::DataLocation;
use crate::error::RunError;
use crate::instances::{Instance, RunContext};
use crate::plan::DiskSpace;
use crate::progress::{Progress, RunEvent};

/// What data must have in common to be cloned, in words; `None` where it cannot be.
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
    let mut loaded_before = false;
    for (number, (kind, of_kind)) in kinds.into_iter().enumerate() {
        if kind.is_none() {
            for candidate in of_kind {
                tell(context, candidate, progress);
                load(context, candidate, &DataLocation::Schema)?;
            }
            continue;
        }
        let pristine = context.home(of_kind[0], &format!(".loaded-{number}"));
        if pristine.exists() {
            loaded_before = true;
        } else {
            // With a part of the data in place nobody knows how much is still to come.
            if !std::mem::replace(&mut loaded_before, true) {
                check_room(context)?;
            }
            tell(context, of_kind[0], progress);
            // Under another name first: a load that was killed leaves nothing that could be
            // taken for data.
            let unfinished = context.home(of_kind[0], &format!(".loading-{number}"));
            unfinished.remove()?;
            let loaded = load(context, of_kind[0], &unfinished);
            if loaded.is_err() {
                unfinished.remove()?;
            }
            loaded?;
            unfinished.move_to(&pristine)?;
            tracing::info!(candidate = of_kind[0].name, "loaded data");
        }
        for candidate in of_kind {
            pristine.copy_to(&context.home(candidate, &candidate.name))?;
            tracing::info!(candidate = candidate.name, "copied the loaded data");
        }
    }
    Ok(())
}

fn tell(context: &RunContext<'_>, candidate: &ResolvedCandidate, progress: Progress<'_>) {
    let workload = &context.experiment.workload;
    let name = &candidate.name;
    progress(RunEvent::Stage(format!(
        "loading {} × {} rows with {name}",
        workload.tables, workload.rows
    )));
}

/// Gives every candidate a copy of the baseline's data as it stands, so that all go on from the
/// same state; or of what it kept before the tables shrank.
///
/// Returns false, and does nothing, where the baseline's data is gone, or where some candidate's
/// is of another kind and cannot be a copy of it.
pub(crate) fn from_baseline(
    context: &RunContext<'_>,
    candidates: &[ResolvedCandidate],
    kept: bool,
) -> Result<bool, RunError> {
    let baseline = &candidates[0];
    let source = context.home(baseline, &baseline.name);
    let alike = candidates.iter().all(|candidate| kind(candidate) == kind(baseline));
    if !source.can_be_copied() || !source.exists() || !alike {
        return Ok(false);
    }
    let before = context.kept_home(baseline);
    if kept && before.exists() {
        before.copy_to(&source)?;
    }
    // What was killed left its log: opening recovers it, settling writes it back.
    let mut instance = Instance::at(baseline.clone(), source.clone());
    let settled = instance.open(context, 1, false).and_then(|()| {
        instance.worker_mut()?.settle()?;
        instance.close()
    });
    settled.map_err(|error| RunError::Baseline {
        candidate: baseline.name.clone(),
        reason: error.to_string(),
    })?;
    for candidate in &candidates[1..] {
        source.copy_to(&context.home(candidate, &candidate.name))?;
    }
    Ok(true)
}

/// Removes all data: it is large, and can be made again.
pub(crate) fn remove(directory: &RunDirectory) -> Result<(), RunError> {
    let path = directory.data();
    match fs::remove_dir_all(&path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(RunError::Io { path, source }),
    }
}

/// Refuses to start what cannot end well: where nothing is loaded yet, all data must find room.
pub(crate) fn check_room(context: &RunContext<'_>) -> Result<(), RunError> {
    let DiskSpace { embedded, servers, .. } = DiskSpace::of(context.experiment);
    let path = context.directory.path();
    let Some(home) = context.server_dirs.as_ref().map(ServerDirs::root) else {
        return check_room_at(path, embedded);
    };
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    if device(path) == device(home) {
        return check_room_at(home, embedded + servers);
    }
    check_room_at(path, embedded)?;
    check_room_at(home, servers)
}

fn check_room_at(path: &Path, needed: Bytes) -> Result<(), RunError> {
    // A file system that does not tell is tried.
    let Some(disk) = DiskFacts::of(path) else { return Ok(()) };
    if disk.free < needed {
        return Err(RunError::NoRoom { path: path.to_owned(), needed, free: disk.free });
    }
    Ok(())
}

/// Makes the data with `candidate` in a home where nothing is yet.
pub(crate) fn load(
    context: &RunContext<'_>,
    candidate: &ResolvedCandidate,
    home: &DataLocation,
) -> Result<(), RunError> {
    let failed = |source| RunError::Load { candidate: candidate.name.clone(), source };
    home.make()?;
    if let (Deployment::Private(plan), DataLocation::ServerDir(place)) =
        (&candidate.deployment, home)
    {
        dbdyno_engines::server::initialise(plan, place).map_err(|source| RunError::Server {
            candidate: candidate.name.clone(),
            source: Box::new(source),
        })?;
    }
    let mut instance = Instance::at(candidate.clone(), home.clone());
    let mut work = || {
        instance.open(context, 1, true)?;
        let worker = instance.worker_mut()?;
        worker.load()?;
        worker.settle()?;
        instance.close()
    };
    work().map_err(|error| failed(instance.why(error)))
}
