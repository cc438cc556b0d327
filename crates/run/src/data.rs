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

use crate::candidates::{Contender, Subject};
use crate::error::RunError;
use crate::homes::Home;
use crate::instances::{Instance, Site};
use crate::plan::Space;
use crate::progress::{Event, Progress};

/// What data must have in common to be cloned, in words; `None` where it cannot be.
fn kind(contender: &Contender) -> Option<String> {
    match (&contender.subject, &contender.candidate.system) {
        (Subject::Private(plan), _) => Some(plan.data_kind()),
        (_, System::Sqlite { config, .. }) => {
            Some(format!("sqlite {}", config.page_size.as_bytes()))
        }
        _ => None,
    }
}

/// Gives every contender a fresh copy of the loaded data.
pub(crate) fn fresh(
    site: &Site<'_>,
    contenders: &[Contender],
    progress: Progress<'_>,
) -> Result<(), RunError> {
    let mut kinds: BTreeMap<Option<String>, Vec<&Contender>> = BTreeMap::new();
    for contender in contenders {
        kinds.entry(kind(contender)).or_default().push(contender);
    }
    let mut loaded_before = false;
    for (number, (kind, of_kind)) in kinds.into_iter().enumerate() {
        if kind.is_none() {
            for contender in of_kind {
                tell(site, contender, progress);
                load(site, contender, &Home::Schema)?;
            }
            continue;
        }
        let pristine = site.home(of_kind[0], &format!(".loaded-{number}"));
        if pristine.exists() {
            loaded_before = true;
        } else {
            // With a part of the data in place nobody knows how much is still to come.
            if !std::mem::replace(&mut loaded_before, true) {
                check_room(site)?;
            }
            tell(site, of_kind[0], progress);
            // Under another name first: a load that was killed leaves nothing that could be
            // taken for data.
            let unfinished = site.home(of_kind[0], &format!(".loading-{number}"));
            unfinished.remove()?;
            let loaded = load(site, of_kind[0], &unfinished);
            if loaded.is_err() {
                unfinished.remove()?;
            }
            loaded?;
            unfinished.move_to(&pristine)?;
        }
        for contender in of_kind {
            pristine.copy_to(&site.home(contender, &contender.name))?;
        }
    }
    Ok(())
}

fn tell(site: &Site<'_>, contender: &Contender, progress: Progress<'_>) {
    let workload = &site.experiment.workload;
    let name = &contender.name;
    progress(Event::Stage(format!(
        "loading {} × {} rows with {name}",
        workload.tables, workload.rows
    )));
}

/// Gives every contender a copy of the baseline's data as it stands, so that all go on from the
/// same state; or of what it kept before the tables shrank.
///
/// Returns false, and does nothing, where the baseline's data is gone, or where some contender's
/// is of another kind and cannot be a copy of it.
pub(crate) fn from_baseline(
    site: &Site<'_>,
    contenders: &[Contender],
    kept: bool,
) -> Result<bool, RunError> {
    let baseline = &contenders[0];
    let source = site.home(baseline, &baseline.name);
    let alike = contenders.iter().all(|contender| kind(contender) == kind(baseline));
    if !source.can_be_copied() || !source.exists() || !alike {
        return Ok(false);
    }
    let before = site.kept_home(baseline);
    if kept && before.exists() {
        before.copy_to(&source)?;
    }
    // What was killed left its log: opening recovers it, settling writes it back.
    let mut instance = Instance::at(baseline.clone(), source.clone());
    let settled = instance.open(site, 1, false).and_then(|()| {
        instance.worker_mut()?.settle()?;
        instance.close()
    });
    settled.map_err(|error| RunError::Baseline {
        candidate: baseline.name.clone(),
        reason: error.to_string(),
    })?;
    for contender in &contenders[1..] {
        source.copy_to(&site.home(contender, &contender.name))?;
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
pub(crate) fn check_room(site: &Site<'_>) -> Result<(), RunError> {
    let Space { embedded, servers, .. } = Space::of(site.experiment);
    let path = site.directory.path();
    let Some(home) = site.server_dirs.as_ref().map(ServerDirs::root) else {
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

/// Makes the data with `contender` in a home where nothing is yet.
pub(crate) fn load(site: &Site<'_>, contender: &Contender, home: &Home) -> Result<(), RunError> {
    let failed = |source| RunError::Load { candidate: contender.name.clone(), source };
    home.make()?;
    if let (Subject::Private(plan), Home::ServerDir(server_dir)) = (&contender.subject, home) {
        dbdyno_engines::server::initialise(plan, server_dir).map_err(|source| {
            RunError::Server { candidate: contender.name.clone(), source: Box::new(source) }
        })?;
    }
    let mut instance = Instance::at(contender.clone(), home.clone());
    let mut work = || {
        instance.open(site, 1, true)?;
        let worker = instance.worker_mut()?;
        worker.load()?;
        worker.settle()?;
        instance.close()
    };
    work().map_err(|error| failed(instance.why(error)))
}
