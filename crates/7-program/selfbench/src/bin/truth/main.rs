//! Whether dbdyno reports the truth: differences of known size, and a build or server against
//! itself.

mod delays;
mod equal;
mod gate;

use std::process::ExitCode;

use clap::Parser;
use dbdyno_selfbench::harness::main as harness_main;

/// Checks that reported figures and intervals are right.
#[derive(Parser)]
#[command(name = "truth")]
enum Command {
    Delays(delays::Args),
    Coverage(equal::CoverageArgs),
    Control(equal::ControlArgs),
    Gate(gate::Args),
}

fn main() -> ExitCode {
    harness_main(|| match Command::parse() {
        Command::Delays(args) => delays::run(&args),
        Command::Coverage(args) => equal::coverage(&args),
        Command::Control(args) => equal::control(&args),
        Command::Gate(args) => gate::run(&args),
    })
}
