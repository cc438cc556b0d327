//! The effect of the live optimizer within one process: a server alternates between optimized and
//! original code, slice by slice.
//!
//! Two processes of the same program differ by their physical memory, often by more than a layout of
//! code does. Here both sides of a comparison are the same process with the same data.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use dbdyno_engines::server::DataShape;
use dbdyno_live::{AttachedGroup, Attachment, Sampled, SamplingOptions, Target, sample};
use dbdyno_relayout::Samples;
use dbdyno_selfbench::harness::{Harness, duration};
use dbdyno_selfbench::output::{Case, Outcome, Progress, Table, print, write_csv, write_rows};
use dbdyno_selfbench::private_server::{SEED, run_slice};
use dbdyno_stats::{Estimate, Point, median, median_with_interval, paired_ratios};
use dbdyno_types::SliceMeasured;
use dbdyno_units::Nanos;
use dbdyno_worker::WorkerHandle;
use dbdyno_worker::protocol::{Prepare, Quota, SliceRequest};
use dbdyno_worker::schedule::order;
use dbdyno_workloads::catalog::Catalog;
use dbdyno_workloads::definition::{Microbenchmark, Stage};
use serde::Serialize;

use crate::{ServerArgs, count_executions, ensure_original, optimize};

/// Duration of a slice in which the server is sampled.
const WARM_UP: Nanos = Nanos::from_millis(250);
/// Blocks after each optimization that are not used.
const WARM_UP_BLOCKS: u32 = 2;
/// Limit for a sampling thread that is never stopped; normally the workload ends sampling.
const MAX_SAMPLING_TIME: Duration = Duration::from_secs(3600);
/// Minimum number of blocks.
const MIN_BLOCKS: u32 = 20;

/// The arms of the comparison: original code, optimized code, original code again as control, and, if
/// requested, original code while it is sampled.
const ARMS: [&str; 4] = ["stock", "live", "control", "sampled"];
const STOCK: u32 = 0;
const LIVE: u32 = 1;
const CONTROL: u32 = 2;
const SAMPLED: u32 = 3;
/// Maximum time until sampling has started.
const SAMPLING_STARTS: Duration = Duration::from_millis(20);

/// Measures one server, alternating between optimized and original code
#[derive(clap::Args)]
pub struct Args {
    /// Names, patterns or groups of microbenchmarks
    #[arg(default_value = "all")]
    microbenchmarks: Vec<String>,
    #[command(flatten)]
    server: ServerArgs,
    /// Number of concurrent clients; several numbers, separated by commas, are measured in sequence
    #[arg(long, value_delimiter = ',', default_value = "4")]
    clients: Vec<u32>,
    /// Number of clients while the server is sampled [default: the first of --clients]
    #[arg(long)]
    sampled_clients: Option<u32>,
    /// Number of tables
    #[arg(long, default_value_t = 1)]
    tables: u32,
    /// Number of rows per table
    #[arg(long, default_value_t = 500_000)]
    rows: u64,
    /// Duration of sampling before each microbenchmark
    #[arg(long, default_value = "8s", value_parser = duration)]
    profile: Nanos,
    /// Samples per second
    #[arg(long, default_value_t = 11_999)]
    frequency: u32,
    /// Duration of a slice that only reads
    #[arg(long, default_value = "50ms", value_parser = duration)]
    slice: Nanos,
    /// Duration of a slice with writes
    #[arg(long, default_value = "250ms", value_parser = duration)]
    write_slice: Nanos,
    /// Measuring time of each microbenchmark and number of clients
    #[arg(long, default_value = "12s", value_parser = duration)]
    budget: Nanos,
    /// Source of the executions of blocks; several, separated by commas, are measured in sequence
    #[arg(long, value_enum, value_delimiter = ',', default_value = "sampled")]
    counts: Vec<Counts>,
    /// Also measure the cost of sampling
    #[arg(long)]
    sampling_cost: bool,
}

/// Source of the executions of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Counts {
    Sampled,
    Exact,
}

pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let words = args.microbenchmarks.iter().map(String::as_str);
    let mut microbenchmarks = Catalog::builtin().select(words).map_err(|unmatched| {
        let words: Vec<String> = unmatched.into_iter().map(|one| one.word).collect();
        anyhow!("no microbenchmark matches {}", words.join(", "))
    })?;
    // Microbenchmarks that shrink the tables come last.
    microbenchmarks.sort_by_key(Microbenchmark::uses_up_data);
    let most = args.clients.iter().copied().chain(args.sampled_clients).max().unwrap_or(1);
    let harness = Harness::new()?;
    let cpus = harness.pin(most)?;
    let _idle_preventer = harness.prevent_idle(&cpus)?;
    let shape = DataShape { tables: args.tables, rows: args.rows, clients: most };
    let mut server = args.server.start(&harness, &cpus, shape)?;
    let mut measuring = Measuring {
        args,
        harness: &harness,
        worker: &mut server.worker,
        server: &server.live,
        stream: 0,
        done: Vec::new(),
        rows: Vec::new(),
    };
    let progress = Progress::start();
    let mut is_settled = true;
    for (number, microbenchmark) in (0..).zip(&microbenchmarks) {
        let share = f64::from(number) / microbenchmarks.len() as f64;
        progress.show(share, &microbenchmark.name);
        let reads_after_writes =
            !is_settled && microbenchmark.stage >= Stage::Post && !microbenchmark.writes();
        if microbenchmark.writes() || reads_after_writes {
            measuring.worker.free_statements()?;
            measuring.worker.settle()?;
            if reads_after_writes {
                measuring.worker.warm()?;
            }
            is_settled = !microbenchmark.writes();
        }
        for counts in &args.counts {
            measuring.microbenchmark(number, microbenchmark, *counts)?;
        }
    }
    drop(progress);
    let Measuring { worker, server, done, rows, .. } = measuring;
    ensure_original(server)?;
    worker.settle()?;
    let state_snapshot = worker.state_snapshot()?;
    let path = write_rows("live-gain-slices", &rows)?;
    print(&format!("state: {state_snapshot:?}\nall slices: {}\n", path.display()));
    conclude(&done)
}

struct Measuring<'a> {
    args: &'a Args,
    harness: &'a Harness,
    worker: &'a mut WorkerHandle,
    server: &'a Target,
    /// Number of the next slice's event stream: two arms cannot insert the same rows.
    stream: u32,
    done: Vec<Compared>,
    rows: Vec<Row>,
}

/// The optimized server, and which code is active.
struct Switcher {
    group: AttachedGroup,
    is_optimized: bool,
    longest_stop: Nanos,
}

impl Measuring<'_> {
    /// Samples the server under this load, optimizes it, and measures it.
    fn microbenchmark(
        &mut self,
        number: u32,
        what: &Microbenchmark,
        counts: Counts,
    ) -> anyhow::Result<()> {
        let clients = self.args.sampled_clients.unwrap_or(self.args.clients[0]);
        let sampled = self.sample(number, what, clients, counts)?;
        let samples = sampled.samples.total();
        let outcome = optimize(self.server, &sampled)?;
        let failed = outcome.failed_members();
        ensure!(failed.is_none(), "processes could not be optimized, and why: {failed:?}");
        let statistics = &outcome.optimized.code.statistics;
        let mut switcher = Switcher {
            group: self.server.attach_group(&outcome.changed_members())?,
            is_optimized: true,
            longest_stop: outcome.optimized.switched.longest_stop,
        };
        let arms = if self.args.sampling_cost { ARMS.len() } else { ARMS.len() - 1 };
        let slice = if what.writes() { self.args.write_slice } else { self.args.slice };
        let blocks = self.args.budget.as_nanos() / slice.as_nanos().max(1) / arms as u64;
        let blocks = u32::try_from(blocks)?.max(MIN_BLOCKS);
        for clients in self.args.clients.clone() {
            self.prepare(number, what, clients)?;
            let mut points = Points::new(arms);
            for block in 0..WARM_UP_BLOCKS + blocks {
                for (place, arm) in (0..).zip(order(SEED, number, block, arms)) {
                    switcher.activate(arm == LIVE as usize)?;
                    let measured = match arm == SAMPLED as usize {
                        true => self.sampled(SAMPLING_STARTS, |it| it.slice(what, slice))?.0,
                        false => self.slice(what, slice)?,
                    };
                    if block >= WARM_UP_BLOCKS {
                        let row = row(what, clients, (block, place), ARMS[arm], &measured)?;
                        points.add(&row, arm);
                        self.rows.push(row);
                    }
                }
            }
            let name = match counts {
                Counts::Sampled => what.name.clone(),
                Counts::Exact => format!("{} (exact counts)", what.name),
            };
            let missing = || format!("{name}: too few slices for an estimate");
            self.done.push(Compared {
                qps: points.of(&points.qps).with_context(missing)?,
                cpu: points.of(&points.cpu).with_context(missing)?,
                sampled: if self.args.sampling_cost { points.both(SAMPLED) } else { None },
                name,
                clients,
                samples,
                functions: statistics.functions_moved,
                hot: statistics.hot_bytes,
                stop: switcher.longest_stop,
                user: points.user(LIVE as usize),
            });
        }
        switcher.activate(false)
    }

    /// Samples the server under this load.
    fn sample(
        &mut self,
        number: u32,
        what: &Microbenchmark,
        clients: u32,
        counts: Counts,
    ) -> anyhow::Result<Sampled> {
        self.prepare(number, what, clients)?;
        let slices = self.args.profile.as_nanos().div_ceil(WARM_UP.as_nanos());
        let ((), mut sampled) = self.sampled(Duration::ZERO, |it| {
            (0..slices).try_for_each(|_| it.slice(what, WARM_UP).map(drop))
        })?;
        if counts == Counts::Exact {
            sampled.samples = self.count(what, &sampled)?;
        }
        Ok(sampled)
    }

    /// Counts executions of the server under load. Returns the samples with the counts.
    fn count(&mut self, what: &Microbenchmark, sampled: &Sampled) -> anyhow::Result<Samples> {
        let target = self.server;
        let counted = thread::scope(|scope| {
            let counting = scope.spawn(|| count_executions(target, sampled));
            while !counting.is_finished() {
                self.slice(what, WARM_UP)?;
            }
            counting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        print(&format!("{}: {}\n", what.name, counted.report));
        Ok(counted.samples)
    }

    /// Samples the server while `work` runs, which starts after `wait`.
    fn sampled<T>(
        &mut self,
        wait: Duration,
        work: impl FnOnce(&mut Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, Sampled)> {
        let over = AtomicBool::new(false);
        let sampling = SamplingOptions {
            time: MAX_SAMPLING_TIME,
            frequency: self.args.frequency,
            ..SamplingOptions::default()
        };
        let (pid, family) = (self.server.pid, self.server.family);
        thread::scope(|scope| {
            let sampler =
                scope.spawn(|| sample(pid, family, &sampling, |_| over.load(Ordering::Relaxed)));
            thread::sleep(wait);
            let worked = work(self);
            over.store(true, Ordering::Relaxed);
            let sampled = sampler.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok((worked?, sampled?))
        })
    }

    fn prepare(&mut self, number: u32, what: &Microbenchmark, clients: u32) -> anyhow::Result<()> {
        let microbenchmark = what.clone().for_clients(clients);
        Ok(self.worker.prepare(Prepare { microbenchmark, position: number, clients })?)
    }

    /// Runs a slice. A wrong result is an error.
    fn slice(&mut self, what: &Microbenchmark, time: Nanos) -> anyhow::Result<SliceMeasured> {
        self.harness.check_cancelled()?;
        let quota = Quota::Time(time);
        let block = self.stream;
        self.stream += 1;
        let lead_in = quota.lead_in(time);
        let request = SliceRequest { block, lead_in, ..SliceRequest::of(quota) };
        run_slice(self.worker, request).with_context(|| what.name.clone())
    }
}

impl Switcher {
    /// Activates the optimized or the original code. Always switches at least once, so that the effect on caches is
    /// the same before every slice.
    fn activate(&mut self, optimized: bool) -> anyhow::Result<()> {
        if self.is_optimized == optimized {
            self.switch(!optimized)?;
        }
        self.switch(optimized)
    }

    fn switch(&mut self, optimized: bool) -> anyhow::Result<()> {
        let switched = match optimized {
            true => self.group.switch(Attachment::redo).context("redo"),
            false => self.group.switch(Attachment::undo).context("undo"),
        }?;
        if let Some((pid, error)) = switched.failed.iter().chain(self.group.unattached()).next() {
            bail!("process {pid}: {error}");
        }
        self.longest_stop = switched.stops.into_iter().fold(self.longest_stop, Nanos::max);
        self.is_optimized = optimized;
        Ok(())
    }
}

/// A loss of throughput that is not reported.
const TOLERATED_LOSS: f64 = 0.01;

/// One microbenchmark at one number of clients.
struct Compared {
    name: String,
    clients: u32,
    /// Throughput and server CPU time per query of the optimized code and of the control, relative to
    /// the original code.
    qps: [Estimate; 2],
    cpu: [Estimate; 2],
    /// The same while the server is sampled.
    sampled: Option<[Estimate; 2]>,
    samples: u64,
    functions: u64,
    hot: u64,
    stop: Nanos,
    /// User CPU time per query of the optimized code, relative to the original code.
    user: f64,
}

#[derive(Debug, Serialize)]
struct Row {
    microbenchmark: String,
    clients: u32,
    block: u32,
    place: u32,
    arm: &'static str,
    statements: u64,
    wall_ns: u64,
    qps: f64,
    server_cpu_ns: u64,
    server_user_ns: u64,
}

fn row(
    what: &Microbenchmark,
    clients: u32,
    (block, place): (u32, u32),
    arm: &'static str,
    measured: &SliceMeasured,
) -> anyhow::Result<Row> {
    let server = measured.server.as_ref().context("the server's CPU time is unknown")?;
    Ok(Row {
        microbenchmark: what.name.clone(),
        clients,
        block,
        place,
        arm,
        statements: measured.statements,
        wall_ns: measured.wall.as_nanos(),
        qps: measured.throughput.context("a slice has no statements")?.per_second(),
        server_cpu_ns: server.cpu.as_nanos(),
        server_user_ns: server.user.as_nanos(),
    })
}

struct Points {
    qps: Vec<Point>,
    cpu: Vec<Point>,
    /// User CPU time and number of queries of each arm: the kernel's ticks are too long for a slice.
    user: Vec<(u64, u64)>,
}

impl Points {
    fn new(arms: usize) -> Self {
        Self { qps: Vec::new(), cpu: Vec::new(), user: vec![(0, 0); arms] }
    }

    fn add(&mut self, row: &Row, arm: usize) {
        let point = |value| Point { restart: 0, block: row.block, candidate: arm as u32, value };
        self.qps.push(point(row.qps));
        self.cpu.push(point(row.server_cpu_ns as f64 / row.statements as f64));
        let (user, queries) = &mut self.user[arm];
        *user += row.server_user_ns;
        *queries += row.statements;
    }

    /// Estimates of the optimized code and of the control.
    fn of(&self, points: &[Point]) -> Option<[Estimate; 2]> {
        Some([estimate(points, LIVE)?, estimate(points, CONTROL)?])
    }

    /// Throughput and CPU time per query of an arm.
    fn both(&self, arm: u32) -> Option<[Estimate; 2]> {
        Some([estimate(&self.qps, arm)?, estimate(&self.cpu, arm)?])
    }

    /// User CPU time per query of an arm, relative to both arms with the original code.
    fn user(&self, arm: usize) -> f64 {
        let per_query = |(user, queries): (u64, u64)| user as f64 / queries as f64;
        let [stock, control] = [STOCK, CONTROL].map(|arm| self.user[arm as usize]);
        per_query(self.user[arm]) / per_query((stock.0 + control.0, stock.1 + control.1))
    }
}

fn estimate(points: &[Point], arm: u32) -> Option<Estimate> {
    median_with_interval(paired_ratios(points, arm, STOCK).first()?)
}

fn text(estimate: &Estimate) -> String {
    let [median, low, high] = [estimate.median, estimate.low, estimate.high].map(|it| it.get());
    format!("{median:.3} ({low:.3} to {high:.3})")
}

/// A figure over all comparisons: name, value, and number of decimals.
type Figure = (&'static str, fn(&Compared) -> f64, usize);

fn conclude(done: &[Compared]) -> anyhow::Result<Outcome> {
    let headings = [
        "microbenchmark",
        "clients",
        "QPS",
        "CPU per query",
        "user CPU",
        "control QPS",
        "control CPU",
    ];
    let mut table = Table::new(&headings);
    let mut sampled = Table::new(&["while sampled", "clients", "QPS", "CPU per query"]);
    let mut cases = Vec::new();
    let mut slower = Vec::new();
    for one in done {
        let [qps, control] = &one.qps;
        let [cpu, control_cpu] = &one.cpu;
        let short = |estimate: &Estimate| format!("{:.3}", estimate.median.get());
        table.row([
            one.name.clone(),
            one.clients.to_string(),
            text(qps),
            text(cpu),
            format!("{:.3}", one.user),
            short(control),
            short(control_cpu),
        ]);
        let case = |what: &str, unit, ours: f64, peer: f64| {
            Case::new(format!("{} at {}: {what}", one.name, one.clients), unit, ours, peer)
        };
        let relative =
            |what: &str, estimate: &Estimate| case(what, "relative", estimate.median.get(), 1.0);
        cases.extend([relative("QPS", qps), relative("CPU per query", cpu)]);
        let count = |what: &str, count: u64| case(what, "count", count as f64, one.samples as f64);
        cases.extend([count("samples", one.samples), count("functions", one.functions)]);
        cases.push(count("bytes of hot code", one.hot));
        cases.push(case("user CPU per query", "relative", one.user, 1.0));
        if let Some([qps, cpu]) = &one.sampled {
            sampled.row([one.name.clone(), one.clients.to_string(), text(qps), text(cpu)]);
            cases.extend([relative("QPS, sampled", qps), relative("CPU per query, sampled", cpu)]);
        }
        cases.extend([
            relative("QPS, control", control),
            relative("CPU per query, control", control_cpu),
        ]);
        if qps.high.get() < 1.0 - TOLERATED_LOSS {
            slower.push(format!("{} at {} clients: {}", one.name, one.clients, text(qps)));
        }
    }
    table.print();
    if done.iter().any(|one| one.sampled.is_some()) {
        sampled.print();
    }
    let of_all = |figure: fn(&Compared) -> f64| {
        let mut values: Vec<f64> = done.iter().map(figure).collect();
        values.sort_unstable_by(f64::total_cmp);
        let middle = median(&values).unwrap_or(f64::NAN);
        let least = values.first().copied().unwrap_or(f64::NAN);
        [least, middle, values.last().copied().unwrap_or(f64::NAN)]
    };
    let mut summary = Table::new(&["", "least", "median", "most"]);
    let figures: [Figure; 8] = [
        ("relative QPS", |one| one.qps[0].median.get(), 3),
        ("relative CPU per query", |one| one.cpu[0].median.get(), 3),
        ("relative user CPU per query", |one| one.user, 3),
        ("the control's relative QPS", |one| one.qps[1].median.get(), 3),
        ("half-width of the QPS interval, %", |one| one.qps[0].half_width().as_percent(), 2),
        ("samples", |one| one.samples as f64, 0),
        ("functions moved", |one| one.functions as f64, 0),
        ("hot code, KiB", |one| (one.hot >> 10) as f64, 0),
    ];
    for (name, figure, digits) in figures {
        let [least, middle, most] = of_all(figure).map(|value| format!("{value:.digits$}"));
        summary.row([name.to_owned(), least, middle, most]);
    }
    summary.print();
    let stop = done.iter().map(|one| one.stop).max().unwrap_or_default();
    print(&format!(
        "{} comparisons; threads were stopped for {stop} at most\nwritten to {}\n",
        done.len(),
        write_csv("live-gain", &cases)?.display()
    ));
    Ok(Outcome::of(slower.is_empty(), || {
        format!("slower by more than 1%, outside the interval: {}", slower.join("; "))
    }))
}
