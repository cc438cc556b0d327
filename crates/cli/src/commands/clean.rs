//! `dbdyno clean`.

use std::process::ExitCode;

use crate::args::Clean;
use crate::commands::worker_program;
use crate::error::CliError;
use crate::output;

/// Removes the data of an interrupted run.
pub fn clean(args: &Clean) -> Result<ExitCode, CliError> {
    for reason in dbdyno_run::clean_run(&args.directory, &worker_program()?, args.trust)? {
        output::note(&format!("left alone: {reason}"));
    }
    Ok(ExitCode::SUCCESS)
}
