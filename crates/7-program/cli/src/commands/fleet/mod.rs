//! `dbdyno fleet`.

mod build;
mod cancel;
mod collect;
mod follow;
mod options;
mod run;
mod shared_cache;
mod status;
mod task;

use std::path::Path;
use std::process::ExitCode;

use dbdyno_fleet::{FleetDirectory, FleetRecord, Outcome, TaskStatus, UnixTime};
use jiff::Timestamp;

use crate::args::{Fleet, FleetCommand};
use crate::error::CliError;

/// Runs an experiment on many machines.
pub fn fleet(args: &Fleet) -> Result<ExitCode, CliError> {
    match &args.command {
        FleetCommand::Run(run) => run::run(run),
        FleetCommand::Status(status) => status::status(status),
        FleetCommand::Collect(collect) => collect::collect(collect),
        FleetCommand::Cancel(cancel) => cancel::cancel(cancel),
        FleetCommand::Task(task) => task::task(task),
    }
}

/// The status of all tasks.
fn statuses(directory: &FleetDirectory, record: &FleetRecord) -> Vec<TaskStatus> {
    let status = |task: &dbdyno_fleet::TaskRecord| {
        let files = match (&task.outcome, task.attempts.last()) {
            (None, Some(last)) => directory.files_of(record, &task.name, last.number),
            _ => dbdyno_fleet::AttemptFiles::default(),
        };
        TaskStatus::of(task, &files)
    };
    record.tasks.iter().map(status).collect()
}

/// Success if every task is complete without failures.
fn exit_code(record: &FleetRecord) -> ExitCode {
    let is_fine = |outcome: &Option<Outcome>| {
        matches!(outcome, Some(Outcome::Complete { failures: 0, .. } | Outcome::Skipped { .. }))
    };
    match record.tasks.iter().all(|task| is_fine(&task.outcome)) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn unix_time() -> UnixTime {
    UnixTime(u64::try_from(Timestamp::now().as_second()).unwrap_or_default())
}

/// How to go on with a fleet run.
fn resume_with(directory: &Path) -> String {
    format!("dbdyno fleet run --resume {}", directory.display())
}
