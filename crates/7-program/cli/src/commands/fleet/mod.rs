//! `dbdyno fleet`.

mod collect;
mod follow;
mod run;
mod shared_cache;
mod task;

use std::process::ExitCode;

use crate::args::{Fleet, FleetCommand};
use crate::error::CliError;

/// Runs an experiment on many machines.
pub fn fleet(args: &Fleet) -> Result<ExitCode, CliError> {
    match &args.command {
        FleetCommand::Run(run) => run::run(run),
        FleetCommand::Status(status) => follow::status(status),
        FleetCommand::Collect(collect) => collect::collect(collect),
        FleetCommand::Cancel(cancel) => follow::cancel(cancel),
        FleetCommand::Task(task) => task::task(task),
    }
}
