//! CPU cost of the insert benchmark's client, compared with a simple one in Python.

use std::process::Command;

use anyhow::{Context, bail, ensure};
use dbdyno_engines::server::DataShape;
use dbdyno_selfbench::figures::{Case, workspace, write_csv};
use dbdyno_selfbench::harness::{Harness, duration};
use dbdyno_selfbench::insert_load::run_step;
use dbdyno_selfbench::meter::{CpuCost, Meter};
use dbdyno_selfbench::outcome::Outcome;
use dbdyno_selfbench::private_server::{PrivateServer, SCHEMA};
use dbdyno_selfbench::table::{Table, print};
use dbdyno_types::server::{Address, StorageEngine, Target};
use dbdyno_units::Nanos;
use dbdyno_workloads::insert::{Inserts, Mix, Plan, QueryKind, Step, Task, table_name};
use serde::Deserialize;

/// Maximum CPU time as fractions of the Python client's: user, and user plus system.
///
/// The system time of a round trip is about the same for every client: its system calls and the
/// wake-up of the server's thread on another CPU, which is expensive on a virtual machine.
struct Goals {
    user: f64,
    cpu: f64,
}

const ROW: Goals = Goals { user: 0.1, cpu: 0.1 };
const QUERY: Goals = Goals { user: 0.25, cpu: 1.0 };

/// The system's Python, for which its packages are installed; PATH may have another one first.
const PYTHON: &str = "/usr/bin/python3";

/// Compares the CPU cost of dbdyno's insert benchmark client with a simple one in Python.
#[derive(clap::Args)]
pub struct Args {
    /// Rows inserted per round by each client
    #[arg(long, default_value_t = 100_000)]
    rows: u64,
    /// Rows per commit
    #[arg(long, default_value_t = 50)]
    rows_per_commit: u32,
    /// Query time per round of each client
    #[arg(long, default_value = "4s", value_parser = duration)]
    time: Nanos,
    /// Rounds; all clients are measured once per round
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Python connectors to compare with
    #[arg(long, value_delimiter = ',', default_value = "pymysql,mysqldb")]
    connectors: Vec<String>,
}

/// Runs the benchmark.
///
/// # Errors
/// It could not be run.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let harness = Harness::new()?;
    // The Python client inherits dbdyno's CPUs; the worker is pinned to the same.
    let cpus = harness.pin(1)?;
    let rounds = u64::from(args.rounds);
    let shape = DataShape { tables: 1, rows: args.rows * rounds * 3, clients: 4 };
    let server = PrivateServer::start(StorageEngine::InnoDb, shape, &cpus.system)?;
    let plan = plan(args);
    let mut worker = server.open_for_inserts(&harness, &cpus, &plan)?;
    let target = server.target()?;
    // All clients use a table with rows and indexes.
    run_step(&mut worker, 0)?;
    run_step(&mut worker, 1)?;
    print(&format!("{}\n", Meter::method(&cpus.dbdyno)));
    let (mut rows, mut queries) = (CpuCost::default(), CpuCost::default());
    let mut python: Vec<(CpuCost, CpuCost)> = vec![<_>::default(); args.connectors.len()];
    for _ in 0..args.rounds {
        harness.check_cancelled()?;
        let meter = Meter::start(worker.pid(), &cpus.dbdyno)?;
        let inserted = run_step(&mut worker, 2)?;
        rows.add(&meter.finish(inserted.inserts.rows)?);
        let meter = Meter::start(worker.pid(), &cpus.dbdyno)?;
        let queried = run_step(&mut worker, 3)?;
        // One commit per second among thousands of queries.
        queries.add(&meter.finish(queried.queries.count)?);
        for (connector, (rows, queries)) in args.connectors.iter().zip(&mut python) {
            harness.check_cancelled()?;
            let report = Python { connector, target: &target, args }.insert()?;
            rows.add(&report.cost(report.rows));
            let report = Python { connector, target: &target, args }.query()?;
            queries.add(&report.cost(report.queries));
        }
    }
    worker.close()?;
    report(args, (rows, queries), &python)
}

/// The load and the index creation, then the two measured steps.
fn plan(args: &Args) -> Plan {
    let insert = |name: &str, indexed| Step {
        name: name.to_owned(),
        task: Task::Insert(Inserts {
            rows_per_client: args.rows,
            rows_per_commit: args.rows_per_commit,
            indexed,
        }),
    };
    let mix = Mix {
        rate: 1,
        rows_per_commit: args.rows_per_commit,
        time: args.time,
        queries: QueryKind::Range,
    };
    let plain = |name: &str, task| Step { name: name.to_owned(), task };
    Plan {
        clients: 1,
        tables: 1,
        data_length: 10,
        delete_per_insert: false,
        steps: vec![
            insert("l.i0", false),
            plain("l.x", Task::Index),
            insert("l.i1", true),
            plain("q1", Task::Mix(mix)),
        ],
    }
}

/// The client in Python.
struct Python<'a> {
    connector: &'a str,
    target: &'a Target,
    args: &'a Args,
}

/// The usage that it prints.
#[derive(Deserialize)]
struct Report {
    rows: u64,
    queries: u64,
    user_s: f64,
    system_s: f64,
    wall_s: f64,
}

impl Report {
    fn cost(&self, statements: u64) -> CpuCost {
        CpuCost {
            user: Nanos::from_secs_f64(self.user_s),
            cpu: Nanos::from_secs_f64(self.user_s + self.system_s),
            polling: Nanos::ZERO,
            wall: Nanos::from_secs_f64(self.wall_s),
            statements,
        }
    }
}

impl Python<'_> {
    fn insert(&self) -> anyhow::Result<Report> {
        let (rows, commit) = (self.args.rows.to_string(), self.args.rows_per_commit.to_string());
        self.run(&["--rows", &rows, "--rows-per-commit", &commit])
    }

    fn query(&self) -> anyhow::Result<Report> {
        self.run(&["--seconds", &self.args.time.as_secs_f64().to_string()])
    }

    fn run(&self, more: &[&str]) -> anyhow::Result<Report> {
        let Address::Socket(socket) = &self.target.address else {
            bail!("the private server has no socket");
        };
        let script = workspace().join("crates/7-program/selfbench/python/insert_client.py");
        let mut command = Command::new(PYTHON);
        command.arg(&script).args(["--connector", self.connector, "--schema", SCHEMA]);
        command.args(["--table", &table_name(0)]).arg("--socket").arg(socket).args(more);
        let output = command.output().context("starting /usr/bin/python3; is it installed?")?;
        ensure!(
            output.status.success(),
            "{} failed (packages python3-pymysql and python3-mysqldb): {}",
            script.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// A figure of the usage, in µs per statement.
type Figure = fn(&CpuCost) -> f64;

fn report(
    args: &Args,
    ours: (CpuCost, CpuCost),
    python: &[(CpuCost, CpuCost)],
) -> anyhow::Result<Outcome> {
    let mut table = Table::new(&["client", "", "dbdyno", "Python", "unit", "ratio", "goal", "met"]);
    let (mut cases, mut missed) = (Vec::new(), Vec::new());
    for (connector, peer) in args.connectors.iter().zip(python) {
        for (what, ours, peer, unit, goals) in [
            ("inserted row", ours.0, peer.0, "µs/row", ROW),
            ("query", ours.1, peer.1, "µs/query", QUERY),
        ] {
            let figures: [(&str, Figure, f64); 2] = [
                ("user CPU", CpuCost::user_us, goals.user),
                ("user + system CPU", CpuCost::work_us, goals.cpu),
            ];
            for (kind, of, goal) in figures {
                let (ours, peer) = (of(&ours), of(&peer));
                let met = ours / peer <= goal;
                let case = format!("{what}, {connector}");
                table.row([
                    case.clone(),
                    kind.to_owned(),
                    format!("{ours:.3}"),
                    format!("{peer:.3}"),
                    unit.to_owned(),
                    format!("{:.3}", ours / peer),
                    format!("≤ {goal}"),
                    if met { "yes" } else { "no" }.to_owned(),
                ]);
                if !met {
                    missed.push(format!("{case}, {kind}: {:.3} (goal ≤ {goal})", ours / peer));
                }
                cases.push(Case::new(format!("{case}, {kind}"), unit, ours, peer));
            }
        }
    }
    table.print();
    print(&format!("written to {}\n", write_csv("insert-client", &cases)?.display()));
    Ok(Outcome::of(missed.is_empty(), || missed.join("; ")))
}
