//! `dbdyno clean`.

use std::process::ExitCode;

use crate::args::Clean;
use crate::commands::worker_program;
use crate::error::CliError;

/// Removes the data of an interrupted run.
pub fn clean(args: &Clean) -> Result<ExitCode, CliError> {
    dbdyno_run::clean_run(&args.directory, &worker_program()?)?;
    Ok(ExitCode::SUCCESS)
}
