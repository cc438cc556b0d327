//! One attempt of the builds of a fleet run, in its job.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dbdyno_builds::{CacheDir, Event, HostCpu};
use dbdyno_fleet::{BuildSession, TaskEnd, is_marked};
use dbdyno_run::{Options, RunEvent, make_candidates};
use dbdyno_spec::experiment::Experiment;

use super::shared_cache::{Builds, cache_of};
use super::task;
use crate::commands::{now, worker_program};
use crate::error::CliError;
use crate::output::{self, Display};

/// Builds what the measuring jobs need and writes how that ended.
pub fn build(session: BuildSession, stop: &Arc<AtomicBool>) -> Result<ExitCode, CliError> {
    let (end, code) = match make(&session, stop) {
        Ok(end) => (end, ExitCode::SUCCESS),
        Err(error) => task::failed(&error, stop, session.is_last_try()),
    };
    task::finished(session.finish(end)?, code)
}

fn make(session: &BuildSession, stop: &Arc<AtomicBool>) -> Result<TaskEnd, CliError> {
    let cache = cache_of(&session.record().request)?;
    if !is_marked(cache.path(), session.record()) {
        return Ok(skipped(session, &cache));
    }
    let experiment: Experiment = serde_json::from_value(session.experiment()?)
        .map_err(|error| CliError::Other(format!("reading the experiment: {error}")))?;
    if Builds::of(&experiment) == Some(Builds::PerCpu) {
        let cpu = HostCpu::read()
            .map_err(|source| CliError::Read { path: "/proc/cpuinfo".into(), source })?;
        if let Some(other) = session.claim_cpu(&cpu.id())? {
            output::note(&format!("nothing to do: {other} builds for this type of CPU"));
            return Ok(TaskEnd::Complete { failures: 0 });
        }
    }
    let display = Display::new();
    let progress = |event: RunEvent<'_>| {
        if matches!(event, RunEvent::Build(Event::Finished { .. } | Event::Cached { .. })) {
            session.count_build();
        }
        display.show(&event);
        if !session.tick(&display.last_status()) {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let options = Options {
        worker: worker_program()?,
        cache: Some(cache.path().to_owned()),
        keep_data: false,
        trust: false,
        cancel: Arc::clone(stop),
        progress: &progress,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        now: now(),
    };
    let made = make_candidates(&experiment, &options);
    display.finish();
    made?;
    Ok(TaskEnd::Complete { failures: 0 })
}

fn skipped(session: &BuildSession, cache: &CacheDir) -> TaskEnd {
    let (path, node) = (cache.path().display(), session.node());
    let reason = format!(
        "the build cache {path} is not shared with {node}: each node compiles what it needs. Choose a \
         directory on a shared file system with --cache"
    );
    output::note(&reason);
    TaskEnd::Skipped { reason }
}
