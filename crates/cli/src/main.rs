//! `dbdyno`: a dynamometer for databases.

mod args;
mod commands;
mod error;
mod output;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Arguments, Command};
use crate::error::CliError;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(message) => return output::usage(&message),
    };
    let done = match arguments.command {
        Command::Run(run) => commands::run(&run),
        Command::Check(check) => commands::check(&check),
        Command::Report(report) => commands::report(&report),
        Command::Import(import) => commands::import(&import),
        Command::Clean(clean) => commands::clean(&clean),
        Command::Audit(audit) => commands::audit(&audit),
        Command::Builds(builds) => commands::builds(&builds),
        Command::List(list) => commands::list(&list),
        Command::Doctor(doctor) => commands::doctor(&doctor),
        Command::Live(live) => commands::live(&live),
        Command::Worker => commands::worker(),
    };
    done.unwrap_or_else(|error: CliError| output::failure(&error))
}
