//! Following, showing, collecting and cancelling a fleet run.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dbdyno_fleet::{
    AttemptFiles, AttemptRecord, Controller, FleetDirectory, FleetError, FleetRecord, Outcome,
    Slurm, Store, TaskRecord, TaskStatus, UnixTime, lines, poll_interval, totals,
};
use dbdyno_run::is_registered;
use dbdyno_text::plain;
use dbdyno_units::Nanos;
use jiff::Timestamp;

use super::{check_trusted, unmark};
use crate::args::{FleetCancel, FleetCollect, FleetStatus, View};
use crate::commands::report;
use crate::commands::session::{Extent, INTERRUPTED, stop_on_signals};
use crate::error::CliError;
use crate::output::{self, FleetDisplay};

/// How soon a signal is noticed.
const LOOK: Duration = Duration::from_millis(100);

/// Follows a fleet run until all tasks have ended. Returns the exit code if it is left before.
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
            unmark(&record);
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
        if is_stopped_before_poll(&record, stop) {
            output::note(&match record.cancelled {
                true => format!("continue with: dbdyno fleet cancel {}", path.display()),
                false => format!("the jobs go on; continue with: {}", resume_with(&path)),
            });
            return Ok(Some(ExitCode::from(INTERRUPTED)));
        }
    }
}

/// Waits until the jobs are looked at again. Returns whether a signal came before.
fn is_stopped_before_poll(record: &FleetRecord, stop: &AtomicBool) -> bool {
    let (started, pause) = (Instant::now(), Duration::from(poll_interval(record.tasks.len())));
    while started.elapsed() < pause {
        if stop.load(Ordering::Relaxed) {
            return true;
        }
        std::thread::sleep(LOOK);
    }
    false
}

/// `dbdyno fleet status`: shows what each node does. Only reads: jobs are followed by `fleet run`.
pub fn status(args: &FleetStatus) -> Result<ExitCode, CliError> {
    if args.watch {
        return watch(args);
    }
    let (directory, record) = FleetDirectory::read(&args.directory)?;
    let all = statuses(&directory, &record);
    if args.json {
        output::print_pretty(&all)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = lines(&record, &all, output::width()).join("\n");
    text.push_str(&format!("\n{}\n", totals(&all)));
    output::print(&text);
    note_uncontrolled(&directory, record.has_ended());
    Ok(ExitCode::SUCCESS)
}

fn watch(args: &FleetStatus) -> Result<ExitCode, CliError> {
    let stop = stop_on_signals("leaving; the jobs go on")?;
    let display = FleetDisplay::new();
    let mut is_first = true;
    loop {
        let (directory, record) = FleetDirectory::read(&args.directory)?;
        display.show(&record, &statuses(&directory, &record), None);
        if std::mem::take(&mut is_first) {
            note_uncontrolled(&directory, record.has_ended());
        }
        if record.has_ended() {
            display.finish();
            return Ok(exit_code(&record));
        }
        if is_stopped_before_poll(&record, &stop) {
            display.finish();
            return Ok(ExitCode::from(INTERRUPTED));
        }
    }
}

/// Says how to go on if no process follows the jobs.
fn note_uncontrolled(directory: &FleetDirectory, has_ended: bool) {
    if !has_ended && !directory.is_controlled() {
        let resume = resume_with(directory.path());
        output::note(&format!(
            "no dbdyno follows the jobs: this is what was known last. Continue with: {resume}"
        ));
    }
}

/// How long to wait for the process that follows the jobs.
const WAIT_FOR_END: Duration = Duration::from_secs(10 * 60);

/// `dbdyno fleet cancel`: cancels a fleet run, by the process that follows it, or itself if there is none.
pub fn cancel(args: &FleetCancel) -> Result<ExitCode, CliError> {
    loop {
        match FleetDirectory::open(&args.directory) {
            Ok((directory, record)) => {
                check_trusted(&directory, &record, args.trust)?;
                Slurm::check()?;
                let mut controller = Controller::new(record, Slurm, directory);
                controller.cancel();
                if let Some(code) = until_end(&mut controller, false)? {
                    return Ok(code);
                }
                break;
            }
            Err(FleetError::InUse { .. }) => {
                ask(&args.directory)?;
                // It may have ended, or been killed, before it saw the request.
                if FleetDirectory::read(&args.directory)?.1.has_ended() {
                    break;
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    let (directory, record) = FleetDirectory::read(&args.directory)?;
    output::print(&format!("{}\n", totals(&statuses(&directory, &record))));
    Ok(ExitCode::SUCCESS)
}

/// Asks the process that follows the jobs to cancel, and waits for its end.
fn ask(directory: &Path) -> Result<(), CliError> {
    let (directory, _) = FleetDirectory::read_own(directory)?;
    directory.ask_to_cancel()?;
    let started = Instant::now();
    while directory.is_controlled() {
        if started.elapsed() > WAIT_FOR_END {
            return Err(CliError::other("the dbdyno that follows the jobs does not end"));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

pub fn statuses(directory: &FleetDirectory, record: &FleetRecord) -> Vec<TaskStatus> {
    let status = |task: &TaskRecord| {
        let files = match (&task.outcome, task.attempts.last()) {
            (None, Some(last)) => directory.files_of(record, &task.name, last.number),
            _ => AttemptFiles::default(),
        };
        TaskStatus::of(task, &files)
    };
    record.tasks.iter().map(status).collect()
}

/// Success if every task is complete without failures.
pub fn exit_code(record: &FleetRecord) -> ExitCode {
    let is_fine = |task: &TaskRecord| {
        let outcome = task.outcome.as_ref();
        matches!(outcome, Some(Outcome::Complete { failures: 0, .. } | Outcome::Skipped { .. }))
    };
    ExitCode::from(u8::from(!record.tasks.iter().all(is_fine)))
}

fn unix_time() -> UnixTime {
    UnixTime(u64::try_from(Timestamp::now().as_second()).unwrap_or_default())
}

/// How to go on with a fleet run.
fn resume_with(directory: &Path) -> String {
    format!("dbdyno fleet run --resume {}", directory.display())
}

pub fn collect(args: &FleetCollect) -> Result<ExitCode, CliError> {
    let (mut directory, record) = FleetDirectory::read(&args.directory)?;
    let is_ours = is_registered(directory.path(), &record.id);
    report_on(&mut directory, &args.directory, args.out.as_deref(), args.view, is_ours)
}

/// Prints the report of one node, or the comparison of several. `shown` is the directory as the user named it. Unless
/// the fleet run is ours, its directory is only read.
pub fn report_on(
    directory: &mut FleetDirectory,
    shown: &Path,
    out: Option<&Path>,
    view: View,
    is_ours: bool,
) -> Result<ExitCode, CliError> {
    let (_, mut record) = FleetDirectory::read(directory.path())?;
    let ended: Vec<Option<(Outcome, Option<u32>)>> =
        record.tasks.iter().map(|task| outcome(directory, &record, task)).collect();
    let mut runs: Vec<PathBuf> = Vec::new();
    for (task, ended) in record.tasks.iter_mut().zip(ended) {
        let Some((outcome, not_accepted)) = ended else { continue };
        if !task.builds && matches!(outcome, Outcome::Complete { .. }) {
            runs.push(match not_accepted {
                None => shown.join(&task.name),
                Some(attempt) if is_ours => {
                    directory.accept(&task.name, attempt)?;
                    shown.join(&task.name)
                }
                Some(attempt) => directory.attempt(&task.name, attempt),
            });
        }
        task.outcome = Some(outcome);
    }
    match (&runs[..], record.request.shard) {
        ([], _) => output::note("no node is done yet"),
        ([only], _) if !is_ours => report::read_only(only, out, view)?,
        ([only], _) => {
            drop(report::show(only, view, Extent::Report)?);
            if out.is_some_and(|out| out != shown) {
                output::note("nothing is written to --out: one node has no comparison");
            }
        }
        (several, _) => report::compare(several, out, view, false)?,
    }
    if record.request.shard && runs.len() > 1 {
        output::print(&format!("\n{}\n", measured_by(&record).join("\n")));
    }
    output::print(&format!("\n{}\n", totals(&statuses(directory, &record))));
    Ok(exit_code(&record))
}

/// Which node measured which microbenchmarks, a line per shard.
fn measured_by(record: &FleetRecord) -> Vec<String> {
    let line = |task: &TaskRecord| {
        let names = task.microbenchmarks.as_ref()?.join(", ");
        Some(plain(&format!("{} on {}: {names}", task.name, task.node)))
    };
    record.tasks.iter().filter_map(line).collect()
}

/// How a task ended. If no `fleet run` has seen its result yet, also the attempt whose run is not accepted.
fn outcome(
    directory: &FleetDirectory,
    record: &FleetRecord,
    task: &TaskRecord,
) -> Option<(Outcome, Option<u32>)> {
    let known = task.outcome.clone().map(|outcome| (outcome, None));
    let of_attempt = |AttemptRecord { number, .. }: &AttemptRecord| {
        let result = directory.files_of(record, &task.name, *number).result?;
        let outcome = result.end.outcome(*number)?;
        let is_run = matches!(outcome, Outcome::Complete { .. });
        Some((outcome, is_run.then_some(*number)))
    };
    known.or_else(|| task.attempts.iter().find_map(of_attempt))
}
