//! The live optimizer on a private server under load.

mod cycles;
mod gain;
mod suite;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use dbdyno_engines::server::DataShape;
use dbdyno_live::Target;
use dbdyno_machine::CpuAssignment;
use dbdyno_selfbench::harness::{Harness, duration, main as harness_main};
use dbdyno_selfbench::live_server;
use dbdyno_selfbench::private_server::{PrivateServer, find_system};
use dbdyno_types::ClientWait;
use dbdyno_units::Nanos;
use dbdyno_worker::WorkerHandle;
use tempfile::TempDir;

/// Measures and tests the live optimizer on a private server under load.
#[derive(Parser)]
#[command(name = "live")]
enum Command {
    Cycles(cycles::Args),
    Gain(gain::Args),
    Suite(suite::Args),
}

/// Options for the server.
#[derive(clap::Args)]
struct ServerArgs {
    /// System of the server
    #[arg(long, default_value = "mariadb")]
    system: String,
    /// Storage engine, for systems with several
    #[arg(long)]
    engine: Option<String>,
    /// Server program, such as that of a release [default: the installed one]
    #[arg(long)]
    program: Option<PathBuf>,
    /// Maximum time for which threads may be stopped
    #[arg(long, default_value = "50ms", value_parser = duration)]
    max_pause: Nanos,
    /// The client polls for results instead of sleeping: the server need not wake it
    #[arg(long)]
    poll: bool,
}

/// A running server with loaded tables.
struct LoadedServer {
    // In the order in which they are dropped.
    worker: WorkerHandle,
    live: Target,
    server: PrivateServer,
    _journals: TempDir,
}

impl ServerArgs {
    fn start(
        &self,
        harness: &Harness,
        cpus: &CpuAssignment,
        shape: DataShape,
    ) -> anyhow::Result<LoadedServer> {
        let (system, engine) = find_system(&self.system, self.engine.as_deref())?;
        let program = self.program.as_deref();
        let server = PrivateServer::start_system(system, engine, program, shape, &cpus.system)?;
        let wait = if self.poll { ClientWait::Poll } else { ClientWait::Sleep };
        let worker = server.load(harness, cpus, wait)?;
        let journals = tempfile::Builder::new().prefix("dbdyno-bench-").tempdir()?;
        let live = live_server::target(system, server.pid()?, journals.path(), self.max_pause);
        Ok(LoadedServer { worker, live, server, _journals: journals })
    }
}

fn main() -> ExitCode {
    harness_main(|| match Command::parse() {
        Command::Cycles(args) => cycles::run(&args),
        Command::Gain(args) => gain::run(&args),
        Command::Suite(args) => suite::run(&args),
    })
}
