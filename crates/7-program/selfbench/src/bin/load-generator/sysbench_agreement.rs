//! Ratios measured by dbdyno and by sysbench on the same two servers.

use anyhow::{Context, ensure};
use dbdyno_engines::server::DataShape;
use dbdyno_machine::CpuAssignment;
use dbdyno_report::model::{Estimate, Report, Role};
use dbdyno_selfbench::figures::{Case, write_csv};
use dbdyno_selfbench::harness::{ExperimentArgs, ExperimentFile, Harness, duration};
use dbdyno_selfbench::outcome::Outcome;
use dbdyno_selfbench::private_server::{Observer, PrivateServer};
use dbdyno_selfbench::progress::Progress;
use dbdyno_selfbench::sysbench::{Job, Sysbench, Work};
use dbdyno_selfbench::table::{Table, print};
use dbdyno_spec::experiment::Experiment;
use dbdyno_stats::median;
use dbdyno_types::ClientWait;
use dbdyno_types::server::{StorageEngine, Target};
use dbdyno_units::Nanos;
use dbdyno_worker::WorkerHandle;

/// The sysbench script of each microbenchmark of the experiments.
const WORKS: [Work; 13] = [
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
    work("oltp_point_select", "oltp_point_select", &[]),
    work("oltp_read_only", "oltp_read_only", &[]),
    work("oltp_update_index", "oltp_update_index", &[]),
];

const fn work(
    microbenchmark: &'static str,
    script: &'static str,
    options: &'static [&'static str],
) -> Work {
    Work { microbenchmark, script, options }
}

/// Compares dbdyno's and sysbench's ratios of MyRocks to InnoDB (experiments/agreement.toml).
///
/// With `--scripts`, dbdyno runs scripts of sysbench, too (experiments/agreement-scripts.toml).
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    experiment: ExperimentArgs,
    /// Compare scripts of sysbench that both run
    #[arg(long)]
    scripts: bool,
    /// Runs of sysbench per server and microbenchmark, alternating between the servers
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Duration of each sysbench run, in whole seconds
    #[arg(long, default_value = "10s", value_parser = duration)]
    time: Nanos,
}

/// Runs the benchmark.
///
/// # Errors
/// It could not be run.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let sysbench = Sysbench::find()?;
    let name = if args.scripts { "agreement-scripts" } else { "agreement" };
    let file = ExperimentFile::read(name, &args.experiment)?;
    let harness = Harness::new()?;
    let report = harness.run_with_progress(&file).context("dbdyno's own run")?;
    let sysbench_ratios = run_sysbench(args, &harness, &sysbench, &file.experiment)?;
    conclude(&sysbench.version, &comparisons(&report, sysbench_ratios)?)
}

/// The ratios of both on one microbenchmark.
struct Comparison {
    microbenchmark: String,
    ours: Estimate,
    /// sysbench's ratios, one per round.
    peer: Vec<f64>,
}

impl Comparison {
    /// The median, minimum and maximum of sysbench's ratios.
    fn peer(&self) -> Option<(f64, f64, f64)> {
        let least = self.peer.iter().copied().min_by(f64::total_cmp)?;
        let greatest = self.peer.iter().copied().max_by(f64::total_cmp)?;
        Some((median(&self.peer)?, least, greatest))
    }

    /// Whether sysbench's median lies in dbdyno's interval, widened by the spread of its ratios.
    fn agree(&self) -> bool {
        self.peer().is_some_and(|(middle, least, greatest)| {
            let low = self.ours.low.get() * least / middle;
            let high = self.ours.high.get() * greatest / middle;
            (low..=high).contains(&middle)
        })
    }
}

fn comparisons(
    report: &Report,
    sysbench_ratios: Vec<(String, Vec<f64>)>,
) -> anyhow::Result<Vec<Comparison>> {
    let all = sysbench_ratios.into_iter().map(|(microbenchmark, peer)| {
        let rows = report.microbenchmarks.iter().find(|rows| rows.name == microbenchmark);
        let row = rows.and_then(|rows| rows.rows.iter().find(|row| row.role == Role::Candidate));
        let ours = row.and_then(|row| row.relative_qps);
        let ours = ours.with_context(|| format!("dbdyno has no ratio for {microbenchmark}"))?;
        Ok(Comparison { microbenchmark, ours, peer })
    });
    all.collect()
}

/// A server for sysbench, and the worker that settles it.
struct SysbenchTarget {
    observer: Observer,
    worker: WorkerHandle,
    target: Target,
    // Dropped last.
    _server: PrivateServer,
}

impl SysbenchTarget {
    fn start(
        harness: &Harness,
        engine: StorageEngine,
        shape: DataShape,
        cpus: &CpuAssignment,
    ) -> anyhow::Result<Self> {
        let server = PrivateServer::start(engine, shape, &cpus.system)?;
        let worker = server.load(harness, cpus, ClientWait::Sleep)?;
        Ok(Self { observer: server.observe()?, worker, target: server.target()?, _server: server })
    }

    /// The throughput that sysbench reports for a run on this server, in statements per second.
    fn measure(&mut self, sysbench: &Sysbench, job: &Job<'_>) -> anyhow::Result<f64> {
        let before = self.observer.connections()?;
        let qps = sysbench.start(&self.target, job)?.report()?;
        self.observer.wait_for_connections(before)?;
        Ok(qps.per_second())
    }
}

/// sysbench's ratios of MyRocks to InnoDB for each microbenchmark, in running order.
fn run_sysbench(
    args: &Args,
    harness: &Harness,
    sysbench: &Sysbench,
    experiment: &Experiment,
) -> anyhow::Result<Vec<(String, Vec<f64>)>> {
    let workload = &experiment.workload;
    let shape = DataShape {
        tables: workload.tables,
        rows: workload.rows,
        clients: workload.most_clients(),
    };
    ensure!(shape.tables == 1, "the sysbench scripts support one table only");
    let cpus = harness.pin(shape.clients)?;
    let _idle_preventer = harness.prevent_idle(&cpus)?;
    let mut innodb = SysbenchTarget::start(harness, StorageEngine::InnoDb, shape, &cpus)?;
    let mut myrocks = SysbenchTarget::start(harness, StorageEngine::MyRocks, shape, &cpus)?;
    let progress = Progress::start();
    let mut all_ratios = Vec::new();
    let mut written = false;
    for (number, microbenchmark) in workload.microbenchmarks.iter().enumerate() {
        let name = &microbenchmark.name;
        let work = WORKS.iter().find(|work| work.microbenchmark == name);
        let work = work.with_context(|| format!("{name} has no sysbench script"))?;
        let writes = microbenchmark.writes();
        // As in a run of dbdyno.
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
            harness.check_cancelled()?;
            let share = (number as f64 + f64::from(round) / f64::from(args.rounds))
                / workload.microbenchmarks.len() as f64;
            progress.show(share, &format!("sysbench, {name}"));
            // The second one runs on the state that the first one leaves.
            let (baseline, candidate) = if round % 2 == 0 {
                let baseline = innodb.measure(sysbench, &job)?;
                (baseline, myrocks.measure(sysbench, &job)?)
            } else {
                let candidate = myrocks.measure(sysbench, &job)?;
                (innodb.measure(sysbench, &job)?, candidate)
            };
            ratios.push(candidate / baseline);
        }
        all_ratios.push((name.clone(), ratios));
    }
    Ok(all_ratios)
}

fn conclude(version: &str, comparisons: &[Comparison]) -> anyhow::Result<Outcome> {
    let headings =
        ["MyRocks ÷ InnoDB", "dbdyno", "95% interval", version, "minimum to maximum", "agree"];
    let mut table = Table::new(&headings);
    let mut cases = Vec::new();
    let mut disagreements = Vec::new();
    for one in comparisons {
        let Comparison { microbenchmark, ours, .. } = one;
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
            disagreements.push(format!("{microbenchmark}: {:.4} and {middle:.4}", ours.median));
        }
        cases.push(Case::new(microbenchmark, "relative QPS", ours.median.get(), middle));
    }
    table.print();
    print(&format!("written to {}\n", write_csv("agreement", &cases)?.display()));
    Ok(Outcome::of(disagreements.is_empty(), || {
        format!("dbdyno and sysbench disagree on {}", disagreements.join("; "))
    }))
}

#[cfg(test)]
mod tests {
    use dbdyno_units::Ratio;

    use super::*;

    fn comparison(low: f64, high: f64, peer: &[f64]) -> Comparison {
        let ratio = |ratio| Ratio::of(ratio, 1.0).unwrap();
        Comparison {
            microbenchmark: "a".to_owned(),
            ours: Estimate {
                median: ratio((low + high) / 2.0),
                low: ratio(low),
                high: ratio(high),
                blocks: 20,
                starts: None,
            },
            peer: peer.to_vec(),
        }
    }

    #[test]
    fn interval_is_widened_by_the_spread_of_sysbench_ratios() {
        assert!(comparison(0.70, 0.72, &[0.71]).agree());
        assert!(!comparison(0.70, 0.72, &[0.73]).agree());
        assert!(comparison(0.70, 0.72, &[0.73, 0.72, 0.745]).agree());
        assert!(!comparison(0.70, 0.72, &[0.73, 0.725, 0.731]).agree());
        assert!(!comparison(0.70, 0.72, &[]).agree());
    }
}
