//! Loads the tables of the insert benchmark and checks all rows, all index entries and some
//! queries.

use anyhow::Context;
use clap::ValueEnum;
use dbdyno_engines::server::DataShape;
use dbdyno_machine::{CpuAssignment, FsRoot, Topology};
use dbdyno_selfbench::harness::Harness;
use dbdyno_selfbench::insert_load::{check, load, plan};
use dbdyno_selfbench::outcome::Outcome;
use dbdyno_selfbench::private_server::PrivateServer;
use dbdyno_selfbench::table::print;
use dbdyno_types::server::{ServerSystem, StorageEngine};
use dbdyno_units::Qps;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Engine {
    Innodb,
    Myrocks,
    Postgresql,
}

/// Loads the tables of the insert benchmark into servers and checks their contents.
#[derive(clap::Args)]
pub struct Args {
    /// Rows; half are inserted before the indexes are created, half after
    #[arg(long, default_value_t = 2_000_000)]
    rows: u64,
    /// Engines to load
    #[arg(long, value_delimiter = ',', default_value = "innodb,myrocks,postgresql")]
    engines: Vec<Engine>,
}

/// Runs the benchmark.
///
/// # Errors
/// It could not be run.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let harness = Harness::new()?;
    let cpus =
        CpuAssignment::choose(harness.cpus(), &Topology::read(&FsRoot::this_machine()), 1, false);
    for engine in &args.engines {
        harness.check_cancelled()?;
        load_and_check(args.rows, *engine, &harness, &cpus)
            .with_context(|| format!("{engine:?}"))?;
    }
    Ok(Outcome::Met)
}

fn load_and_check(
    rows: u64,
    engine: Engine,
    harness: &Harness,
    cpus: &CpuAssignment,
) -> anyhow::Result<()> {
    let (system, storage) = match engine {
        Engine::Innodb => (ServerSystem::MariaDb, Some(StorageEngine::InnoDb)),
        Engine::Myrocks => (ServerSystem::MariaDb, Some(StorageEngine::MyRocks)),
        Engine::Postgresql => (ServerSystem::PostgreSql, None),
    };
    let shape = DataShape { tables: 1, rows, clients: 2 };
    let server = PrivateServer::start_system(system, storage, None, shape, &cpus.system)?;
    let plan = plan(rows);
    let mut worker = server.open_for_inserts(harness, cpus, &plan)?;
    load(&mut worker, &plan, |step, measured| {
        let rate = Qps::over(measured.inserts.rows, measured.wall);
        let rate = rate.filter(|_| measured.inserts.rows > 0);
        let rate = rate.map_or_else(String::new, |rate| format!(", {rate} rows/s"));
        print(&format!("{engine:?} {step}: {}{rate}\n", measured.wall));
    })?;
    worker.close()?;
    let checked = check(system, &server.target()?, &plan)?;
    print(&format!(
        "{engine:?}: {} rows, {} index entries and {} query results are correct\n",
        checked.rows, checked.entries, checked.queries
    ));
    Ok(())
}
