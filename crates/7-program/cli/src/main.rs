//! `dbdyno`: a benchmark for databases.

mod args;
mod commands;
mod error;
mod output;

use std::process::ExitCode;

use clap::Parser;
use dbdyno_machine::safe_files::restrict_umask_of_root;

use crate::args::{Arguments, Command};
use crate::error::CliError;

fn main() -> ExitCode {
    restrict_umask_of_root();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(message) => return output::end(output::usage(&args::with_advice(message))),
    };
    output::end(run(&arguments).unwrap_or_else(|error| output::failure(&error)))
}

fn run(arguments: &Arguments) -> Result<ExitCode, CliError> {
    // A worker's standard error is the log that messages about its failures quote.
    if !matches!(arguments.command, Command::Worker | Command::Agent(_)) {
        output::start_log(arguments.verbose)?;
    }
    match &arguments.command {
        Command::Run(run) => commands::run::run(run),
        Command::Compare(compare) => commands::compare::compare(compare),
        Command::Bisect(bisect) => commands::bisect::bisect(bisect),
        Command::Check(check) => commands::check::check(check),
        Command::Report(report) => commands::report::report(report),
        Command::Why(why) => commands::why::why(why),
        Command::History(history) => commands::history::history(history),
        Command::Fleet(fleet) => commands::fleet::fleet(fleet),
        Command::Import(import) => commands::report::import(import),
        Command::Clean(clean) => commands::clean::clean(clean),
        Command::Audit(audit) => commands::audit::audit(audit),
        Command::Builds(builds) => commands::builds::builds(builds),
        Command::List(list) => commands::list::list(list),
        Command::Doctor(doctor) => commands::doctor::doctor(doctor),
        Command::Live(live) => commands::live::live(live),
        Command::Worker => commands::worker(),
        Command::Agent(agent) => commands::agent(agent),
        Command::Completions(completions) => commands::completions(completions),
        Command::Man(man) => commands::man(man),
    }
}
