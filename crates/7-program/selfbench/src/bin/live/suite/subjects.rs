//! The servers of a suite: sampled in its first pass, optimized in its second.

use std::collections::{BTreeMap, HashSet};
use std::fmt::{self, Display};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use dbdyno_live::{
    OptimizedServer, ProbeOptions, Process, SamplingOptions, ServerOptimizeError, ServerOptimizer,
    ServerOptions, all_images, descendants, sample,
};
use dbdyno_machine::ProcessIdentity;
use dbdyno_relayout::{ModuleProfile, Profile};
use dbdyno_types::BlockCounts;
use dbdyno_units::Nanos;

use super::{POLL_INTERVAL, Suite};

/// How long a server is sampled at a time: several may run, and each may end at any moment.
const SAMPLED_AT_A_TIME: Duration = Duration::from_millis(500);
/// How long a server that starts may take until it can be optimized.
const STARTING: Duration = Duration::from_secs(5);

/// Which processes below the suite are servers, and how they are optimized.
pub struct Subject {
    /// Their program.
    pub program: PathBuf,
    /// Whether each has a process per session.
    pub family: bool,
    /// Directory of the journals.
    pub state: PathBuf,
    /// Maximum time for which threads may be stopped.
    pub max_pause: Nanos,
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
pub struct Profiling(Mutex<BTreeMap<(String, Option<String>), ModuleProfile>>);

impl Profiling {
    /// Samples the servers in turn until the suite is over.
    pub fn sample_all(&self, subject: &Subject, suite: &Suite<'_>) {
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

    /// All samples.
    ///
    /// # Errors
    /// There are none.
    pub fn profile(self) -> anyhow::Result<Profile> {
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
#[derive(Clone, Default)]
pub struct Done {
    /// Servers that were optimized.
    pub servers: u64,
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
pub struct Optimizing<'a> {
    subject: &'a Subject,
    profile: Profile,
    again: Duration,
    done: Mutex<Done>,
}

impl<'a> Optimizing<'a> {
    /// Servers are optimized with this profile, and again after `again`.
    pub fn new(subject: &'a Subject, profile: Profile, again: Nanos) -> Self {
        Self { subject, profile, again: again.into(), done: Mutex::default() }
    }

    /// What was done so far.
    pub fn done(&self) -> Done {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Optimizes each server as soon as it runs, until the suite is over.
    pub fn optimize_all(&self, suite: &Suite<'_>) {
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
