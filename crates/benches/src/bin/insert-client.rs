//! What dbdyno's client of the insert benchmark costs, side by side with a plain one in Python.

use std::process::{Command, ExitCode};

use anyhow::{Context, bail, ensure};
use clap::Parser;
use dbdyno_benches::figures::{Case, workspace, write_csv};
use dbdyno_benches::insert_load::run_step;
use dbdyno_benches::lab::{Lab, duration, main as lab_main};
use dbdyno_benches::outcome::Outcome;
use dbdyno_benches::private_server::{PrivateServer, SCHEMA};
use dbdyno_benches::table::{Table, print};
use dbdyno_engines::server::DataShape;
use dbdyno_machine::{Root, Split, Topology, pin_current_thread};
use dbdyno_record::server::{Address, StorageEngine, Target};
use dbdyno_units::Nanos;
use dbdyno_workloads::insert::{Inserts, Mix, Plan, QueryKind, Step, Task, table_name};
use serde::Deserialize;

/// dbdyno may spend a tenth of what the Python client spends on a row.
const ROW_GOAL: f64 = 0.1;

/// A query costs a round trip, most of it the kernel's, whoever asks.
const QUERY_GOAL: f64 = 0.5;

/// Compares what dbdyno's client of the insert benchmark costs with a plain one in Python.
#[derive(Parser)]
#[command(name = "insert-client")]
struct Args {
    /// Rows that each inserts per round
    #[arg(long, default_value_t = 100_000)]
    rows: u64,
    /// Rows per commit
    #[arg(long, default_value_t = 50)]
    rows_per_commit: u32,
    /// How long each asks queries per round
    #[arg(long, default_value = "4s", value_parser = duration)]
    time: Nanos,
    /// How often each of the two is measured, in turns
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Python's connectors to compare with
    #[arg(long, value_delimiter = ',', default_value = "pymysql,mysqldb")]
    connectors: Vec<String>,
}

fn main() -> ExitCode {
    lab_main(|| run(&Args::parse()))
}

/// CPU time and what it was spent on.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    micros: f64,
    count: u64,
}

impl Cost {
    fn add(&mut self, micros: f64, count: u64) {
        self.micros += micros;
        self.count += count;
    }

    fn each(&self) -> f64 {
        self.micros / self.count.max(1) as f64
    }
}

fn run(args: &Args) -> anyhow::Result<Outcome> {
    let lab = Lab::new()?;
    let cpus = Split::choose(lab.cpus(), &Topology::read(&Root::this_machine()), 1, false);
    // The Python client starts from here and stays on these CPUs, as the worker does.
    pin_current_thread(&cpus.dbdyno)?;
    let rounds = u64::from(args.rounds);
    let shape = DataShape { tables: 1, rows: args.rows * rounds * 3, clients: 4 };
    let server = PrivateServer::start(StorageEngine::InnoDb, shape, &cpus.system)?;
    let plan = plan(args);
    let mut worker = server.open_for_inserts(&lab, &cpus, &plan)?;
    let target = server.target()?;
    // Both work on a table with rows and indexes.
    run_step(&mut worker, 0)?;
    run_step(&mut worker, 1)?;
    let (mut rows, mut queries) = (Cost::default(), Cost::default());
    let mut python: Vec<(Cost, Cost)> = vec![<_>::default(); args.connectors.len()];
    for _ in 0..args.rounds {
        lab.go_on()?;
        let inserted = run_step(&mut worker, 2)?;
        let cpu = inserted.client_cpu.context("the worker's CPU time is unknown")?;
        rows.add(cpu.as_micros_f64(), inserted.inserts.rows);
        let asked = run_step(&mut worker, 3)?;
        let cpu = asked.client_cpu.context("the worker's CPU time is unknown")?;
        // One commit among tens of thousands of queries.
        queries.add(cpu.as_micros_f64(), asked.queries.count);
        for (connector, (rows, queries)) in args.connectors.iter().zip(&mut python) {
            lab.go_on()?;
            let said = Python { connector, target: &target, args }.insert()?;
            rows.add(said.micros(), said.rows);
            let said = Python { connector, target: &target, args }.ask()?;
            queries.add(said.micros(), said.queries);
        }
    }
    worker.close()?;
    report(args, (rows, queries), &python)
}

/// A load, the indexes, then what is compared.
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

/// What it says of itself.
#[derive(Deserialize)]
struct Said {
    rows: u64,
    queries: u64,
    user_s: f64,
    system_s: f64,
}

impl Said {
    fn micros(&self) -> f64 {
        (self.user_s + self.system_s) * 1e6
    }
}

impl Python<'_> {
    fn insert(&self) -> anyhow::Result<Said> {
        let (rows, commit) = (self.args.rows.to_string(), self.args.rows_per_commit.to_string());
        self.run(&["--rows", &rows, "--rows-per-commit", &commit])
    }

    fn ask(&self) -> anyhow::Result<Said> {
        self.run(&["--seconds", &self.args.time.as_secs_f64().to_string()])
    }

    fn run(&self, more: &[&str]) -> anyhow::Result<Said> {
        let Address::Socket(socket) = &self.target.address else {
            bail!("a private server has a socket");
        };
        let script = workspace().join("crates/benches/python/insert_client.py");
        let mut command = Command::new("python3");
        command.arg(&script).args(["--connector", self.connector, "--schema", SCHEMA]);
        command.args(["--table", &table_name(0)]).arg("--socket").arg(socket).args(more);
        let output = command.output().context("starting python3; is it installed?")?;
        ensure!(
            output.status.success(),
            "{} failed (packages python3-pymysql and python3-mysqldb): {}",
            script.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

fn report(args: &Args, ours: (Cost, Cost), python: &[(Cost, Cost)]) -> anyhow::Result<Outcome> {
    let mut table = Table::new(&["client CPU", "dbdyno", "Python", "unit", "ratio", "goal", "met"]);
    let (mut cases, mut missed) = (Vec::new(), Vec::new());
    for (connector, theirs) in args.connectors.iter().zip(python) {
        for (what, ours, theirs, unit, goal) in [
            ("inserted row", ours.0, theirs.0, "µs/row", ROW_GOAL),
            ("query", ours.1, theirs.1, "µs/query", QUERY_GOAL),
        ] {
            let (ours, theirs) = (ours.each(), theirs.each());
            let met = ours / theirs <= goal;
            let case = format!("{what}, {connector}");
            table.row([
                case.clone(),
                format!("{ours:.3}"),
                format!("{theirs:.3}"),
                unit.to_owned(),
                format!("{:.3}", ours / theirs),
                format!("≤ {goal}"),
                if met { "yes" } else { "no" }.to_owned(),
            ]);
            if !met {
                missed.push(format!("{case}: {:.3} (goal ≤ {goal})", ours / theirs));
            }
            cases.push(Case::new(case, unit, ours, theirs));
        }
    }
    table.print();
    print(&format!("written to {}\n", write_csv("insert-client", &cases)?.display()));
    Ok(Outcome::of(missed.is_empty(), || missed.join("; ")))
}
