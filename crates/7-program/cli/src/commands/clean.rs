//! `dbdyno clean`.

use std::process::ExitCode;

use dbdyno_run::Cleaned;

use crate::args::Clean;
use crate::commands::{stored_data, worker_program};
use crate::error::CliError;
use crate::output;

/// Removes the data of an interrupted run.
pub fn clean(args: &Clean) -> Result<ExitCode, CliError> {
    let Cleaned { data, schemas, left_alone } =
        dbdyno_run::clean_run(&args.directory, &worker_program()?, args.trust)?;
    for place in stored_data::places(&data) {
        output::print(&format!("removed {place}\n"));
    }
    for schema in &schemas {
        output::print(&format!("dropped the schema {schema}\n"));
    }
    if data.places.is_empty() && schemas.is_empty() {
        output::print("there was no data to remove\n");
    }
    for reason in left_alone {
        output::note(&format!("left alone: {reason}"));
    }
    Ok(ExitCode::SUCCESS)
}
