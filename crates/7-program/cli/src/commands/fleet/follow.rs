//! Following a fleet run: one step every few seconds, and what it shows.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dbdyno_fleet::{Controller, FleetDirectory, Slurm, TaskRecord, poll_interval};
use dbdyno_units::Nanos;

use super::{resume_with, shared_cache, statuses, unix_time};
use crate::commands::{INTERRUPTED, stop_on_signals};
use crate::error::CliError;
use crate::output::{self, FleetDisplay};

/// How soon a signal is noticed.
const LOOK: Duration = Duration::from_millis(100);

/// Follows a fleet run until all tasks have ended. Returns the exit code if it is left before.
///
/// # Errors
/// The directory cannot be written. The jobs go on.
pub fn until_end(
    controller: &mut Controller<Slurm, FleetDirectory>,
    detach: bool,
) -> Result<Option<ExitCode>, CliError> {
    let stop = stop_on_signals(match controller.record().cancelled {
        true => "leaving; not all jobs are cancelled",
        false => "leaving; the jobs go on",
    })?;
    let display = FleetDisplay::new();
    let left = steps(controller, detach, &stop, &display);
    display.finish();
    left
}

fn steps(
    controller: &mut Controller<Slurm, FleetDirectory>,
    detach: bool,
    stop: &AtomicBool,
    display: &FleetDisplay,
) -> Result<Option<ExitCode>, CliError> {
    let path = controller.store().path().to_owned();
    loop {
        if controller.store().take_cancel() {
            controller.cancel();
        }
        controller.step(unix_time()).map_err(|error| {
            CliError::Other(format!("{error}; the jobs go on: {}", resume_with(&path)))
        })?;
        let record = controller.record().clone();
        let all = statuses(controller.store(), &record);
        let silent = controller.silent().map(|(since, error)| {
            let time = unix_time().since(since);
            match time {
                Nanos::ZERO => format!("Slurm does not answer: {error}"),
                time => format!("Slurm has not answered for {time}: {error}"),
            }
        });
        display.show(&record, &all, silent.as_deref());
        if record.has_ended() {
            shared_cache::unmark(&record);
            return Ok(None);
        }
        // Those that wait for builds are submitted after these.
        if record.has_jobs_to_submit() {
            continue;
        }
        if detach && record.tasks.iter().all(TaskRecord::is_submitted) {
            output::note(&format!(
                "the jobs are submitted; follow them with: {}",
                resume_with(&path)
            ));
            return Ok(Some(ExitCode::SUCCESS));
        }
        let (started, pause) = (Instant::now(), Duration::from(poll_interval(record.tasks.len())));
        while started.elapsed() < pause {
            if stop.load(Ordering::Relaxed) {
                output::note(&match record.cancelled {
                    true => format!("continue with: dbdyno fleet cancel {}", path.display()),
                    false => format!("the jobs go on; continue with: {}", resume_with(&path)),
                });
                return Ok(Some(ExitCode::from(INTERRUPTED)));
            }
            std::thread::sleep(LOOK);
        }
    }
}
