//! Whether samples show the CPU time of a server that waits for its client.

use std::collections::HashSet;
use std::io::{Read, Write, stdin, stdout};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::Context;
use dbdyno_machine::{
    CpuAssignment, CpuSet, FsRoot, Topology, clock, pin_current_thread, pin_process,
};
use dbdyno_profile::{Collector, Sampler};
use dbdyno_selfbench::output::{Case, Outcome, Progress, Table, print, write_csv};
use dbdyno_units::Nanos;

/// What the server does per request.
const WORK: [Nanos; 3] = [Nanos::from_micros(5), Nanos::from_micros(20), Nanos::from_micros(100)];
/// Samples are taken in slices, as of servers.
const SLICE: Nanos = Nanos::from_millis(20);
/// Known time of the server in a run.
const KNOWN: Nanos = Nanos::from_secs(1);
/// The maximum error of the sampled time of a run: with 1000 samples, chance alone has 3% (one standard deviation).
const GOAL: f64 = 0.1;

/// Compares the sampled time of a server with the time that it spins for known times per request of one client.
#[derive(clap::Args)]
pub struct Args {
    /// Number of runs of each known time, each with a new server
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// Samples per second and CPU
    #[arg(long, default_value_t = 997, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    frequency: u32,
}

pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let progress = Progress::start();
    let topology = Topology::read(&FsRoot::this_machine());
    let cpus = CpuAssignment::choose(&CpuSet::allowed()?, &topology, 1, false);
    pin_current_thread(&cpus.dbdyno)?;
    let mut table = Table::new(&["work per request", "run", "known", "sampled", "sampled/known"]);
    let mut cases = Vec::new();
    for work in WORK {
        for run in 1..=args.runs {
            let share = cases.len() as f64 / (WORK.len() as f64 * args.runs as f64);
            progress.show(share, &format!("{work} of work per request"));
            let [known, sampled] = sample(work, args.frequency, &cpus)?.map(Nanos::as_secs_f64);
            let case = Case::new(format!("{work}, run {run}"), "s", sampled, known);
            let [known, sampled] = [known, sampled].map(|seconds| format!("{seconds:.3} s"));
            let ratio = format!("{:.3}", case.ratio);
            table.row([work.to_string(), run.to_string(), known, sampled, ratio]);
            cases.push(case);
        }
    }
    drop(progress);
    table.print();
    let path = write_csv("samples", &cases)?;
    print(&format!("\nwritten to {}\n", path.display()));
    let errors = cases.iter().map(|case| (case.ratio - 1.0).abs());
    let largest = errors.fold(0.0, f64::max);
    Ok(Outcome::of(largest <= GOAL, || {
        format!("the sampled time is wrong by up to {:.1}%", largest * 100.0)
    }))
}

/// The time that a new server spun, and what it is by samples.
fn sample(work: Nanos, frequency: u32, cpus: &CpuAssignment) -> anyhow::Result<[Nanos; 2]> {
    let online = CpuSet::online().context("the online CPUs are not known")?;
    let online: Vec<usize> = online.iter().map(|cpu| cpu as usize).collect();
    let mut sampler = Sampler::on_cpus(&online, frequency)?;
    let mut collector = Collector::default();
    let mut server = Server::start(&cpus.system)?;
    let pids = HashSet::from([server.child.id()]);
    let mut known = Nanos::ZERO;
    while known < KNOWN {
        // The first requests of a slice wake both.
        for _ in 0..100 {
            server.request(work)?;
        }
        sampler.enable()?;
        let end = clock::monotonic() + SLICE;
        while clock::monotonic() < end {
            known += server.request(work)?;
        }
        sampler.disable()?;
        collector.collect(&mut sampler, &pids);
    }
    let profile = collector.take();
    let is_spin = |frame: &u32| {
        let function = profile.functions.get(*frame as usize);
        function
            .and_then(|one| one.name.as_deref())
            .is_some_and(|name| name.contains("samples::spin"))
    };
    let spinning = profile.stacks.iter().filter(|stack| stack.frames.iter().any(is_spin));
    let samples: u64 = spinning.map(|stack| stack.samples).sum();
    Ok([known, Nanos::from_nanos(sampler.period().as_nanos() * samples)])
}

/// This program as a server, which ends with its input.
struct Server {
    child: Child,
    requests: ChildStdin,
    answers: ChildStdout,
}

impl Server {
    fn start(cpus: &CpuSet) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("answer")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        pin_process(child.id(), cpus)?;
        let requests = child.stdin.take().context("the server has no input")?;
        let answers = child.stdout.take().context("the server has no output")?;
        Ok(Self { child, requests, answers })
    }

    /// Waits until the server has spun for so long, and returns for how long it did.
    fn request(&mut self, work: Nanos) -> anyhow::Result<Nanos> {
        self.requests.write_all(&work.as_nanos().to_le_bytes())?;
        let mut answer = [0; size_of::<u64>()];
        self.answers.read_exact(&mut answer)?;
        Ok(Nanos::from_nanos(u64::from_le_bytes(answer)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server: spins for the time that each request says.
pub fn answer() -> anyhow::Result<Outcome> {
    let (mut requests, mut answers) = (stdin().lock(), stdout().lock());
    let mut request = [0; size_of::<u64>()];
    while requests.read_exact(&mut request).is_ok() {
        let spun = spin(Nanos::from_nanos(u64::from_le_bytes(request)));
        answers.write_all(&spun.as_nanos().to_le_bytes())?;
        answers.flush()?;
    }
    Ok(Outcome::Met)
}

#[inline(never)]
fn spin(work: Nanos) -> Nanos {
    let begin = clock::monotonic();
    loop {
        let spun = clock::monotonic() - begin;
        if spun >= work {
            return spun;
        }
    }
}
