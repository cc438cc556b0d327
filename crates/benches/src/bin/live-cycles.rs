//! Whether a server under load survives the live optimizer again and again: optimized, undone, put
//! in force again, optimized anew, while clients read and write and every answer is checked.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser;
use dbdyno_bench::protocol::Prepare;
use dbdyno_bench::slice::{Quota, SliceRequest};
use dbdyno_bench::worker::WorkerHandle;
use dbdyno_benches::figures::{Case, write_csv};
use dbdyno_benches::lab::{Lab, duration, main as lab_main};
use dbdyno_benches::live_server::{LiveServer, OptimizedServer};
use dbdyno_benches::outcome::Outcome;
use dbdyno_benches::private_server::{PrivateServer, find_system};
use dbdyno_benches::progress::Progress;
use dbdyno_benches::table::{Table, print};
use dbdyno_engines::server::DataShape;
use dbdyno_live::{Attachment, SamplingOptions, SwitchOperation, sample};
use dbdyno_machine::{CpuAssignment, FsRoot, Topology, pin_current_thread};
use dbdyno_units::Nanos;
use dbdyno_workloads::catalog::Catalog;

/// What the clients do, in turns: reads whose answers are counted, and writes.
const WORK: [&str; 4] = [
    "read-write_range=100",
    "point-query_range=100",
    "update-index_range=100",
    "read-only_range=100",
];
/// One turn.
const TURN: Nanos = Nanos::from_millis(700);
/// Stops of more than this miss the goal.
const TYPICAL: Nanos = Nanos::from_millis(20);
const WORST: Nanos = Nanos::from_millis(50);

/// Optimizes a private server under load, undoes it, and again.
#[derive(Parser)]
#[command(name = "live-cycles")]
struct Args {
    /// How often it is optimized, undone and put in force again
    #[arg(long, default_value_t = 100)]
    cycles: u32,
    /// The server
    #[arg(long, default_value = "mariadb")]
    system: String,
    /// Its storage engine, where it has several
    #[arg(long)]
    engine: Option<String>,
    /// Clients at work at once
    #[arg(long, default_value_t = 16)]
    clients: u32,
    /// Rows
    #[arg(long, default_value_t = 20_000)]
    rows: u64,
    /// For how long the server is sampled each time
    #[arg(long, default_value = "500ms", value_parser = duration)]
    profile: Nanos,
    /// For how long its threads may stand still
    #[arg(long, default_value = "50ms", value_parser = duration)]
    stop: Nanos,
}

fn main() -> ExitCode {
    lab_main(|| cycles(&Args::parse()))
}

fn cycles(args: &Args) -> anyhow::Result<Outcome> {
    let (system, engine) = find_system(&args.system, args.engine.as_deref())?;
    let lab = Lab::new()?;
    let topology = Topology::read(&FsRoot::this_machine());
    let cpus = CpuAssignment::choose(lab.cpus(), &topology, args.clients, false);
    pin_current_thread(&cpus.dbdyno)?;
    let shape = DataShape { tables: 1, rows: args.rows, clients: args.clients };
    let server = PrivateServer::start_system(system, engine, shape, &cpus.system)?;
    let mut worker = server.load(&lab, &cpus)?;
    let state = tempfile::Builder::new().prefix("dbdyno-bench-").tempdir()?;
    let over = AtomicBool::new(false);
    let live = LiveServer::new(system, server.pid()?, state.path(), args.stop);
    let (done, worked) = thread::scope(|scope| {
        let cycling = scope.spawn(|| {
            let done = Cycling::new(args, live, &over).run();
            over.store(true, Ordering::Relaxed);
            done
        });
        // Here: workers end with the thread that started them.
        let worked = work(&mut worker, &lab, args.clients, &over);
        over.store(true, Ordering::Relaxed);
        let done = cycling.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (done, worked)
    });
    let statements = worked.context("the load")?;
    let done = done.context("the live optimizer")?;
    worker.settle()?;
    let state_snapshot = worker.state_snapshot()?;
    conclude(args, &done, statements, &format!("{state_snapshot:?}"))
}

/// Runs the load until it is over; returns how many statements. A wrong answer is an error.
fn work(
    worker: &mut WorkerHandle,
    lab: &Lab,
    clients: u32,
    over: &AtomicBool,
) -> anyhow::Result<u64> {
    let catalog = Catalog::builtin();
    let mut statements = 0;
    for turn in 0_u32.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        lab.check_cancelled()?;
        let position = turn % WORK.len() as u32;
        let name = WORK[position as usize];
        let microbenchmark = catalog.get(name).with_context(|| format!("there is no {name}"))?;
        worker.prepare(Prepare {
            microbenchmark: microbenchmark.clone().for_clients(clients),
            position,
            clients,
        })?;
        let quota = Quota::Time(TURN);
        let measured = worker.slice(SliceRequest { block: turn, lead_in: None, quota })?;
        if measured.errors > 0 || measured.wrong > 0 {
            let complaint = measured.first_complaint.unwrap_or_default();
            bail!("{name}: {} errors, {} wrong: {complaint}", measured.errors, measured.wrong);
        }
        statements += measured.statements;
    }
    Ok(statements)
}

/// What was seen.
#[derive(Default)]
struct Done {
    optimized: Vec<OptimizedServer>,
    undone: Vec<Nanos>,
    redone: Vec<Nanos>,
    /// Resident bytes of the server after each cycle.
    resident: Vec<u64>,
    /// Bytes of ours in the server after each cycle.
    ours: Vec<u64>,
    retries: u32,
}

struct Cycling<'a> {
    args: &'a Args,
    server: LiveServer<'a>,
    over: &'a AtomicBool,
    done: Done,
}

impl<'a> Cycling<'a> {
    fn new(args: &'a Args, server: LiveServer<'a>, over: &'a AtomicBool) -> Self {
        Self { args, server, over, done: Done::default() }
    }

    fn run(mut self) -> anyhow::Result<Done> {
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
            // Every other time the next one replaces what is in force.
            if cycle % 2 == 1 {
                self.undo()?;
                pause();
            }
            self.done.resident.push(resident(self.server.pid)?);
            self.done.ours.push(ours(self.server.pid)?);
        }
        self.undo()?;
        self.server.ensure_original()?;
        Ok(self.done)
    }

    fn optimize(&mut self) -> anyhow::Result<()> {
        let sampling =
            SamplingOptions { time: self.args.profile.into(), ..SamplingOptions::default() };
        let sampled = sample(self.server.pid, self.server.family, &sampling, |_| false)?;
        let seen = self.server.optimize(&sampled)?;
        self.done.retries += seen.retries;
        self.done.optimized.push(seen);
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
        let members = self.done.optimized.last().map_or(&[][..], |seen| &seen.members);
        let all = self.server.attach(members)?.switch(switch)?;
        if let Some((pid, error)) = all.failed.first() {
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
    Ok(kib.context("the server does not tell its memory")? << 10)
}

/// Executable memory without a file.
fn ours(pid: u32) -> anyhow::Result<u64> {
    let maps = dbdyno_live::Maps::of(pid)?;
    let own = maps.all().iter().filter(|it| it.executable && it.inode == 0 && it.name.is_empty());
    Ok(own.map(|mapping| mapping.range.end - mapping.range.start).sum())
}

fn conclude(
    args: &Args,
    done: &Done,
    statements: u64,
    state_snapshot: &str,
) -> anyhow::Result<Outcome> {
    let mut stops: Vec<Nanos> = done.optimized.iter().map(|seen| seen.stop).collect();
    let mut took: Vec<Nanos> = done.optimized.iter().map(|seen| seen.took).collect();
    let mut table = Table::new(&["", "n", "median", "95%", "worst"]);
    let mut cases = Vec::new();
    let mut worst = Nanos::ZERO;
    let mut typical = Nanos::ZERO;
    let (mut undone, mut redone) = (done.undone.clone(), done.redone.clone());
    for (name, times) in [
        ("stopped to optimize", &mut stops),
        ("stopped to undo", &mut undone),
        ("stopped to redo", &mut redone),
        ("all of an optimization, without sampling", &mut took),
    ] {
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
    let last = done.optimized.last().context("it was never optimized")?;
    let members = done.optimized.iter().map(|seen| seen.members.len() + 1).max().unwrap_or(1);
    let failed: u32 = done.optimized.iter().map(|seen| seen.failed).sum();
    print(&format!(
        "{} cycles, {statements} statements by {} clients, none wrong; {} times too busy to be \
         stopped\nat the end {} functions, {} KiB hot; {members} processes, {failed} times one \
         left out\ncode of ours in the server: {} KiB after the first cycle, {} at most, {} after \
         the last\nresident: {} MiB after the first cycle, {} after half of them, {} after the last\n{state_snapshot}\n",
        done.resident.len(),
        args.clients,
        done.retries,
        last.done.statistics.functions_moved,
        last.done.statistics.hot_bytes >> 10,
        first(&done.ours) >> 10,
        done.ours.iter().max().unwrap_or(&0) >> 10,
        done.ours.last().unwrap_or(&0) >> 10,
        first(&done.resident) >> 20,
        done.resident.get(done.resident.len() / 2).unwrap_or(&0) >> 20,
        done.resident.last().unwrap_or(&0) >> 20,
    ));
    print(&format!("written to {}\n", write_csv("live-cycles", &cases)?.display()));
    let met = typical <= TYPICAL && worst <= WORST;
    Ok(Outcome::of(met, || {
        format!("stopped for {typical} typically and {worst} at worst, not {TYPICAL} and {WORST}")
    }))
}

fn first(values: &[u64]) -> u64 {
    values.first().copied().unwrap_or(0)
}

fn millis(time: Nanos) -> f64 {
    time.as_secs_f64() * 1e3
}
