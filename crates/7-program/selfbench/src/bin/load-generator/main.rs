//! The cost of the load generator, and of readings on another host.

mod agent;
mod client;

use std::process::ExitCode;

use clap::Parser;
use dbdyno_selfbench::harness::main as harness_main;

/// Compares the load generator with sysbench, and measures readings on another host.
#[derive(Parser)]
#[command(name = "load-generator")]
enum Command {
    Agent(agent::Args),
    Client(client::Args),
}

fn main() -> ExitCode {
    harness_main(|| match Command::parse() {
        Command::Agent(args) => agent::run(&args),
        Command::Client(args) => client::run(&args),
    })
}
