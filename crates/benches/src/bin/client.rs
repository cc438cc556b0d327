//! What dbdyno's load generator costs, side by side with sysbench on the same server.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;
use dbdyno_bench::protocol::Prepare;
use dbdyno_bench::slice::{Quota, SliceRequest};
use dbdyno_bench::worker::WorkerHandle;
use dbdyno_benches::figures::{Case, write_csv};
use dbdyno_benches::lab::{Lab, duration, main as lab_main};
use dbdyno_benches::meter::{Meter, Spent};
use dbdyno_benches::outcome::Outcome;
use dbdyno_benches::private_server::{Observer, PrivateServer};
use dbdyno_benches::progress::Progress;
use dbdyno_benches::sysbench::{Job, Sysbench, Work};
use dbdyno_benches::table::{Table, print};
use dbdyno_engines::server::DataShape;
use dbdyno_machine::{CpuAssignment, FsRoot, Topology, pin_current_thread};
use dbdyno_record::server::{StorageEngine, Target};
use dbdyno_units::Nanos;
use dbdyno_workloads::catalog::Catalog;

const ROWS: u64 = 100_000;

/// One microbenchmark, and what dbdyno may spend on it of what sysbench spends.
struct Matched {
    work: Work,
    /// The greatest share of sysbench's CPU time in user mode.
    user_goal: f64,
    /// How many of the chosen lengths of time it is measured for: long events need longer.
    lengths: u32,
}

/// The same statements on both sides: dbdyno's microbenchmarks and sysbench's scripts.
const MATCHED: [Matched; 5] = [
    Matched {
        work: Work {
            microbenchmark: "point-query_range=100",
            script: "oltp_point_select",
            options: &[],
        },
        user_goal: 0.25,
        lengths: 1,
    },
    Matched {
        work: Work {
            microbenchmark: "random-points_range=100",
            script: "statements",
            options: &["--work=points", "--count=100"],
        },
        user_goal: 0.25,
        lengths: 1,
    },
    Matched {
        work: Work {
            microbenchmark: "read-only_range=100",
            script: "oltp_read_only",
            options: &["--range-size=100"],
        },
        user_goal: 0.25,
        lengths: 1,
    },
    Matched {
        work: Work {
            microbenchmark: "read-only_range=10000",
            script: "oltp_read_only",
            options: &["--range-size=10000"],
        },
        user_goal: 0.3,
        lengths: 2,
    },
    Matched {
        work: Work {
            microbenchmark: "update-nonindex_range=100",
            script: "oltp_update_non_index",
            options: &[],
        },
        user_goal: 0.25,
        lengths: 1,
    },
];

/// The greatest share of sysbench's CPU time, user and system.
const fn cpu_goal(connections: u32) -> f64 {
    if connections == 1 { 0.9 } else { 0.7 }
}

/// The least share of sysbench's throughput. It is 1; the rest is what equals differ by here.
const QPS_GOAL: f64 = 0.99;

/// Compares what dbdyno's load generator costs with what sysbench costs.
#[derive(Parser)]
#[command(name = "client")]
struct Args {
    /// Numbers of connections
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    connections: Vec<u32>,
    /// How often each of the two is measured, in turns
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long each is measured per round; twice as long for range=10000
    #[arg(long, default_value = "2s", value_parser = duration)]
    time: Nanos,
    /// How long each works before that
    #[arg(long, default_value = "500ms", value_parser = duration)]
    warmup: Nanos,
    /// Only microbenchmarks with this word in their name
    #[arg(long, value_name = "WORD", default_value = "")]
    only: String,
}

fn main() -> ExitCode {
    lab_main(|| client(&Args::parse()))
}

fn client(args: &Args) -> anyhow::Result<Outcome> {
    let sysbench = Sysbench::find()?;
    let lab = Lab::new()?;
    let most = args.connections.iter().copied().max().unwrap_or(1);
    let topology = Topology::read(&FsRoot::this_machine());
    let cpus = CpuAssignment::choose(lab.cpus(), &topology, most, false);
    pin_current_thread(&cpus.dbdyno)?;
    let _idle_preventer = lab.prevent_idle(&cpus)?;
    let shape = DataShape { tables: 1, rows: ROWS, clients: most };
    let server = PrivateServer::start(StorageEngine::InnoDb, shape, &cpus.system)?;
    let worker = server.load(&lab, &cpus)?;
    let target = server.target()?;
    print(&format!(
        "dbdyno and {} on CPUs {}, MariaDB on CPUs {}; {}\n",
        sysbench.version,
        cpus.dbdyno,
        cpus.system,
        Meter::method(&cpus.dbdyno)
    ));
    let observer = server.observe()?;
    let mut duel = Duel { args, sysbench, worker, observer, target, cpus, block: 0 };
    let cases: Vec<(&Matched, u32)> = MATCHED
        .iter()
        .filter(|matched| matched.work.microbenchmark.contains(&args.only))
        .flat_map(|matched| args.connections.iter().map(move |connections| (matched, *connections)))
        .collect();
    ensure!(!cases.is_empty(), "no microbenchmark has `{}` in its name", args.only);
    let progress = Progress::start();
    let mut compared = Vec::new();
    for (number, (matched, connections)) in cases.iter().enumerate() {
        let what = format!("{}, {connections} connections", matched.work.microbenchmark);
        progress.show(number as f64 / cases.len() as f64, &what);
        let (ours, peer) = duel.run(&lab, matched, *connections).context(what)?;
        compared.push(Compared { matched, connections: *connections, ours, peer });
    }
    drop(progress);
    report(&compared)
}

/// Both load generators and the server that they take turns on.
struct Duel<'a> {
    args: &'a Args,
    sysbench: Sysbench,
    worker: WorkerHandle,
    observer: Observer,
    target: Target,
    cpus: CpuAssignment,
    /// The next block: each slice has another stream of keys.
    block: u32,
}

impl Duel<'_> {
    /// Lets both work in turns; what dbdyno spent, and what sysbench did.
    fn run(
        &mut self,
        lab: &Lab,
        matched: &Matched,
        connections: u32,
    ) -> anyhow::Result<(Spent, Spent)> {
        let name = matched.work.microbenchmark;
        let microbenchmark = Catalog::builtin().get(name).cloned();
        let microbenchmark = microbenchmark.with_context(|| format!("{name} is gone"))?;
        self.worker.prepare(Prepare { microbenchmark, position: 0, clients: connections })?;
        let time = self.args.time.times(u64::from(matched.lengths));
        let (mut ours, mut peer) = (Spent::default(), Spent::default());
        for round in 0..self.args.rounds {
            lab.go_on()?;
            // Whoever comes second finds what the first has left.
            if round % 2 == 0 {
                ours.add(&self.ours(time)?);
                peer.add(&self.peer(matched.work, connections, time)?);
            } else {
                peer.add(&self.peer(matched.work, connections, time)?);
                ours.add(&self.ours(time)?);
            }
        }
        Ok((ours, peer))
    }

    fn ours(&mut self, time: Nanos) -> anyhow::Result<Spent> {
        self.slice(self.args.warmup)?;
        let meter = Meter::start(self.worker.pid(), &self.cpus.dbdyno)?;
        let statements = self.slice(time)?;
        Ok(meter.finish(statements)?)
    }

    fn slice(&mut self, time: Nanos) -> anyhow::Result<u64> {
        self.block += 1;
        let order = SliceRequest { block: self.block, lead_in: None, quota: Quota::Time(time) };
        let measured = self.worker.slice(order)?;
        let failed = measured.errors + measured.wrong;
        let complaint = measured.first_complaint.unwrap_or_default();
        ensure!(failed == 0, "{failed} of dbdyno's statements failed: {complaint}");
        Ok(measured.statements)
    }

    fn peer(&mut self, work: Work, connections: u32, time: Nanos) -> anyhow::Result<Spent> {
        let before = self.observer.connections()?;
        let job = Job {
            work,
            rows: ROWS,
            connections,
            cpus: &self.cpus.dbdyno,
            // It is ended long before.
            time: self.args.warmup + time.times(2) + Nanos::from_secs(10),
        };
        let running = self.sysbench.start(&self.target, &job)?;
        std::thread::sleep(Duration::from_nanos(self.args.warmup.as_nanos()));
        let meter = Meter::start(running.pid(), &self.cpus.dbdyno)?;
        let statements = self.observer.statements()?;
        std::thread::sleep(Duration::from_nanos(time.as_nanos()));
        let statements = self.observer.statements()? - statements;
        let spent = meter.finish(statements)?;
        drop(running);
        self.observer.wait_for_connections(before)?;
        Ok(spent)
    }
}

/// What both spent on one case.
struct Compared<'a> {
    matched: &'a Matched,
    connections: u32,
    ours: Spent,
    peer: Spent,
}

/// One figure of a case, with its goal.
struct Figure {
    what: &'static str,
    unit: &'static str,
    ours: f64,
    peer: f64,
    met: bool,
    goal: String,
}

impl Compared<'_> {
    fn figures(&self) -> [Figure; 3] {
        let Self { matched, connections, ours, peer } = self;
        let at_most = |what, ours: f64, peer: f64, goal: f64| Figure {
            what,
            unit: "µs/query",
            ours,
            peer,
            met: ours / peer <= goal,
            goal: format!("≤ {goal}"),
        };
        let (qps, peer_qps) = (ours.qps(), peer.qps());
        [
            at_most("user CPU", ours.user_us(), peer.user_us(), matched.user_goal),
            at_most("user + system CPU", ours.cpu_us(), peer.cpu_us(), cpu_goal(*connections)),
            Figure {
                what: "throughput",
                unit: "QPS",
                ours: qps,
                peer: peer_qps,
                met: qps / peer_qps >= QPS_GOAL,
                goal: "≥ 1".to_owned(),
            },
        ]
    }
}

fn report(compared: &[Compared<'_>]) -> anyhow::Result<Outcome> {
    let headings =
        ["microbenchmark", "connections", "", "dbdyno", "sysbench", "unit", "ratio", "goal", "met"];
    let mut table = Table::new(&headings);
    let mut cases = Vec::new();
    let mut missed = Vec::new();
    for one in compared {
        let name = one.matched.work.microbenchmark;
        for Figure { what, unit, ours, peer, met, goal } in one.figures() {
            let decimals = if unit == "QPS" { 0 } else { 2 };
            table.row([
                name.to_owned(),
                one.connections.to_string(),
                what.to_owned(),
                format!("{ours:.decimals$}"),
                format!("{peer:.decimals$}"),
                unit.to_owned(),
                format!("{:.3}", ours / peer),
                goal.clone(),
                if met { "yes" } else { "no" }.to_owned(),
            ]);
            let case = format!("{name}, {} connections, {what}", one.connections);
            if !met {
                missed.push(format!("{case}: {:.3} (goal {goal})", ours / peer));
            }
            cases.push(Case::new(case, unit, ours, peer));
        }
    }
    table.print();
    print(&format!("written to {}\n", write_csv("client", &cases)?.display()));
    Ok(Outcome::of(missed.is_empty(), || missed.join("; ")))
}
