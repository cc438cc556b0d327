//! The commands.

pub mod audit;
pub mod bisect;
pub mod builds;
pub mod check;
pub mod clean;
pub mod compare;
pub mod doctor;
mod each_option;
mod export_file;
pub mod fleet;
mod gate;
pub mod history;
pub mod list;
pub mod live;
pub mod report;
pub mod run;
mod session;
pub mod why;

use std::io::{BufReader, stdin, stdout};
use std::process::ExitCode;

use clap::CommandFactory;
use dbdyno_report::export::OutputDir;

use crate::args::{Agent, Arguments, Completions, Man};
use crate::error::CliError;
use crate::output;
use session::{own_program, stop_on_signals};

/// `dbdyno worker`, the process that holds the connections of one instance: executes requests from standard input
/// until it is closed.
pub fn worker() -> Result<ExitCode, CliError> {
    let mut requests = BufReader::new(stdin());
    let mut responses = stdout();
    dbdyno_worker::serve(&mut requests, &mut responses).map_err(CliError::other)?;
    Ok(ExitCode::SUCCESS)
}

/// `dbdyno agent`, on the host of servers that a run on another machine measures: executes requests from standard
/// input until it is closed; as a guard, waits for that, and cleans up.
pub fn agent(args: &Agent) -> Result<ExitCode, CliError> {
    match &args.guard {
        Some(directory) => dbdyno_hosts::agent::guard(directory),
        None => dbdyno_hosts::agent::serve(own_program()?).map_err(CliError::other)?,
    }
    Ok(ExitCode::SUCCESS)
}

pub fn completions(args: &Completions) -> Result<ExitCode, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Arguments::command(), "dbdyno", &mut script);
    output::print(&String::from_utf8_lossy(&script));
    Ok(ExitCode::SUCCESS)
}

/// Writes a man page for each command that is not hidden.
pub fn man(args: &Man) -> Result<ExitCode, CliError> {
    let directory = OutputDir::create(&args.directory)?;
    let mut program = Arguments::command().disable_help_subcommand(true);
    program.build();
    let mut left = vec![&program];
    while let Some(command) = left.pop() {
        left.extend(command.get_subcommands().filter(|one| !one.is_hide_set()));
        let page = clap_mangen::Man::new(command.clone());
        let mut text = Vec::new();
        page.render(&mut text).map_err(CliError::other)?;
        directory.replace(&page.get_filename(), &String::from_utf8_lossy(&text))?;
    }
    Ok(ExitCode::SUCCESS)
}
