//! The live optimizer on a private server under load.

mod cycles;
mod gain;
mod suite;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::ensure;
use clap::Parser;
use dbdyno_engines::server::DataShape;
use dbdyno_live::{
    Counted, CountingOptions, Module, Outcome, ProbeOptions, Process, Sampled, Target, count,
    map_to_original, optimize_by_samples,
};
use dbdyno_machine::CpuAssignment;
use dbdyno_relayout::Options;
use dbdyno_selfbench::harness::{Harness, duration, main as harness_main};
use dbdyno_selfbench::private_server::{PrivateServer, find_system};
use dbdyno_types::ClientWait;
use dbdyno_types::server::ServerSystem;
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
        let server = PrivateServer::start(system, engine, program, shape, &cpus.system)?;
        let wait = if self.poll { ClientWait::Poll } else { ClientWait::Sleep };
        let worker = server.load(harness, cpus, wait)?;
        let journals = tempfile::Builder::new().prefix("dbdyno-bench-").tempdir()?;
        let live = target(system, server.pid()?, journals.path(), self.max_pause);
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

/// The processes of a server of a system; `pid` is the first one.
fn target(system: ServerSystem, pid: u32, state: &Path, max_pause: Nanos) -> Target {
    let family = system == ServerSystem::PostgreSql;
    let (state, max_pause) = (state.to_owned(), max_pause.into());
    Target { pid, family, state, probe: ProbeOptions::UNMAP, max_pause }
}

/// Optimizes all processes with samples.
fn optimize(target: &Target, sampled: &Sampled) -> anyhow::Result<Outcome> {
    Ok(optimize_by_samples(target, Options::default(), |attachment| {
        Ok(map_to_original(attachment, &sampled.samples))
    })?)
}

/// Counts executions of the first process, which must be under load.
///
/// # Errors
/// The process exited, or the code that counts could not be deactivated.
fn count_executions(target: &Target, sampled: &Sampled) -> anyhow::Result<Counted> {
    let mut attachment = target.attach()?;
    let samples = map_to_original(&attachment, &sampled.samples);
    let counting = CountingOptions::default();
    Ok(count(&mut attachment, &samples, &Options::default(), &counting, || false)?)
}

/// Checks that after an undo no code differs from the files.
fn ensure_original(target: &Target) -> anyhow::Result<()> {
    let process = Process::open(target.pid, target.probe)?;
    for loaded in Module::loaded(&process.maps()?) {
        let module = Module::open(&process, &loaded)?;
        let differences = module.differences(&process)?;
        ensure!(differences.is_empty(), "{} differs: {differences:?}", loaded.path.display());
    }
    Ok(())
}
