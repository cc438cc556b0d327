//! What the shell and `man` know of the command line.

use std::fs;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::args::{Arguments, Completions, Man};
use crate::error::CliError;
use crate::output;

/// Prints a completion script.
pub fn completions(args: &Completions) -> Result<ExitCode, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Arguments::command(), "dbdyno", &mut script);
    output::print(&String::from_utf8_lossy(&script));
    Ok(ExitCode::SUCCESS)
}

/// Writes a man page for each command that is not hidden.
pub fn man(args: &Man) -> Result<ExitCode, CliError> {
    let write = |source| CliError::Write { path: args.directory.clone(), source };
    fs::create_dir_all(&args.directory).map_err(write)?;
    clap_mangen::generate_to(Arguments::command(), &args.directory).map_err(write)?;
    Ok(ExitCode::SUCCESS)
}
