//! The load generator against others: its cost and its results.

mod agent;
mod client;
mod insert_client;
mod insert_load;
mod sysbench_agreement;

use std::process::ExitCode;

use clap::Parser;
use dbdyno_selfbench::harness::main as harness_main;

/// Compares the load generator with sysbench and with a client in Python, and checks its inserts.
#[derive(Parser)]
#[command(name = "load-generator")]
enum Command {
    Agent(agent::Args),
    Client(client::Args),
    InsertClient(insert_client::Args),
    InsertLoad(insert_load::Args),
    SysbenchAgreement(sysbench_agreement::Args),
}

fn main() -> ExitCode {
    harness_main(|| match Command::parse() {
        Command::Agent(args) => agent::run(&args),
        Command::Client(args) => client::run(&args),
        Command::InsertClient(args) => insert_client::run(&args),
        Command::InsertLoad(args) => insert_load::run(&args),
        Command::SysbenchAgreement(args) => sysbench_agreement::run(&args),
    })
}
