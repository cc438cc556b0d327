//! What a fleet run compiles, and the cache into which it is compiled for all nodes.

use std::path::Path;

use dbdyno_builds::{CacheDir, CacheDirError};
use dbdyno_fleet::{FleetRecord, Request, TaskRecord, mark_cache, unmark_cache, with_builds};
use dbdyno_machine::safe_files::SafeDir;
use dbdyno_spec::experiment::Experiment;

use crate::error::CliError;
use crate::output;

/// Which nodes the builds of an experiment are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Builds {
    /// All.
    Common,
    /// Those with the same type of CPU.
    PerCpu,
}

impl Builds {
    /// `None` if nothing is compiled.
    pub fn of(experiment: &Experiment) -> Option<Self> {
        let builds = experiment.candidates.iter().filter_map(|one| one.system.build());
        builds.map(|build| if build.depends_on_cpu() { Self::PerCpu } else { Self::Common }).max()
    }
}

/// The build cache of a fleet run, on this machine.
pub fn cache_of(request: &Request) -> Result<CacheDir, CacheDirError> {
    CacheDir::chosen_or_default(request.cache.as_deref().map(Path::new))
}

/// Puts tasks of builds before the others, if something is compiled and the cache can be marked.
pub fn plan_builds(record: &mut FleetRecord, experiment: &Experiment) {
    let Some(builds) = Builds::of(experiment) else { return };
    match mark(record) {
        Ok(()) => {
            let tasks: Vec<TaskRecord> = std::mem::take(&mut record.tasks);
            record.tasks = with_builds(tasks, builds == Builds::PerCpu);
        }
        Err(error) => output::note(&format!(
            "each node compiles what it needs, because the build cache cannot be used here: {error}"
        )),
    }
}

/// Marks the cache again for builds that are tried again.
pub fn mark_again(record: &FleetRecord) -> Result<(), CliError> {
    if record.tasks.iter().any(|task| task.builds && task.outcome.is_none()) {
        mark(record).map_err(|error| CliError::Other(format!("the build cache: {error}")))?;
    }
    Ok(())
}

fn mark(record: &FleetRecord) -> Result<(), Box<dyn std::error::Error>> {
    let cache = cache_of(&record.request)?;
    SafeDir::create_trusted(cache.path(), 0o755)?;
    Ok(mark_cache(cache.path(), record)?)
}

/// Removes the mark when all tasks have ended.
pub fn unmark(record: &FleetRecord) {
    if !record.tasks.iter().any(|task| task.builds) {
        return;
    }
    let removed = cache_of(&record.request)
        .map_err(|error| error.to_string())
        .and_then(|cache| unmark_cache(cache.path(), record).map_err(|error| error.to_string()));
    if let Err(error) = removed {
        output::note(&format!("the mark in the build cache was not removed: {error}"));
    }
}
