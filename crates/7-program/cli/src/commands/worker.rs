//! `dbdyno worker`: the process that holds the connections of one instance.

use std::io::{BufReader, stdin, stdout};
use std::process::ExitCode;

use crate::error::CliError;

/// Executes requests from standard input until it is closed.
pub fn worker() -> Result<ExitCode, CliError> {
    let mut requests = BufReader::new(stdin());
    let mut responses = stdout();
    dbdyno_worker::serve(&mut requests, &mut responses)
        .map_err(|error| CliError::Other(error.to_string()))?;
    Ok(ExitCode::SUCCESS)
}
