//! Whether dbdyno reports the truth: differences of known size, and a build or server against
//! itself.

mod control;
mod coverage;
mod delays;

use std::process::ExitCode;

use clap::Parser;
use dbdyno_benches::harness::main as harness_main;

/// Checks that reported figures and intervals are right.
#[derive(Parser)]
#[command(name = "truth")]
enum Command {
    Delays(delays::Args),
    Coverage(coverage::Args),
    Control(control::Args),
}

fn main() -> ExitCode {
    harness_main(|| match Command::parse() {
        Command::Delays(args) => delays::run(&args),
        Command::Coverage(args) => coverage::run(&args),
        Command::Control(args) => control::run(&args),
    })
}
