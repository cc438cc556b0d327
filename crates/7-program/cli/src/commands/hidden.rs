//! Commands for other programs: this one itself, shells and packages. Help does not list them.

use std::fs;
use std::io::{BufReader, stdin, stdout};
use std::process::ExitCode;

use clap::CommandFactory;

use crate::args::{Agent, Arguments, Completions, Man};
use crate::commands::session::own_program;
use crate::error::CliError;
use crate::output;

/// `dbdyno worker`, the process that holds the connections of one instance: executes requests from standard input
/// until it is closed.
pub fn worker() -> Result<ExitCode, CliError> {
    let mut requests = BufReader::new(stdin());
    let mut responses = stdout();
    dbdyno_worker::serve(&mut requests, &mut responses)
        .map_err(|error| CliError::Other(error.to_string()))?;
    Ok(ExitCode::SUCCESS)
}

/// `dbdyno agent`, on the host of servers that a run on another machine measures: executes requests from standard
/// input until it is closed; as a guard, waits for that, and cleans up.
pub fn agent(args: &Agent) -> Result<ExitCode, CliError> {
    match &args.guard {
        Some(directory) => dbdyno_hosts::agent::guard(directory),
        None => dbdyno_hosts::agent::serve(own_program()?)
            .map_err(|error| CliError::Other(error.to_string()))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a completion script.
pub fn completions(args: &Completions) -> Result<ExitCode, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Arguments::command(), "dbdyno", &mut script);
    output::print(&String::from_utf8_lossy(&script));
    Ok(ExitCode::SUCCESS)
}

/// Writes a man page for each command that is not hidden.
pub fn man(args: &Man) -> Result<ExitCode, CliError> {
    let write = CliError::write(&args.directory);
    fs::create_dir_all(&args.directory).map_err(write)?;
    clap_mangen::generate_to(Arguments::command(), &args.directory).map_err(write)?;
    Ok(ExitCode::SUCCESS)
}
