//! `dbdyno fleet task`: one attempt, in its job.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dbdyno_builds::{CacheDir, Event, HostCpu};
use dbdyno_fleet::{
    Begin, BuildSession, Finish, TaskEnd, TaskPlace, TaskSession, is_marked, report_failure,
};
use dbdyno_run::{Options, Outcome, RunError, RunEvent, continue_run, make_candidates, start_run};

use super::{builds_per_cpu, cache_of, parsed};
use crate::args::FleetTask;
use crate::commands::session::{INTERRUPTED, options, stop_run_on_signals, worker_program};
use crate::error::CliError;
use crate::output::{self, Display};

pub fn task(args: &FleetTask) -> Result<ExitCode, CliError> {
    let FleetTask { directory, task, attempt } = args;
    let stop = stop_run_on_signals()?;
    let place = place();
    let begun = TaskSession::begin(directory, task, *attempt, &place, &stop);
    let session = match begun {
        Ok(Begin::Run(session)) => session,
        Ok(Begin::Build(session)) => return build(*session, &stop),
        Ok(Begin::NotNeeded(why)) => {
            output::note(&format!("nothing to do: {why}"));
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => {
            report_failure(directory, task, *attempt, &place, &error.to_string())?;
            return Err(error.into());
        }
    };
    let (end, code) = match measure(&session, &stop) {
        Ok(Outcome::Complete { failures }) => (TaskEnd::Complete { failures }, ExitCode::SUCCESS),
        Ok(Outcome::Interrupted { .. }) => (TaskEnd::Interrupted, ExitCode::from(INTERRUPTED)),
        Err(error) => failed(&error, &stop, session.attempt.is_last_try()),
    };
    if matches!(end, TaskEnd::Failed { retry: false, .. }) {
        remove_data(&session);
    }
    finished(session.finish(end)?, code)
}

/// The end of an attempt with an error.
fn failed(error: &CliError, stop: &AtomicBool, is_last_try: bool) -> (TaskEnd, ExitCode) {
    // Slurm sends its signal to workers and servers, too.
    if stop.load(Ordering::Relaxed) {
        output::note(&format!("stopped: {error}"));
        return (TaskEnd::Interrupted, ExitCode::from(INTERRUPTED));
    }
    let retry = !error.is_usage() && !is_last_try;
    let code = output::failure(error);
    let reason = error.to_string();
    let reason = reason.strip_prefix("error: ").unwrap_or(&reason).to_owned();
    (TaskEnd::Failed { reason, retry }, code)
}

fn finished(finish: Finish, code: ExitCode) -> Result<ExitCode, CliError> {
    match finish {
        Finish::Written => Ok(code),
        Finish::Fenced => {
            output::note("another attempt took over");
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The node and the job, as Slurm names them.
fn place() -> TaskPlace {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let node = variable("SLURMD_NODENAME").or_else(|| {
        std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned())
    });
    let job = variable("SLURM_JOB_ID").and_then(|id| id.parse().ok());
    TaskPlace { node: node.unwrap_or_else(|| "unknown".to_owned()), job }
}

fn measure(session: &TaskSession, stop: &Arc<AtomicBool>) -> Result<Outcome, CliError> {
    let (experiment, text) = session.attempt.fleet.experiment()?;
    let mut experiment = parsed(experiment)?;
    if let Some(share) = &session.attempt.task().microbenchmarks {
        experiment.workload.microbenchmarks.retain(|one| share.contains(&one.name));
    }
    let display = Display::new();
    let progress = |event: RunEvent<'_>| {
        display.show(&event);
        // During a step of an insert benchmark the clients run.
        let between_slices = !matches!(event, RunEvent::InsertSecond { .. } | RunEvent::Build(_));
        if !session.tick(&display.last_status(), between_slices) {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let options = Options {
        cache: session.attempt.record.request.cache.clone().map(Into::into),
        // The process that submitted this job has checked the fleet run, and nobody else can change it.
        trust: true,
        ..options(Arc::clone(stop), &progress)?
    };
    let outcome = match session.resumes {
        true => continue_run(&session.run, &options),
        false => start_run(&experiment, &text, &session.run, &options),
    };
    display.finish();
    outcome.map_err(|error: RunError| error.into())
}

fn remove_data(session: &TaskSession) {
    let removed = worker_program()
        .and_then(|worker| Ok(dbdyno_run::clean_run(&session.run, &worker, true)?.complete()?));
    if let Err(error) = removed {
        output::note(&format!("removing the databases: {error}"));
    }
}

fn build(session: BuildSession, stop: &Arc<AtomicBool>) -> Result<ExitCode, CliError> {
    let (end, code) = match make_builds(&session, stop) {
        Ok(end) => (end, ExitCode::SUCCESS),
        Err(error) => failed(&error, stop, session.attempt.is_last_try()),
    };
    finished(session.finish(end)?, code)
}

fn make_builds(session: &BuildSession, stop: &Arc<AtomicBool>) -> Result<TaskEnd, CliError> {
    let cache = cache_of(&session.attempt.record.request)?;
    if !is_marked(cache.path(), &session.attempt.record) {
        return Ok(skipped(session, &cache));
    }
    let experiment = parsed(session.attempt.fleet.experiment()?.0)?;
    if builds_per_cpu(&experiment) == Some(true) {
        let cpu = HostCpu::read().map_err(CliError::read(Path::new("/proc/cpuinfo")))?;
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
    let options =
        Options { cache: Some(cache.path().to_owned()), ..options(Arc::clone(stop), &progress)? };
    let made = make_candidates(&experiment, &options);
    display.finish();
    made?;
    Ok(TaskEnd::Complete { failures: 0 })
}

fn skipped(session: &BuildSession, cache: &CacheDir) -> TaskEnd {
    let (path, node) = (cache.path().display(), &session.attempt.node);
    let reason = format!(
        "the build cache {path} is not shared with {node}: each node compiles what it needs. Choose a \
         directory on a shared file system with --cache"
    );
    output::note(&reason);
    TaskEnd::Skipped { reason }
}
