//! Repeated live optimization of a server under load: optimize, undo, redo, while clients read and
//! write and every result is checked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use dbdyno_engines::server::DataShape;
use dbdyno_live::{
    Attachment, Outcome as Optimized, SamplingOptions, SwitchOperation, Target, sample,
};
use dbdyno_selfbench::harness::{Harness, duration};

use dbdyno_selfbench::output::{Case, Outcome, Progress, Table, print, write_csv};
use dbdyno_selfbench::private_server::{PrivateServer, run_slice};
use dbdyno_units::Nanos;
use dbdyno_worker::WorkerHandle;
use dbdyno_worker::protocol::{Prepare, Quota, SliceRequest};
use dbdyno_workloads::catalog::Catalog;

use crate::{ServerArgs, ensure_original, optimize};

/// The workload, alternating: reads with checked results, and writes.
const WORK: [&str; 4] = [
    "read-write_range=100",
    "point-query_range=100",
    "update-index_range=100",
    "read-only_range=100",
];
/// The one among them of which each statement adds 1 to the sum of `k`.
const ADDS: &str = "update-index_range=100";
/// Duration of each microbenchmark.
const SLICE: Nanos = Nanos::from_millis(700);
/// Minimum number of samples for an optimization.
const MIN_SAMPLES: u64 = 100;
/// Goals for the median and the longest stop.
const MEDIAN_GOAL: Nanos = Nanos::from_millis(20);
const WORST_GOAL: Nanos = Nanos::from_millis(50);

/// Repeatedly optimizes, undoes and redoes a private server under load.
#[derive(clap::Args)]
pub struct Args {
    /// Number of cycles: optimize, undo, redo
    #[arg(long, default_value_t = 100)]
    cycles: u32,
    #[command(flatten)]
    server: ServerArgs,
    /// Number of concurrent clients
    #[arg(long, default_value_t = 16)]
    clients: u32,
    /// Number of rows
    #[arg(long, default_value_t = 20_000)]
    rows: u64,
    /// Duration of sampling per cycle
    #[arg(long, default_value = "500ms", value_parser = duration)]
    profile: Nanos,
}

pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let harness = Harness::new()?;
    let cpus = harness.pin(args.clients)?;
    let shape = DataShape { tables: 1, rows: args.rows, clients: args.clients };
    let mut server = args.server.start(&harness, &cpus, shape)?;
    let over = AtomicBool::new(false);
    let ((done, ended), worked) = thread::scope(|scope| {
        let cycling = scope.spawn(|| {
            let (server, done) = (&server.live, Done::default());
            let mut cycling = Cycling { args, server, over: &over, done };
            let ended = cycling.run();
            over.store(true, Ordering::Relaxed);
            (cycling.done, ended)
        });
        // On this thread, because workers end with the thread that started them.
        let worked = work(&mut server.worker, &server.server, &harness, args.clients, &over);
        over.store(true, Ordering::Relaxed);
        let done = cycling.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (done, worked)
    });
    let worked = worked.context("the load")?;
    ended.with_context(|| format!("the live optimizer, after {} cycles", done.resident.len()))?;
    server.worker.settle()?;
    let state_snapshot = server.worker.state_snapshot()?;
    conclude(args, &done, &worked, &format!("{state_snapshot:?}"))
}

/// What the clients did.
#[derive(Default)]
struct Worked {
    statements: u64,
    /// Slices after which the contents of the table were compared with what its clients had done.
    summed: u32,
}

/// Runs the load until `over`. A wrong result is an error, and so are contents that do not follow from the
/// statements.
fn work(
    worker: &mut WorkerHandle,
    server: &PrivateServer,
    harness: &Harness,
    clients: u32,
    over: &AtomicBool,
) -> anyhow::Result<Worked> {
    let catalog = Catalog::builtin();
    let mut worked = Worked::default();
    for slice in 0_u32.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        harness.check_cancelled()?;
        let position = slice % WORK.len() as u32;
        let name = WORK[position as usize];
        let microbenchmark = catalog.get(name).with_context(|| format!("{name} does not exist"))?;
        worker.prepare(Prepare {
            microbenchmark: microbenchmark.clone().for_clients(clients),
            position,
            clients,
        })?;
        let request = SliceRequest { block: slice, ..SliceRequest::of(Quota::Time(SLICE)) };
        let before = (name == ADDS).then(|| server.sum_of_k()).transpose()?;
        let statements = run_slice(worker, request).context(name)?.statements;
        if let Some(before) = before {
            let after = server.sum_of_k()?;
            ensure!(
                after == before + statements,
                "{statements} statements added 1 each, and the sum went from {before} to {after}"
            );
            worked.summed += 1;
        }
        worked.statements += statements;
    }
    Ok(worked)
}

#[derive(Default)]
struct Done {
    /// Longest stop of each optimization.
    stopped: Vec<Nanos>,
    /// Duration of each optimization.
    took: Vec<Nanos>,
    /// The last optimization. All of them would take megabytes each, and the process is forked at each stop.
    last: Option<Optimized>,
    /// Largest number of processes, and number of failures of one.
    processes: usize,
    failed: u32,
    undone: Vec<Nanos>,
    redone: Vec<Nanos>,
    /// Resident memory of the server after each cycle, in bytes.
    resident: Vec<u64>,
    /// New code in the server after each cycle, in bytes.
    new_code: Vec<u64>,
    retries: u32,
}

struct Cycling<'a> {
    args: &'a Args,
    server: &'a Target,
    over: &'a AtomicBool,
    done: Done,
}

impl Cycling<'_> {
    fn run(&mut self) -> anyhow::Result<()> {
        let progress = Progress::start();
        for cycle in 0..self.args.cycles {
            if self.over.load(Ordering::Relaxed) {
                break;
            }
            progress.show(f64::from(cycle) / f64::from(self.args.cycles), "cycles");
            self.optimize()?;
            pause();
            self.undo()?;
            pause();
            self.redo()?;
            pause();
            // In every other cycle, the next optimization replaces an active one.
            if cycle % 2 == 1 {
                self.undo()?;
                pause();
            }
            self.done.resident.push(resident(self.server.pid)?);
            self.done.new_code.push(new_code(self.server.pid)?);
        }
        self.undo()?;
        ensure_original(self.server)
    }

    fn optimize(&mut self) -> anyhow::Result<()> {
        let sampling =
            SamplingOptions { time: self.args.profile.into(), ..SamplingOptions::default() };
        let mut sampled = sample(self.server.pid, self.server.family, &sampling, |_| false)?;
        // Clients may be between two microbenchmarks for longer on a busy machine.
        while sampled.samples.total() < MIN_SAMPLES && !self.over.load(Ordering::Relaxed) {
            let more = sample(self.server.pid, self.server.family, &sampling, |_| false)?;
            sampled.samples.add_all(&more.samples);
        }
        let optimized = optimize(self.server, &sampled)?;
        self.done.retries += optimized.retries;
        self.done.failed += optimized.failed_members().map_or(0, |(count, _)| count);
        let processes = optimized.changed_members().len() + 1;
        self.done.processes = self.done.processes.max(processes);
        self.done.stopped.push(optimized.largest_stop().0);
        self.done.took.push(optimized.took);
        self.done.last = Some(optimized);
        Ok(())
    }

    fn undo(&mut self) -> anyhow::Result<()> {
        let all = self.switch(Attachment::undo).context("undo")?;
        self.done.undone.extend(all);
        Ok(())
    }

    fn redo(&mut self) -> anyhow::Result<()> {
        let all = self.switch(Attachment::redo).context("redo")?;
        self.done.redone.extend(all);
        Ok(())
    }

    fn switch(&mut self, switch: SwitchOperation) -> anyhow::Result<Vec<Nanos>> {
        let members = self.done.last.as_ref().map(Optimized::changed_members).unwrap_or_default();
        let mut group = self.server.attach_group(&members)?;
        let all = group.switch(switch)?;
        if let Some((pid, error)) = all.failed.iter().chain(group.unattached()).next() {
            bail!("process {pid}: {error}");
        }
        self.done.retries += all.retries;
        Ok(all.stops)
    }
}

fn pause() {
    thread::sleep(Duration::from_millis(150));
}

fn resident(pid: u32) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.context("the status of the server has no VmRSS")? << 10)
}

/// Size of executable memory without a file, in bytes.
fn new_code(pid: u32) -> anyhow::Result<u64> {
    let maps = dbdyno_live::Maps::of(pid)?;
    let own = maps.all().iter().filter(|it| it.executable && it.inode == 0 && it.name.is_empty());
    Ok(own.map(|mapping| mapping.range.end - mapping.range.start).sum())
}

fn conclude(
    args: &Args,
    done: &Done,
    worked: &Worked,
    state_snapshot: &str,
) -> anyhow::Result<Outcome> {
    let mut table = Table::new(&["", "n", "median", "95%", "worst"]);
    let mut cases = Vec::new();
    let mut worst = Nanos::ZERO;
    let mut typical = Nanos::ZERO;
    for (name, times) in [
        ("stopped to optimize", &done.stopped),
        ("stopped to undo", &done.undone),
        ("stopped to redo", &done.redone),
        ("whole optimization, without sampling", &done.took),
    ] {
        let mut times = times.clone();
        times.sort_unstable();
        let at = |share: f64| {
            let last = times.len().saturating_sub(1) as f64;
            times.get((last * share).round() as usize).copied().unwrap_or_default()
        };
        let [median, high, most] = [0.5, 0.95, 1.0].map(at);
        if name.starts_with("stopped") {
            (typical, worst) = (typical.max(median), worst.max(most));
        }
        let figures = [times.len().to_string(), median.to_string(), high.to_string()];
        let [n, middle, upper] = figures;
        table.row([name.to_owned(), n, middle, upper, most.to_string()]);
        cases.push(Case::new(name, "ms (median; worst)", millis(median), millis(most)));
    }
    table.print();
    let last = done.last.as_ref().context("it was never optimized")?;
    print(&format!(
        "{} cycles, {} statements by {} clients, none wrong; {} times too busy to be stopped\n\
         after each of {} slices of updates the sum of k had grown by their number\n\
         last optimization: {} functions, {} KiB hot; {} processes, {} failures of \
         one\nnew code in the server: {} KiB after the first cycle, {} at most, {} after the \
         last\nresident: {} MiB after the first cycle, {} after half of them, {} after the last\n{state_snapshot}\n",
        done.resident.len(),
        worked.statements,
        args.clients,
        done.retries,
        worked.summed,
        last.optimized.code.statistics.functions_moved,
        last.optimized.code.statistics.hot_bytes >> 10,
        done.processes,
        done.failed,
        first(&done.new_code) >> 10,
        done.new_code.iter().max().unwrap_or(&0) >> 10,
        done.new_code.last().unwrap_or(&0) >> 10,
        first(&done.resident) >> 20,
        done.resident.get(done.resident.len() / 2).unwrap_or(&0) >> 20,
        done.resident.last().unwrap_or(&0) >> 20,
    ));
    print(&format!("written to {}\n", write_csv("live-cycles", &cases)?.display()));
    let met = typical <= MEDIAN_GOAL && worst <= WORST_GOAL;
    Ok(Outcome::of(met, || {
        format!(
            "median stop {typical} and longest stop {worst}; goals {MEDIAN_GOAL} and {WORST_GOAL}"
        )
    }))
}

fn first(values: &[u64]) -> u64 {
    values.first().copied().unwrap_or(0)
}

fn millis(time: Nanos) -> f64 {
    time.as_secs_f64() * 1e3
}
