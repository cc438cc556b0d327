//! The effect of the live optimizer within one process: a server alternates between optimized and
//! original code, slice by slice.
//!
//! Two processes of the same program differ by their physical memory, often by more than a layout of
//! code does. Here both sides of a comparison are the same process with the same data.

mod comparison;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use dbdyno_engines::server::DataShape;
use dbdyno_live::{AttachedGroup, Attachment, Sampled, SamplingOptions, Target, sample};
use dbdyno_relayout::Samples;
use dbdyno_selfbench::harness::{Harness, duration};
use dbdyno_selfbench::live_server::{count_executions, ensure_original, optimize};
use dbdyno_selfbench::output::{Outcome, Progress, print, write_rows};
use dbdyno_selfbench::private_server::{SEED, run_slice};
use dbdyno_types::SliceMeasured;
use dbdyno_units::Nanos;
use dbdyno_worker::WorkerHandle;
use dbdyno_worker::protocol::{Prepare, Quota, SliceRequest};
use dbdyno_worker::schedule::order;
use dbdyno_workloads::catalog::Catalog;
use dbdyno_workloads::definition::{Microbenchmark, Stage};

use crate::ServerArgs;
use comparison::{Compared, Points, Row, conclude, row};

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
    microbenchmarks.sort_by_key(Microbenchmark::shrinks_tables);
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
        let statistics = &outcome.optimized.statistics;
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
        let request = SliceRequest { block, clients: None, lead_in: quota.lead_in(time), quota };
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
