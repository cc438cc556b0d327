//! Whether dbdyno and sysbench say the same of the same two servers.

use std::process::ExitCode;
use std::sync::Mutex;

use anyhow::{Context, ensure};
use clap::Parser;
use dbdyno_bench::worker::WorkerHandle;
use dbdyno_benches::figures::{Case, write_csv};
use dbdyno_benches::lab::{Lab, Subject, duration, main as lab_main};
use dbdyno_benches::outcome::Outcome;
use dbdyno_benches::private_server::{Observer, PrivateServer};
use dbdyno_benches::progress::Progress;
use dbdyno_benches::sysbench::{Job, Sysbench, Work};
use dbdyno_benches::table::{Table, print};
use dbdyno_engines::server::DataShape;
use dbdyno_machine::{CpuAssignment, FsRoot, Topology, pin_current_thread};
use dbdyno_record::server::{StorageEngine, Target};
use dbdyno_report::model::{Estimate, Report, Role};
use dbdyno_run::RunEvent;
use dbdyno_spec::experiment::Experiment;
use dbdyno_stats::median;
use dbdyno_units::Nanos;

/// The experiment's microbenchmarks in sysbench's words.
const WORKS: [Work; 10] = [
    work("point-query.pre_range=100", "oltp_point_select", &[]),
    work("random-points.pre_range=10", "statements", &["--work=points", "--count=10"]),
    work("random-points.pre_range=100", "statements", &["--work=points", "--count=100"]),
    work("read-only.pre_range=100", "oltp_read_only", &["--range-size=100"]),
    work(
        "points-covered-pk.pre_range=100",
        "statements",
        &["--work=points", "--columns=id", "--count=100"],
    ),
    work(
        "points-covered-si.pre_range=100",
        "statements",
        &["--work=points", "--columns=k", "--by=k", "--count=100"],
    ),
    work(
        "range-covered-pk.pre_range=100",
        "statements",
        &["--work=range", "--columns=id", "--count=100"],
    ),
    work("update-index_range=100", "oltp_update_index", &[]),
    work("update-nonindex_range=100", "oltp_update_non_index", &[]),
    work("insert_range=100", "statements", &["--work=insert"]),
];

const fn work(
    microbenchmark: &'static str,
    script: &'static str,
    options: &'static [&'static str],
) -> Work {
    Work { microbenchmark, script, options }
}

/// Compares what dbdyno and sysbench say of MyRocks against InnoDB (experiments/agreement.toml).
#[derive(Parser)]
#[command(name = "agreement")]
struct Args {
    /// The longest measuring time per candidate and microbenchmark, instead of the experiment's
    #[arg(long, value_parser = duration)]
    budget: Option<Nanos>,
    /// How often sysbench is run on each server and microbenchmark, in turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long each run of sysbench takes, in whole seconds
    #[arg(long, default_value = "10s", value_parser = duration)]
    time: Nanos,
    /// Only microbenchmarks of this group, or with this word in their name
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
}

fn main() -> ExitCode {
    lab_main(|| agreement(&Args::parse()))
}

fn agreement(args: &Args) -> anyhow::Result<Outcome> {
    let sysbench = Sysbench::find()?;
    let mut subject = Subject::read("agreement")?;
    subject.adjust(args.budget, args.only.as_deref())?;
    let lab = Lab::new()?;
    let progress = Mutex::new(Progress::start());
    let show = |event: RunEvent<'_>| {
        if let Ok(progress) = progress.lock() {
            progress.follow(&event);
        }
    };
    let report = lab.run(&subject, &show).context("dbdyno's own run")?;
    drop(progress);
    let heard = ask_sysbench(args, &lab, &sysbench, &subject.experiment)?;
    conclude(&sysbench.version, &opinions(&report, heard)?)
}

/// What both say of one microbenchmark.
struct Opinions {
    microbenchmark: String,
    ours: Estimate,
    /// sysbench's ratios, one per round.
    peer: Vec<f64>,
}

impl Opinions {
    /// The median of sysbench's ratios, and the least and the greatest of them.
    fn peer(&self) -> Option<(f64, f64, f64)> {
        let least = self.peer.iter().copied().min_by(f64::total_cmp)?;
        let greatest = self.peer.iter().copied().max_by(f64::total_cmp)?;
        Some((median(&self.peer)?, least, greatest))
    }

    /// Whether sysbench's ratio lies in dbdyno's interval, widened by the spread of sysbench's.
    fn agree(&self) -> bool {
        self.peer().is_some_and(|(middle, least, greatest)| {
            let low = self.ours.low.get() * least / middle;
            let high = self.ours.high.get() * greatest / middle;
            (low..=high).contains(&middle)
        })
    }
}

fn opinions(report: &Report, heard: Vec<(String, Vec<f64>)>) -> anyhow::Result<Vec<Opinions>> {
    let all = heard.into_iter().map(|(microbenchmark, peer)| {
        let rows = report.microbenchmarks.iter().find(|rows| rows.name == microbenchmark);
        let row = rows.and_then(|rows| rows.rows.iter().find(|row| row.role == Role::Candidate));
        let ours = row.and_then(|row| row.relative_qps);
        let ours = ours.with_context(|| format!("dbdyno has no ratio for {microbenchmark}"))?;
        Ok(Opinions { microbenchmark, ours, peer })
    });
    all.collect()
}

/// A server that sysbench works on, and who settles it.
struct Contender {
    observer: Observer,
    worker: WorkerHandle,
    target: Target,
    // The last to go.
    _server: PrivateServer,
}

impl Contender {
    fn start(
        lab: &Lab,
        engine: StorageEngine,
        shape: DataShape,
        cpus: &CpuAssignment,
    ) -> anyhow::Result<Self> {
        let server = PrivateServer::start(engine, shape, &cpus.system)?;
        let worker = server.load(lab, cpus)?;
        Ok(Self { observer: server.observe()?, worker, target: server.target()?, _server: server })
    }

    /// What sysbench reports of a run on this server, in statements per second.
    fn measure(&mut self, sysbench: &Sysbench, job: &Job<'_>) -> anyhow::Result<f64> {
        let before = self.observer.connections()?;
        let qps = sysbench.start(&self.target, job)?.report()?;
        self.observer.wait_for_connections(before)?;
        Ok(qps.per_second())
    }
}

/// MyRocks against InnoDB by sysbench: the ratios of each microbenchmark, in running order.
fn ask_sysbench(
    args: &Args,
    lab: &Lab,
    sysbench: &Sysbench,
    experiment: &Experiment,
) -> anyhow::Result<Vec<(String, Vec<f64>)>> {
    let workload = &experiment.workload;
    let shape = DataShape {
        tables: workload.tables,
        rows: workload.rows,
        clients: workload.most_clients(),
    };
    ensure!(shape.tables == 1, "sysbench's scripts are told of one table only");
    let topology = Topology::read(&FsRoot::this_machine());
    // dbdyno's run has confined this thread.
    pin_current_thread(lab.cpus())?;
    let cpus = CpuAssignment::choose(lab.cpus(), &topology, shape.clients, false);
    pin_current_thread(&cpus.dbdyno)?;
    let _idle_preventer = lab.prevent_idle(&cpus)?;
    let mut innodb = Contender::start(lab, StorageEngine::InnoDb, shape, &cpus)?;
    let mut myrocks = Contender::start(lab, StorageEngine::MyRocks, shape, &cpus)?;
    let progress = Progress::start();
    let mut heard = Vec::new();
    let mut written = false;
    for (number, microbenchmark) in workload.microbenchmarks.iter().enumerate() {
        let name = &microbenchmark.name;
        let work = WORKS.iter().find(|work| work.microbenchmark == name);
        let work = work.with_context(|| format!("{name} is not known in sysbench's words"))?;
        let writes = microbenchmark.writes();
        // As dbdyno does it in a run.
        if writes || written {
            innodb.worker.settle()?;
            myrocks.worker.settle()?;
        }
        written = writes;
        let job = Job {
            work: *work,
            rows: shape.rows,
            connections: shape.clients,
            cpus: &cpus.dbdyno,
            time: args.time,
        };
        let mut ratios = Vec::new();
        for round in 0..args.rounds {
            lab.go_on()?;
            let share = (number as f64 + f64::from(round) / f64::from(args.rounds))
                / workload.microbenchmarks.len() as f64;
            progress.show(share, &format!("sysbench, {name}"));
            // Whoever comes second finds what the first has left.
            let (baseline, candidate) = if round % 2 == 0 {
                let baseline = innodb.measure(sysbench, &job)?;
                (baseline, myrocks.measure(sysbench, &job)?)
            } else {
                let candidate = myrocks.measure(sysbench, &job)?;
                (innodb.measure(sysbench, &job)?, candidate)
            };
            ratios.push(candidate / baseline);
        }
        heard.push((name.clone(), ratios));
    }
    Ok(heard)
}

fn conclude(version: &str, opinions: &[Opinions]) -> anyhow::Result<Outcome> {
    let headings =
        ["MyRocks ÷ InnoDB", "dbdyno", "95% interval", version, "least to greatest", "agree"];
    let mut table = Table::new(&headings);
    let mut cases = Vec::new();
    let mut apart = Vec::new();
    for one in opinions {
        let Opinions { microbenchmark, ours, .. } = one;
        let (middle, least, greatest) = one.peer().context("sysbench was not run")?;
        let agree = one.agree();
        table.row([
            microbenchmark.clone(),
            format!("{:.4}", ours.median),
            format!("{:.4} to {:.4}", ours.low, ours.high),
            format!("{middle:.4}"),
            format!("{least:.4} to {greatest:.4}"),
            if agree { "yes" } else { "no" }.to_owned(),
        ]);
        if !agree {
            apart.push(format!("{microbenchmark}: {:.4} and {middle:.4}", ours.median));
        }
        cases.push(Case::new(microbenchmark, "relative QPS", ours.median.get(), middle));
    }
    table.print();
    print(&format!("written to {}\n", write_csv("agreement", &cases)?.display()));
    Ok(Outcome::of(apart.is_empty(), || {
        format!("dbdyno and sysbench do not agree on {}", apart.join("; "))
    }))
}

#[cfg(test)]
mod tests {
    use dbdyno_units::Ratio;

    use super::*;

    fn opinions(low: f64, high: f64, peer: &[f64]) -> Opinions {
        let ratio = |ratio| Ratio::of(ratio, 1.0).unwrap();
        Opinions {
            microbenchmark: "a".to_owned(),
            ours: Estimate {
                median: ratio((low + high) / 2.0),
                low: ratio(low),
                high: ratio(high),
            },
            peer: peer.to_vec(),
        }
    }

    #[test]
    fn the_interval_is_widened_by_the_spread_of_the_others_figures() {
        assert!(opinions(0.70, 0.72, &[0.71]).agree());
        assert!(!opinions(0.70, 0.72, &[0.73]).agree());
        assert!(opinions(0.70, 0.72, &[0.73, 0.72, 0.745]).agree());
        assert!(!opinions(0.70, 0.72, &[0.73, 0.725, 0.731]).agree());
        assert!(!opinions(0.70, 0.72, &[]).agree());
    }
}
