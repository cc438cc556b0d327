//! `dbdyno agent`: dbdyno on the host of servers that a run on another machine measures.

use std::process::ExitCode;

use super::own_program;
use crate::args::Agent;
use crate::error::CliError;

/// Executes requests from standard input until it is closed; as a guard, waits for that, and cleans up.
pub fn agent(args: &Agent) -> Result<ExitCode, CliError> {
    match &args.guard {
        Some(directory) => dbdyno_hosts::agent::guard(directory),
        None => dbdyno_hosts::agent::serve(own_program()?)
            .map_err(|error| CliError::Other(error.to_string()))?,
    }
    Ok(ExitCode::SUCCESS)
}
