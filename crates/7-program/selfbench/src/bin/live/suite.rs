//! A server's own test suite, run twice: with its servers as they are, and with each of them optimized as
//! soon as it runs.

mod outcomes;
mod subjects;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use dbdyno_machine::ProcessIdentity;
use dbdyno_selfbench::harness::{duration, stop_on_signals};
use dbdyno_selfbench::output::{Case, Outcome, Progress, Table, print, workspace, write_csv};
use dbdyno_units::Nanos;
use rustix::process::Signal;

use outcomes::{Outcomes, TestOutcome};
use subjects::{Optimizing, Profiling, Subject};

/// How often the suite's processes are listed.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs a server's own test suite with and without the live optimizer
///
/// The first pass samples the suite's servers. In the second one each server is optimized with these
/// samples as soon as it runs, and again, after counting, while it runs. Both must pass the same tests.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  live suite --server /usr/sbin/mariadbd -- sh -c \\
      'cd /usr/share/mysql/mysql-test && perl mysql-test-run.pl --suite=main --force'
  live suite --server /usr/lib/postgresql/15/bin/postgres --family -- pg_regress --temp-instance=DIR …")]
pub struct Args {
    /// The program of the servers that the suite starts
    #[arg(long)]
    server: PathBuf,
    /// The server has a process per session
    #[arg(long)]
    family: bool,
    /// Time after which a server is optimized again
    #[arg(long, default_value = "3s", value_parser = duration)]
    again: Nanos,
    /// Maximum time for which threads may be stopped
    #[arg(long, default_value = "50ms", value_parser = duration)]
    max_pause: Nanos,
    /// The suite: a command that prints the results of its tests
    #[arg(required = true, last = true)]
    command: Vec<String>,
}

pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let cancel = stop_on_signals()?;
    let server = args.server.canonicalize();
    let server = server.with_context(|| format!("{} does not exist", args.server.display()))?;
    let journals = tempfile::Builder::new().prefix("dbdyno-bench-").tempdir()?;
    let subject = Subject {
        program: server,
        family: args.family,
        state: journals.path().to_owned(),
        max_pause: args.max_pause,
    };
    let progress = Progress::start();
    let profiling = Profiling::default();
    let original = pass("original", &args.command, &cancel, None, &progress, |suite| {
        profiling.sample_all(&subject, suite);
    })?;
    let profile = profiling.profile()?;
    let optimizing = Optimizing::new(&subject, profile, args.again);
    let optimized =
        pass("optimized", &args.command, &cancel, Some(original.len()), &progress, |suite| {
            optimizing.optimize_all(suite);
        })?;
    drop(progress);
    conclude(&original, &optimized, &optimizing)
}

/// A running suite.
pub struct Suite<'a> {
    pid: u32,
    over: &'a AtomicBool,
}

impl Suite<'_> {
    /// Whether it has ended.
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// Runs the suite once, with `beside` on another thread, which returns when the suite is over.
fn pass(
    name: &str,
    command: &[String],
    cancel: &AtomicBool,
    tests: Option<usize>,
    progress: &Progress,
    beside: impl FnOnce(&Suite<'_>) + Send,
) -> anyhow::Result<Outcomes> {
    let log = workspace().join(format!("target/bench/live-suite-{name}.log"));
    let mut child = start(command, &log)?;
    let over = AtomicBool::new(false);
    let waited = thread::scope(|scope| {
        let suite = Suite { pid: child.id(), over: &over };
        scope.spawn(move || beside(&suite));
        let waited = wait(&mut child, cancel, || {
            let done = read(&log).len();
            let share = tests.map_or(0.0, |all| 0.5 + 0.5 * done as f64 / all.max(1) as f64);
            progress.show(share, &format!("{done} tests, {name}"));
        });
        over.store(true, Ordering::Relaxed);
        waited
    });
    waited?;
    let outcomes = read(&log);
    ensure!(
        outcomes.count(TestOutcome::Passed) > 0,
        "no test of the suite passed, see {}",
        log.display()
    );
    Ok(outcomes)
}

fn start(command: &[String], log: &Path) -> anyhow::Result<Child> {
    let (program, arguments) = command.split_first().context("there is no command")?;
    if let Some(directory) = log.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let out = File::create(log).with_context(|| format!("creating {}", log.display()))?;
    let mut child = Command::new(program);
    child.args(arguments).stdin(std::process::Stdio::null()).stderr(out.try_clone()?).stdout(out);
    child.spawn().with_context(|| format!("starting {program}"))
}

/// Waits for the suite; ends it if the benchmark is stopped. Failed tests are no error.
fn wait(child: &mut Child, cancel: &AtomicBool, show: impl Fn()) -> anyhow::Result<()> {
    let identity = ProcessIdentity::of(child.id()).ok();
    while child.try_wait()?.is_none() {
        if cancel.load(Ordering::Relaxed) {
            // It stops its servers.
            identity.map(|suite| suite.signal(Signal::TERM)).transpose()?;
            child.wait()?;
            bail!("stopped");
        }
        show();
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

fn read(log: &Path) -> Outcomes {
    std::fs::read(log).map_or_else(
        |_| Outcomes::default(),
        |text| Outcomes::parse(&String::from_utf8_lossy(&text)),
    )
}

fn conclude(
    original: &Outcomes,
    optimized: &Outcomes,
    optimizing: &Optimizing<'_>,
) -> anyhow::Result<Outcome> {
    let done = optimizing.done();
    let mut table = Table::new(&["tests", "original", "optimized"]);
    let mut cases = Vec::new();
    for outcome in TestOutcome::ALL {
        let counts = [original, optimized].map(|outcomes| outcomes.count(outcome));
        let [before, after] = counts.map(|count| count.to_string());
        table.row([outcome.name().to_owned(), before, after]);
        let [before, after] = counts.map(|count| count as f64);
        cases.push(Case::new(outcome.name(), "tests (optimized; original)", after, before));
    }
    table.print();
    print(&done.to_string());
    let differing = original.differences(optimized);
    for line in &differing {
        print(&format!("{line}\n"));
    }
    print(&format!("written to {}\n", write_csv("live-suite", &cases)?.display()));
    ensure!(done.servers > 0, "no server of the suite was optimized");
    Ok(Outcome::of(differing.is_empty(), || {
        format!("{} tests differ between the passes", differing.len())
    }))
}
