use std::process::ExitCode;

use crate::args::Clean;
use crate::commands::worker_program;
use crate::error::CliError;

/// Removes the data that a run left.
pub fn clean(args: &Clean) -> Result<ExitCode, CliError> {
    dbdyno_run::clean_run(&args.directory, &worker_program()?)?;
    Ok(ExitCode::SUCCESS)
}
