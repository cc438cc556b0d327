use std::io::{BufReader, stdin, stdout};
use std::process::ExitCode;

use crate::error::CliError;

/// Serves as a worker until dbdyno closes the conversation.
pub fn worker() -> Result<ExitCode, CliError> {
    // Not locked by the standard library's handles for long: nobody else writes there.
    let mut requests = BufReader::new(stdin());
    let mut responses = stdout();
    dbdyno_bench::worker::serve(&mut requests, &mut responses).map_err(CliError::Other)?;
    Ok(ExitCode::SUCCESS)
}
