//! The cost of the worker's hot loop, compared with a loop in C on the same connection.

mod bare_loop;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use bare_loop::BareLoop;
use clap::Parser;
use dbdyno_builds::{Builder, CacheDir, Compiler, Request, Source, Variant};
use dbdyno_drivers::sqlite::SqliteConnection;
use dbdyno_drivers::{Connection, Params};
use dbdyno_engines::sqlite::{Settings, Sqlite};
use dbdyno_engines::{Engine, Table as EngineTable};
use dbdyno_machine::{
    Calibration, CpuAssignment, CpuSet, FsRoot, TickSource, Ticks, Topology, WithTicks,
    pin_current_thread,
};
use dbdyno_selfbench::harness::{duration, stop_on_signals};
use dbdyno_selfbench::output::{Case, Outcome, Progress, Table, exit_code, print, write_csv};
use dbdyno_stats::{Estimate, median, median_with_interval};
use dbdyno_types::SliceMeasured;
use dbdyno_units::{Bytes, Nanos};
use dbdyno_worker::protocol::{Quota, SliceRequest};
use dbdyno_worker::{Client, ClientSetup};
use dbdyno_workloads::catalog::Catalog;
use dbdyno_workloads::keys::below;
use dbdyno_workloads::program::{Program, Tables};
use dbdyno_workloads::rows::{Row, Rows};
use dbdyno_workloads::schema::{index_name, table_name};
use dbdyno_workloads::seeds::{Purpose, rng_for};

const MICROBENCHMARK: &str = "point-query_range=100";
const TABLES: Tables = Tables { count: 1, rows: 100_000 };
const SEED: u64 = 1;

/// Compares the cost per query of dbdyno's hot loop with a loop in C.
#[derive(Parser)]
#[command(name = "overhead")]
struct Args {
    /// Blocks per case; a block is one slice of each loop, in random order
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(6..))]
    blocks: u32,
    /// Length of a slice
    #[arg(long, default_value = "5ms", value_parser = duration)]
    slice: Nanos,
}

/// A case in which the loops are compared.
#[derive(Clone, Copy)]
struct Situation {
    name: &'static str,
    /// The maximum ratio of the two times per query.
    goal: f64,
    /// Whether there is one transaction for all queries: SQLite does the least work, so the loop's own share is largest.
    in_transaction: bool,
}

const SITUATIONS: [Situation; 2] = [
    Situation { name: "cached point query", goal: 1.03, in_transaction: false },
    Situation { name: "cached point query inside a transaction", goal: 1.05, in_transaction: true },
];

fn main() -> ExitCode {
    exit_code(overhead(&Args::parse()))
}

fn overhead(args: &Args) -> anyhow::Result<Outcome> {
    let cancel = stop_on_signals()?;
    let compiler = Compiler::find("gcc")?;
    let library = build_sqlite(&compiler)?;
    let directory = tempfile::Builder::new().prefix("dbdyno-bench-").tempdir()?;
    let bare_loop = bare_loop::compile(&compiler, directory.path())?;
    // On the CPUs of a worker.
    let allowed = CpuSet::allowed()?;
    pin_current_thread(
        &CpuAssignment::choose(&allowed, &Topology::read(&FsRoot::this_machine()), 1, true).system,
    )?;

    let connection = load(&library, directory.path())?;
    let db = connection.raw_handle();
    let catalog = Catalog::builtin();
    let microbenchmark =
        catalog.get(MICROBENCHMARK).context("the built-in point query does not exist")?;
    let sql =
        Program::new(microbenchmark, TABLES)?.statements[0].sql(0, SqliteConnection::placeholder);

    let ticks = Ticks::choose(Duration::from_millis(20));
    let setup = ClientSetup {
        number: 0,
        tables: TABLES,
        seed: SEED,
        calibration: ticks.calibration(),
        injected_delay: None,
        scripts: None,
    };
    let mut client = Client::new(connection, setup);
    client.prepare(microbenchmark, 0, 1)?;
    // SAFETY: the connection is the client's, which is declared before and so dropped after.
    let peer = unsafe { BareLoop::prepare(bare_loop, &library, db, &sql, TABLES.rows) }?;
    let progress = Progress::start();
    let mut pair = Pair { client, peer, args, cancel: &cancel, progress };

    let mut compared = Vec::new();
    for situation in SITUATIONS {
        compared.push((situation, ticks.run(Comparing { pair: &mut pair, situation })?));
    }
    drop(pair);
    report(&compared)
}

/// Both loops on one connection.
struct Pair<'a> {
    // Declared, and so dropped, before the client, whose connection it uses.
    peer: BareLoop,
    client: Client<SqliteConnection>,
    args: &'a Args,
    cancel: &'a AtomicBool,
    progress: Progress,
}

/// Times per query, in nanoseconds.
struct Compared {
    ours: f64,
    peer: f64,
    ratio: Estimate,
}

/// The measurement, compiled for each tick source as in a worker.
struct Comparing<'a, 'b> {
    pair: &'a mut Pair<'b>,
    situation: Situation,
}

impl WithTicks for Comparing<'_, '_> {
    type Output = anyhow::Result<Compared>;

    fn run<T: TickSource>(self, _: Calibration) -> Self::Output {
        let Self { pair, situation } = self;
        if !situation.in_transaction {
            return pair.compare::<T>(situation);
        }
        let failed = |error: dbdyno_drivers::Error| anyhow!("{error}");
        pair.client.connection().run("BEGIN").map_err(failed)?;
        let compared = pair.compare::<T>(situation);
        pair.client.connection().run("COMMIT").map_err(failed)?;
        compared
    }
}

impl Pair<'_> {
    fn compare<T: TickSource>(&mut self, situation: Situation) -> anyhow::Result<Compared> {
        let queries = self.queries_per_slice::<T>()?;
        let blocks = self.args.blocks;
        let mut times: Vec<(f64, f64)> = Vec::with_capacity(blocks as usize);
        for block in 0..blocks {
            if self.cancel.load(Ordering::Relaxed) {
                bail!("stopped");
            }
            let before = if situation.in_transaction { blocks } else { 0 };
            let share = f64::from(before + block) / f64::from(blocks * 2);
            self.progress.show(share, situation.name);
            let mut order = rng_for(SEED, Purpose::Order { microbenchmark: 0, block });
            times.push(if below(&mut order, 2) == 0 {
                let ours = self.ours::<T>(block, queries)?;
                (ours, self.peer(queries)?)
            } else {
                let peer = self.peer(queries)?;
                (self.ours::<T>(block, queries)?, peer)
            });
        }
        let of = |one: fn(&(f64, f64)) -> f64| times.iter().map(one).collect::<Vec<f64>>();
        let few = "too few blocks for an interval";
        Ok(Compared {
            ours: median(&of(|(ours, _)| *ours)).context(few)?,
            peer: median(&of(|(_, peer)| *peer)).context(few)?,
            ratio: median_with_interval(&of(|(ours, peer)| ours / peer)).context(few)?,
        })
    }

    /// The number of queries that take one slice, after a warm-up of both loops.
    fn queries_per_slice<T: TickSource>(&mut self) -> anyhow::Result<u64> {
        const WARMUP: u32 = 20;
        let mut queries = 1;
        for block in 0..WARMUP {
            let measured = self.slice::<T>(block, Quota::Time(self.args.slice))?;
            queries = measured.events.max(1);
            self.peer.run(queries)?;
        }
        Ok(queries)
    }

    fn slice<T: TickSource>(&mut self, block: u32, quota: Quota) -> anyhow::Result<SliceMeasured> {
        let lead_in = quota.lead_in(self.args.slice);
        let request = SliceRequest { block, lead_in, ..SliceRequest::of(quota) };
        self.client.slice::<T>(request).map_err(|error| anyhow!(error))
    }

    fn ours<T: TickSource>(&mut self, block: u32, queries: u64) -> anyhow::Result<f64> {
        let measured = self.slice::<T>(block, Quota::Events(queries))?;
        ensure!(
            measured.statements == queries && measured.errors + measured.wrong == 0,
            "dbdyno ran {} of {queries} queries, with {} errors and {} wrong answers: {}",
            measured.statements,
            measured.errors,
            measured.wrong,
            measured.first_complaint.unwrap_or_default()
        );
        Ok(measured.wall.as_nanos() as f64 / queries as f64)
    }

    fn peer(&mut self, queries: u64) -> anyhow::Result<f64> {
        // dbdyno's slices have a lead-in too, after the other loop has used the caches.
        if let Some(Quota::Events(lead_in)) = Quota::Events(queries).lead_in(self.args.slice) {
            self.peer.run(lead_in)?;
        }
        Ok(self.peer.run(queries)?.as_nanos() as f64 / queries as f64)
    }
}

fn report(compared: &[(Situation, Compared)]) -> anyhow::Result<Outcome> {
    let mut table =
        Table::new(&["case", "dbdyno ns", "C loop ns", "ratio", "95% interval", "goal", "met"]);
    let mut cases = Vec::new();
    let mut missed = Vec::new();
    for (Situation { name, goal, .. }, Compared { ours, peer, ratio }) in compared {
        let median = ratio.median.get();
        let met = median <= *goal;
        table.row([
            (*name).to_owned(),
            format!("{ours:.1}"),
            format!("{peer:.1}"),
            format!("{median:.4}"),
            format!("{:.4} to {:.4}", ratio.low, ratio.high),
            format!("≤ {goal}"),
            if met { "yes" } else { "no" }.to_owned(),
        ]);
        cases.push(Case { ratio: median, ..Case::new(*name, "ns/query", *ours, *peer) });
        if !met {
            missed.push(format!(
                "a {name} takes {median:.4} times as long as in a bare C loop, not {goal}"
            ));
        }
    }
    table.print();
    print(&format!("written to {}\n", write_csv("overhead", &cases)?.display()));
    Ok(Outcome::of(missed.is_empty(), || missed.join("; ")))
}

/// The bundled SQLite as a release build (`rel_o2`), from the cache if it is there.
fn build_sqlite(compiler: &Compiler) -> anyhow::Result<PathBuf> {
    let request =
        Request::new(Source::bundled_sqlite(), Variant::by_name("rel_o2")?, compiler.clone());
    let builds = Builder::new(CacheDir::chosen_or_default(None)?).build(&[request], &|_| {});
    let build = builds.into_iter().next().context("the builder returned no build")??;
    Ok(build.artifact)
}

/// Loads the table into a new file in `directory`, settles and warms it, and returns the open connection.
fn load(library: &Path, directory: &Path) -> anyhow::Result<SqliteConnection> {
    // The defaults of an experiment: all data in memory, no waiting for storage.
    let settings = Settings {
        page_size: Bytes::from_kib(4),
        cache_size: Bytes::from_mib(256),
        journal_mode: "wal".to_owned(),
        synchronous: "off".to_owned(),
    };
    let failed = |error: dbdyno_drivers::Error| anyhow!("{error}");
    let engine = Sqlite::new(library, settings, &Sqlite::file_in(directory)).map_err(failed)?;
    let mut connection = engine.connect().map_err(failed)?;
    let table = EngineTable { name: table_name(0), index: index_name(0) };
    let mut all = Rows::of_table(SEED, 0, TABLES.rows);
    let mut row = Row::default();
    let mut next = |params: &mut Params| {
        let more = all.next_into(&mut row);
        if more {
            params.push_int(row.k);
            params.push_text(&row.c);
            params.push_text(&row.pad);
        }
        more
    };
    engine.load_table(&mut connection, &table, &mut next).map_err(failed)?;
    connection.close_statements();
    engine.settle(&mut connection).map_err(failed)?;
    engine.warm(&mut connection, &[table]).map_err(failed)?;
    Ok(connection)
}
