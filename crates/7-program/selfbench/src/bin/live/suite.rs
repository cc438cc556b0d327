//! A server's own test suite, run twice: with its servers as they are, and with each of them optimized as
//! soon as it runs.

use std::collections::{BTreeMap, HashSet};
use std::fmt::{self, Display};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use dbdyno_live::{
    OptimizedServer, ProbeOptions, Process, SamplingOptions, ServerOptimizeError, ServerOptimizer,
    ServerOptions, all_images, descendants, sample,
};
use dbdyno_machine::ProcessIdentity;
use dbdyno_relayout::{ModuleProfile, Profile};
use dbdyno_selfbench::harness::{duration, stop_on_signals};
use dbdyno_selfbench::output::{Case, Outcome, Progress, Table, print, workspace, write_csv};
use dbdyno_types::BlockCounts;
use dbdyno_units::Nanos;
use rustix::process::Signal;

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
    let (again, done) = (args.again.into(), Mutex::default());
    let optimizing = Optimizing { subject: &subject, profile, again, done };
    let optimized =
        pass("optimized", &args.command, &cancel, Some(original.0.len()), &progress, |suite| {
            optimizing.optimize_all(suite);
        })?;
    drop(progress);
    conclude(&original, &optimized, &optimizing.lock())
}

struct Suite<'a> {
    pid: u32,
    over: &'a AtomicBool,
}

impl Suite<'_> {
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
            let done = read(&log).0.len();
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

fn conclude(original: &Outcomes, optimized: &Outcomes, done: &Done) -> anyhow::Result<Outcome> {
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

/// How long a server is sampled at a time: several may run, and each may end at any moment.
const SAMPLED_AT_A_TIME: Duration = Duration::from_millis(500);
/// How long a server that starts may take until it can be optimized.
const STARTING: Duration = Duration::from_secs(5);

/// Which processes below the suite are servers, and how they are optimized.
struct Subject {
    program: PathBuf,
    /// Whether each has a process per session.
    family: bool,
    state: PathBuf,
    /// Maximum time for which threads may be stopped.
    max_pause: Nanos,
}

impl Subject {
    /// The running servers, without the sessions below them.
    fn servers(&self, suite: &Suite<'_>) -> Vec<ProcessIdentity> {
        let is_server = |pid: &u32| {
            std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == self.program)
        };
        let all: Vec<u32> = descendants(suite.pid).into_iter().filter(is_server).collect();
        let sessions: HashSet<u32> = match self.family {
            true => all.iter().flat_map(|pid| descendants(*pid)).collect(),
            false => HashSet::new(),
        };
        let servers = all.into_iter().filter(|pid| !sessions.contains(pid));
        servers.filter_map(|pid| ProcessIdentity::of(pid).ok()).collect()
    }

    fn optimizer(&self, server: &ProcessIdentity) -> ServerOptimizer {
        let options = ServerOptions {
            frequency: SamplingOptions::default().frequency,
            count: true,
            max_pause: self.max_pause,
            keep_order: false,
            // What is tested is the new code, not whether it is faster.
            force: true,
        };
        ServerOptimizer::new(server.pid, self.family, options, self.state.clone())
    }
}

/// Samples of all servers of a suite, by file.
#[derive(Default)]
struct Profiling(Mutex<BTreeMap<(String, Option<String>), ModuleProfile>>);

impl Profiling {
    /// Samples the servers in turn until the suite is over.
    fn sample_all(&self, subject: &Subject, suite: &Suite<'_>) {
        while !suite.is_over() {
            for server in subject.servers(suite) {
                // A server may end meanwhile.
                if let Ok(profile) = sampled(&server, subject, suite) {
                    self.add(profile);
                }
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn add(&self, profile: Profile) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for module in profile.modules {
            let key = (module.name.clone(), module.build_id.clone());
            match all.get_mut(&key) {
                None => drop(all.insert(key, module)),
                Some(sum) => add(sum, module),
            }
        }
    }

    fn profile(self) -> anyhow::Result<Profile> {
        let all = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        ensure!(!all.is_empty(), "the suite started no server of this program, or none was busy");
        Ok(Profile { modules: all.into_values().collect() })
    }
}

fn add(sum: &mut ModuleProfile, other: ModuleProfile) {
    for (offset, count) in other.hits {
        *sum.hits.entry(offset).or_default() += count;
    }
    // The same branch may be in the list several times.
    sum.branches.extend(other.branches);
    sum.fall_throughs.extend(other.fall_throughs);
}

fn sampled(
    server: &ProcessIdentity,
    subject: &Subject,
    suite: &Suite<'_>,
) -> anyhow::Result<Profile> {
    let options = SamplingOptions { time: SAMPLED_AT_A_TIME, ..SamplingOptions::default() };
    let until = |_| suite.is_over() || !server.is_alive();
    let sampled = sample(server.pid, subject.family, &options, until)?;
    let process = Process::open(server.pid, ProbeOptions::default())?;
    let images = all_images(&process)?;
    Ok(sampled.samples.to_profile(&images.iter().collect::<Vec<_>>()))
}

/// What was done to the servers of a suite.
#[derive(Default)]
struct Done {
    /// Servers that were optimized.
    servers: u64,
    /// Servers that were not, because they ended within [`STARTING`].
    ended: u64,
    /// Optimizations that replaced an earlier one.
    again: u64,
    /// Of these, with exact counts.
    counted: u64,
    /// Functions moved by all optimizations.
    functions: u64,
    longest_pause: Nanos,
    /// Other failures, and how often each happened.
    failures: BTreeMap<String, u64>,
}

impl Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let optimizations = self.servers + self.again;
        writeln!(
            f,
            "{} servers optimized, {} ended before; {} optimized again, {} of them by exact counts\n{} \
             functions moved by an optimization on average; threads stopped for {} at most",
            self.servers,
            self.ended,
            self.again,
            self.counted,
            self.functions / optimizations.max(1),
            self.longest_pause,
        )?;
        for (failure, times) in &self.failures {
            writeln!(f, "{times} × not optimized: {failure}")?;
        }
        Ok(())
    }
}

/// Optimizes all servers of a suite.
struct Optimizing<'a> {
    subject: &'a Subject,
    profile: Profile,
    /// Time after which a server is optimized again.
    again: Duration,
    done: Mutex<Done>,
}

impl Optimizing<'_> {
    fn lock(&self) -> std::sync::MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Optimizes each server as soon as it runs, until the suite is over.
    fn optimize_all(&self, suite: &Suite<'_>) {
        let mut known: HashSet<u32> = HashSet::new();
        thread::scope(|scope| {
            while !suite.is_over() {
                let servers = self.subject.servers(suite);
                known.retain(|pid| servers.iter().any(|server| server.pid == *pid));
                for server in servers {
                    if known.insert(server.pid) {
                        scope.spawn(move || self.follow(&server, suite));
                    }
                }
                thread::sleep(POLL_INTERVAL);
            }
        });
    }

    /// Optimizes a server until it ends.
    fn follow(&self, server: &ProcessIdentity, suite: &Suite<'_>) {
        let mut optimizer = self.subject.optimizer(server);
        if !self.begin(server, &optimizer) {
            return;
        }
        let goes_on = || !suite.is_over() && server.is_alive();
        while goes_on() {
            let waiting = Instant::now();
            while goes_on() && waiting.elapsed() < self.again {
                thread::sleep(POLL_INTERVAL);
            }
            if goes_on() && self.note(server, again(&mut optimizer)) {
                self.lock().again += 1;
            }
        }
    }

    /// Optimizes a server that starts: until its libraries are loaded, it cannot be optimized.
    fn begin(&self, server: &ProcessIdentity, optimizer: &ServerOptimizer) -> bool {
        let started = Instant::now();
        loop {
            let outcome = optimizer.optimize_by(&self.profile, "the first pass".to_owned());
            if !server.is_alive() {
                self.lock().ended += 1;
                return false;
            }
            if outcome.is_ok() || started.elapsed() > STARTING {
                let is_optimized = self.note(server, outcome);
                self.lock().servers += u64::from(is_optimized);
                return is_optimized;
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Notes an optimization, or why there was none if the server still runs. Returns whether there was one.
    fn note(
        &self,
        server: &ProcessIdentity,
        outcome: Result<OptimizedServer, ServerOptimizeError>,
    ) -> bool {
        let mut done = self.lock();
        match &outcome {
            Ok(OptimizedServer { layout, .. }) => {
                done.functions += layout.functions;
                done.longest_pause = done.longest_pause.max(layout.longest_pause);
                let is_counted = matches!(layout.counts, Some(BlockCounts::Counted { .. }));
                done.counted += u64::from(is_counted);
            }
            Err(error) if server.is_alive() => {
                let reason = error.to_string().replace(&server.pid.to_string(), "PID");
                *done.failures.entry(reason).or_default() += 1;
            }
            Err(_) => {}
        }
        outcome.is_ok()
    }
}

/// Samples a server, counts its executions and optimizes it again.
fn again(optimizer: &mut ServerOptimizer) -> Result<OptimizedServer, ServerOptimizeError> {
    optimizer.start_sampling();
    thread::sleep(SAMPLED_AT_A_TIME);
    optimizer.end_sampling()?;
    optimizer.start_counting();
    optimizer.end_counting()?;
    optimizer.optimize()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TestOutcome {
    Passed,
    Failed,
    Skipped,
}

impl TestOutcome {
    const ALL: [Self; 3] = [Self::Passed, Self::Failed, Self::Skipped];

    const fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// The results of a suite by the name of the test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Outcomes(BTreeMap<String, TestOutcome>);

impl Outcomes {
    /// Reads the output of mysql-test-run or pg_regress. The last result of a test counts: mysql-test-run repeats failed ones.
    fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(|line| mysql_test(line).or_else(|| regress(line))).collect())
    }

    fn count(&self, outcome: TestOutcome) -> usize {
        self.0.values().filter(|one| **one == outcome).count()
    }

    /// A line for each test that has another result in `other`.
    fn differences(&self, other: &Self) -> Vec<String> {
        let names: std::collections::BTreeSet<_> = self.0.keys().chain(other.0.keys()).collect();
        let text = |outcome: Option<&TestOutcome>| outcome.map_or("not run", |it| it.name());
        let both = names.into_iter().map(|name| (name, self.0.get(name), other.0.get(name)));
        both.filter(|(_, ours, theirs)| ours != theirs)
            .map(|(name, ours, theirs)| format!("{name}: {}, then {}", text(ours), text(theirs)))
            .collect()
    }
}

/// A line such as `main.alias 'innodb' w2 [ pass ]  12`.
fn mysql_test(line: &str) -> Option<(String, TestOutcome)> {
    let (test, rest) = line.split_once(" [ ")?;
    let outcome = match rest.split_once(" ]")?.0 {
        "pass" | "retry-pass" => TestOutcome::Passed,
        "fail" | "retry-fail" => TestOutcome::Failed,
        "skipped" | "disabled" => TestOutcome::Skipped,
        _ => return None,
    };
    // With several workers, the last word is the worker.
    let is_worker =
        |word: &str| word.strip_prefix('w').is_some_and(|number| number.parse::<u32>().is_ok());
    let words = test.split_whitespace().filter(|word| !is_worker(word));
    let name = words.collect::<Vec<_>>().join(" ");
    name.contains('.').then_some((name, outcome))
}

/// A line such as `     boolean                      ... ok           52 ms`, or since PostgreSQL 16
/// `ok 2         + boolean                                   52 ms`.
fn regress(line: &str) -> Option<(String, TestOutcome)> {
    if let Some((test, result)) = line.split_once(" ... ") {
        let test = test.trim().trim_start_matches("test ").trim();
        let outcome = match result.split_whitespace().next()? {
            "ok" => TestOutcome::Passed,
            "FAILED" | "failed" => TestOutcome::Failed,
            _ => return None,
        };
        return (!test.contains(' ')).then(|| (test.to_owned(), outcome));
    }
    let (outcome, rest) = match line.strip_prefix("not ok ") {
        Some(rest) => (TestOutcome::Failed, rest),
        None => (TestOutcome::Passed, line.strip_prefix("ok ")?),
    };
    let mut words = rest.split_whitespace();
    words.next()?.parse::<u32>().ok()?;
    let test = words.find(|word| !matches!(*word, "-" | "+"))?;
    Some((test.to_owned(), outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<(String, TestOutcome)> {
        Outcomes::parse(text).0.into_iter().collect()
    }

    fn one(name: &str, outcome: TestOutcome) -> (String, TestOutcome) {
        (name.to_owned(), outcome)
    }

    #[test]
    fn results_of_mysql_test_run() {
        let text = "worker[1] Using MTR_BUILD_THREAD 300\n\
                    main.1st                                 [ pass ]     10\n\
                    main.alter 'innodb'                      w2 [ pass ]    350\n\
                    main.acl                                 w1 [ fail ]\n\
                    main.acl                                 w1 [ retry-pass ]    350\n\
                    main.aria                                w1 [ skipped ]  No Aria\n\
                    main.big                                 [ fail ]  timeout after 900 seconds\n\
                    Completed: Failed 1/5 tests, 80.0% were successful.\n";
        assert_eq!(
            parsed(text),
            [
                one("main.1st", TestOutcome::Passed),
                one("main.acl", TestOutcome::Passed),
                one("main.alter 'innodb'", TestOutcome::Passed),
                one("main.aria", TestOutcome::Skipped),
                one("main.big", TestOutcome::Failed),
            ]
        );
    }

    #[test]
    fn results_of_pg_regress() {
        let text = "============== running regression test queries ==============\n\
                    test tablespace                   ... ok          351 ms\n\
                    parallel group (2 tests):  char boolean\n     boolean                      \
                    ... ok           52 ms\n     char                         ... FAILED       30 ms\n\
                    ok 3         - strings                                   41 ms\n\
                    not ok 4     + money                                     12 ms\n\
                    # 1 of 4 tests failed.\n";
        assert_eq!(
            parsed(text),
            [
                one("boolean", TestOutcome::Passed),
                one("char", TestOutcome::Failed),
                one("money", TestOutcome::Failed),
                one("strings", TestOutcome::Passed),
                one("tablespace", TestOutcome::Passed),
            ]
        );
    }

    #[test]
    fn differences_name_tests_and_both_results() {
        let original =
            Outcomes::parse("main.a [ pass ] 1\nmain.b [ pass ] 1\nmain.c [ skipped ]\n");
        let optimized = Outcomes::parse("main.a [ pass ] 9\nmain.b [ fail ]\nmain.d [ pass ] 2\n");
        assert_eq!(
            original.differences(&optimized),
            [
                "main.b: passed, then failed",
                "main.c: skipped, then not run",
                "main.d: not run, then passed"
            ]
        );
        assert!(original.differences(&original).is_empty());
    }
}
