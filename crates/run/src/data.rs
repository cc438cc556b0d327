//! The instances' data: loaded once per page size, cloned for everybody.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use dbdyno_engines::clone_file;
use dbdyno_machine::facts::DiskFacts;
use dbdyno_results::RunDirectory;
use dbdyno_spec::experiment::System;
use dbdyno_units::Bytes;

use crate::candidates::Contender;
use crate::error::RunError;
use crate::instances::Site;
use crate::plan::Plan;
use crate::progress::{Event, Progress};

/// What data must have in common to be cloned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    page_size: Bytes,
}

impl Kind {
    const fn of(contender: &Contender) -> Self {
        let System::Sqlite(config) = &contender.candidate.system;
        Self { page_size: config.page_size }
    }

    /// The loaded data, before anybody used it.
    fn pristine(self, directory: &RunDirectory) -> PathBuf {
        directory.data().join(format!("loaded-{}.sqlite", self.page_size.as_bytes()))
    }
}

/// Gives every contender a fresh copy of the loaded data.
pub(crate) fn fresh(
    site: &Site<'_>,
    contenders: &[Contender],
    progress: Progress<'_>,
) -> Result<(), RunError> {
    let mut kinds: BTreeMap<Kind, Vec<&Contender>> = BTreeMap::new();
    for contender in contenders {
        kinds.entry(Kind::of(contender)).or_default().push(contender);
    }
    for (kind, of_kind) in kinds {
        let pristine = kind.pristine(&site.directory);
        if !pristine.exists() {
            check_room(site)?;
            let workload = &site.experiment.workload;
            progress(Event::Stage(format!("loading {} × {} rows", workload.tables, workload.rows)));
            load(site, of_kind[0], &pristine)?;
        }
        for contender in of_kind {
            clone(&pristine, &site.file(&contender.name))?;
        }
    }
    Ok(())
}

/// Gives every contender a copy of the baseline's data as it stands, so that all go on from the
/// same state.
///
/// Returns false, and does nothing, where the baseline's data is gone, or where some contender's
/// has another page size and cannot be a copy of it.
pub(crate) fn from_baseline(site: &Site<'_>, contenders: &[Contender]) -> Result<bool, RunError> {
    let baseline = &contenders[0];
    let source = site.file(&baseline.name);
    let alike = contenders.iter().all(|contender| Kind::of(contender) == Kind::of(baseline));
    if !source.exists() || !alike {
        return Ok(false);
    }
    // The worker that was killed left its log: opening recovers it, settling writes it back.
    let settle = || {
        let (mut worker, _) = site.open(baseline, &source, 1)?;
        worker.settle()?;
        worker.close()
    };
    settle().map_err(|error| RunError::Baseline {
        candidate: baseline.name.clone(),
        reason: error.to_string(),
    })?;
    for contender in &contenders[1..] {
        clone(&source, &site.file(&contender.name))?;
    }
    Ok(true)
}

/// Keeps a copy of a database file that nobody has open.
pub(crate) fn keep(file: &Path) -> Result<(), RunError> {
    clone(file, &kept(file))
}

/// Goes back to the copy that was kept.
pub(crate) fn restore(file: &Path) -> Result<(), RunError> {
    clone(&kept(file), file)
}

fn kept(file: &Path) -> PathBuf {
    file.with_extension("kept")
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

/// Refuses to start what cannot end well.
fn check_room(site: &Site<'_>) -> Result<(), RunError> {
    let path = site.directory.path();
    // A file system that does not tell is tried.
    let Some(disk) = DiskFacts::of(path) else { return Ok(()) };
    let needed = Plan::of(site.experiment).data_size;
    if disk.free < needed {
        return Err(RunError::NoRoom { path: path.to_owned(), needed, free: disk.free });
    }
    Ok(())
}

/// Loads with `contender`'s build into a file of another name first: a load that was killed
/// leaves nothing that could be taken for data.
fn load(site: &Site<'_>, contender: &Contender, pristine: &Path) -> Result<(), RunError> {
    let unfinished = pristine.with_extension("loading");
    remove_database(&unfinished)?;
    let work = || {
        let (mut worker, _) = site.open(contender, &unfinished, 1)?;
        worker.load()?;
        worker.settle()?;
        worker.close()
    };
    if let Err(source) = work() {
        remove_database(&unfinished)?;
        return Err(RunError::Load { candidate: contender.name.clone(), source });
    }
    fs::rename(&unfinished, pristine)
        .map_err(|source| RunError::Io { path: pristine.to_owned(), source })
}

fn clone(from: &Path, to: &Path) -> Result<(), RunError> {
    if let Some(parent) = to.parent() {
        let failed = |source| RunError::Io { path: parent.to_owned(), source };
        fs::create_dir_all(parent).map_err(failed)?;
    }
    remove_database(to)?;
    Ok(clone_file(from, to)?)
}

/// Removes a database file and the logs and journals beside it: one left over from another
/// database would be replayed into the next.
fn remove_database(file: &Path) -> Result<(), RunError> {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut name = file.as_os_str().to_owned();
        name.push(suffix);
        let path = PathBuf::from(name);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                return Err(RunError::Io { path, source });
            }
            _ => {}
        }
    }
    Ok(())
}
