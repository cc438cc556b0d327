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
use dbdyno_live::{
    AttachedGroup, Attachment, LayoutCandidate, MAX_LAYOUTS, MadeLayout, RaceResult, Sampled,
    SamplingOptions, Side, race, sample,
};
use dbdyno_relayout::Samples;
use dbdyno_selfbench::figures::write_rows;
use dbdyno_selfbench::harness::{Harness, duration};
use dbdyno_selfbench::live_server::{LiveServer, OptimizedServer};
use dbdyno_selfbench::outcome::Outcome;
use dbdyno_selfbench::private_server::{SEED, run_slice};
use dbdyno_selfbench::progress::Progress;
use dbdyno_selfbench::table::print;
use dbdyno_types::SliceMeasured;
use dbdyno_units::Nanos;
use dbdyno_worker::protocol::Prepare;
use dbdyno_worker::schedule::order;
use dbdyno_worker::slice::{Quota, SliceRequest};
use dbdyno_worker::worker::WorkerHandle;
use dbdyno_workloads::catalog::Catalog;
use dbdyno_workloads::definition::{Microbenchmark, Stage};

use crate::ServerArgs;
use comparison::{Compared, ComparedLayout, Points, Row, conclude, row};

/// Duration of a slice in which the server is sampled.
const WARM_UP: Nanos = Nanos::from_millis(250);
/// Duration of a slice in a race of layouts.
const RACE_SLICE: Nanos = Nanos::from_millis(250);
/// Blocks after each optimization that are not used.
const WARM_UP_BLOCKS: u32 = 2;
/// Limit for a sampling thread that is never stopped; normally the workload ends sampling.
const MAX_SAMPLING_TIME: Duration = Duration::from_secs(3600);
/// Minimum number of blocks.
const MIN_BLOCKS: u32 = 20;

/// The arms of the comparison: original code, optimized code, original code again as control, and, if
/// requested, original code while it is sampled, or other layouts.
const ARMS: [&str; 3] = ["stock", "live", "control"];
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
    /// Race this many layouts, and measure the best and the default one
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "sampling_cost",
        value_parser = clap::value_parser!(u8).range(1..=MAX_LAYOUTS as i64))]
    layouts: u8,
    /// Measure all of these layouts as arms instead of racing them
    #[arg(long)]
    all_layouts: bool,
    /// Also measure the layout without redirected virtual tables
    #[arg(long, conflicts_with_all = ["layouts", "sampling_cost"])]
    virtual_tables: bool,
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
    server.ensure_original()?;
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
    server: &'a LiveServer,
    /// Number of the next slice's event stream: two arms cannot insert the same rows.
    stream: u32,
    done: Vec<Compared>,
    rows: Vec<Row>,
}

/// Layouts in the server, and what is active.
struct Switcher {
    group: AttachedGroup,
    /// Generation of each layout.
    generations: Vec<u32>,
    active: Side,
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
        let (mut switcher, made) = self.optimize(&sampled)?;
        let mut raced = None;
        let all_layouts = self.args.all_layouts || self.args.virtual_tables;
        if made.len() > 1 && !all_layouts {
            self.prepare(number, what, clients)?;
            raced = Some(self.race(what, &mut switcher)?);
        }
        let best = raced.as_ref().and_then(|race| race.winner).unwrap_or(0);
        // The default layout, or all, as further arms.
        let mut sides = vec![Side::Original, Side::Layout(best), Side::Original];
        if made.len() > 1 {
            let others = if all_layouts { made.len() } else { 1 };
            sides.extend((0..others).filter(|index| *index != best).map(Side::Layout));
        }
        let arms = sides.len() + usize::from(self.args.sampling_cost);
        let slice = if what.writes() { self.args.write_slice } else { self.args.slice };
        let blocks = self.args.budget.as_nanos() / slice.as_nanos().max(1) / arms as u64;
        let blocks = u32::try_from(blocks)?.max(MIN_BLOCKS);
        for clients in self.args.clients.clone() {
            self.prepare(number, what, clients)?;
            let mut points = Points::new(arms);
            for block in 0..WARM_UP_BLOCKS + blocks {
                for (place, arm) in (0..).zip(order(SEED, number, block, arms)) {
                    // Beyond the sides: the original code while it is sampled.
                    let side = sides.get(arm).copied();
                    switcher.activate(side.unwrap_or(Side::Original))?;
                    let measured = match side {
                        None => self.sampled(SAMPLING_STARTS, |it| it.slice(what, slice))?.0,
                        Some(_) => self.slice(what, slice)?,
                    };
                    if block >= WARM_UP_BLOCKS {
                        let name = arm_name(arm, &sides, &made);
                        let row = row(what, clients, (block, place), name, &measured)?;
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
            let layout = |index: usize| {
                let arm = sides.iter().skip(1).position(|side| *side == Side::Layout(index));
                let arm = arm.map(|arm| arm + 1).filter(|_| made.len() > 1);
                ComparedLayout {
                    name: made[index].name,
                    functions: made[index].done.statistics.functions_moved,
                    measured: arm.and_then(|arm| points.both(arm as u32)),
                    user: arm.map(|arm| points.user(arm)),
                    raced: raced.as_ref().map(|race| race.layouts[index].clone()),
                    won: index == best,
                }
            };
            let is_sampled = self.args.sampling_cost;
            self.done.push(Compared {
                qps: points.of(&points.qps).with_context(missing)?,
                cpu: points.of(&points.cpu).with_context(missing)?,
                sampled: if is_sampled { points.both(SAMPLED) } else { None },
                name,
                clients,
                samples,
                functions: made[best].done.statistics.functions_moved,
                hot: made[best].done.statistics.hot_bytes,
                stop: switcher.longest_stop,
                user: points.user(LIVE as usize),
                layouts: (0..made.len()).filter(|_| made.len() > 1).map(layout).collect(),
            });
        }
        switcher.activate(Side::Original)
    }

    /// Races the layouts in slices of the workload.
    fn race(
        &mut self,
        what: &Microbenchmark,
        switcher: &mut Switcher,
    ) -> anyhow::Result<RaceResult> {
        let layouts = switcher.generations.len();
        let measure = |side| {
            switcher.activate(side)?;
            let slice = self.slice(what, RACE_SLICE)?;
            let server = slice.server.as_ref().context("the server's CPU time is unknown")?;
            anyhow::Ok(Some(server.cpu.as_nanos() as f64 / slice.statements as f64))
        };
        race(layouts, SEED, measure, || false)
    }

    /// Makes the layouts. The default one is the first.
    fn optimize(&mut self, sampled: &Sampled) -> anyhow::Result<(Switcher, Vec<MadeLayout>)> {
        let count = usize::from(self.args.layouts);
        let default = dbdyno_relayout::Options::default();
        let (members, made) = if count > 1 || self.args.virtual_tables {
            let mut candidates = LayoutCandidate::first(count, &default);
            if self.args.virtual_tables {
                let mut without = LayoutCandidate::of(default);
                without.name = "without virtual tables";
                without.options.virtual_tables = false;
                candidates.push(without);
            }
            let made = self.server.optimize_layouts(sampled, &candidates)?;
            for (name, reason) in &made.skipped {
                print(&format!("layout not made: {name}: {reason}\n"));
            }
            (Vec::new(), made.all().cloned().collect())
        } else {
            let optimized = self.server.optimize(sampled)?;
            ensure!(optimized.failed == 0, "{} processes could not be optimized", optimized.failed);
            let OptimizedServer { done, prepared, members, .. } = optimized;
            (members, vec![MadeLayout { name: "default", done, prepared }])
        };
        let stops = made.iter().map(|layout| layout.done.switched.longest_stop);
        let switcher = Switcher {
            group: self.server.attach(&members)?,
            generations: made.iter().map(|layout| layout.done.generation).collect(),
            active: Side::Layout(made.len() - 1),
            longest_stop: stops.max().unwrap_or_default(),
        };
        Ok((switcher, made))
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
        let server = self.server;
        let counted = thread::scope(|scope| {
            let counting = scope.spawn(|| server.count(sampled));
            while !counting.is_finished() {
                self.slice(what, WARM_UP)?;
            }
            counting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        let report = &counted.report;
        let counting = match &report.fallback {
            Some(reason) => format!("not counted: {reason}"),
            None => format!(
                "{} counters in {} functions, {} estimated from samples; the server lost {}",
                report.counters,
                report.functions,
                report.uncounted.len(),
                report.lost()
            ),
        };
        print(&format!("{}: {counting}\n", what.name));
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
    /// Activates a side. Always switches at least once, so that the effect on caches is the same before every
    /// slice.
    fn activate(&mut self, side: Side) -> anyhow::Result<()> {
        if self.active == side {
            let other = if side == Side::Original { Side::Layout(0) } else { Side::Original };
            self.switch(other)?;
        }
        self.switch(side)
    }

    fn switch(&mut self, side: Side) -> anyhow::Result<()> {
        let switched = match (side, &*self.generations) {
            (Side::Original, _) => self.group.switch(Attachment::undo).context("undo"),
            // Other processes of a family may have other numbers.
            (Side::Layout(_), [_]) => self.group.switch(Attachment::redo).context("redo"),
            (Side::Layout(index), generations) => {
                let number = generations[index];
                self.group.switch(|it| it.activate_generation(number)).context("switch")
            }
        }?;
        if let Some((pid, error)) = switched.failed.iter().chain(self.group.unattached()).next() {
            bail!("process {pid}: {error}");
        }
        self.longest_stop = switched.stops.into_iter().fold(self.longest_stop, Nanos::max);
        self.active = side;
        Ok(())
    }
}

fn arm_name(arm: usize, sides: &[Side], made: &[MadeLayout]) -> String {
    match (arm, sides.get(arm)) {
        (_, None) => "sampled".to_owned(),
        (3.., Some(Side::Layout(index))) => made[*index].name.to_owned(),
        _ => ARMS[arm].to_owned(),
    }
}
