//! Sampling of processes.

mod budget;
mod events;

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};
use std::{fmt, fs, io, thread};

use dbdyno_machine::ProcStat;
use dbdyno_relayout::Samples;
use dbdyno_stats::median;
use serde::Serialize;

use crate::LiveError;
use crate::target::raise_file_limit;
use crate::threads::threads;
pub use budget::{DEFAULT_FREQUENCY, SamplingCost, SamplingPlan, SamplingRequest};
use dbdyno_units::Share;
use events::{Counts, EventOptions, Events};

/// What triggers a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SampleSource {
    /// CPU cycles, with the last taken branches.
    Branches,
    /// CPU cycles.
    Cycles,
    /// The CPU clock, if hardware counters are not available.
    Clock,
}

impl SampleSource {
    /// All sources, the most informative one first.
    const BEST_FIRST: [Self; 3] = [Self::Branches, Self::Cycles, Self::Clock];
}

impl fmt::Display for SampleSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Branches => "cycles with branch records",
            Self::Cycles => "cycles",
            Self::Clock => "the CPU clock",
        })
    }
}

/// How to sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingOptions {
    pub time: Duration,
    /// Samples per second and CPU. The kernel needs one or two microseconds for each, in a virtual
    /// machine 20 or more. Executed blocks without a sample are treated as cold, so a layout from too
    /// few samples makes a program slower. About 100,000 are enough for a server.
    pub frequency: u32,
    /// The cost measured before, to measure it again while sampling; `None`: it is not measured.
    pub cost: Option<SamplingCost>,
    /// The share of a busy CPU's time that sampling may take. The rate is lowered if it is measured to
    /// take more. `None`: the rate stays.
    pub max_overhead: Option<Share>,
}

impl Default for SamplingOptions {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(15),
            frequency: DEFAULT_FREQUENCY,
            cost: None,
            max_overhead: None,
        }
    }
}

/// The result of sampling.
#[derive(Clone, Debug)]
pub struct Sampled {
    /// What triggered the samples.
    pub source: SampleSource,
    /// Samples by address, user code only.
    pub samples: Samples,
    /// Samples that were lost because a ring buffer was full.
    pub lost: u64,
    /// Number of open events: one per CPU, or one per thread and CPU.
    pub events: usize,
    /// Samples per second and CPU at the end.
    pub frequency: u32,
    /// Share of a busy CPU's time that sampling took; `None` if it was not measured.
    pub overhead: Option<Share>,
}

/// Interval between reads of the ring buffers.
const DRAIN_INTERVAL: Duration = Duration::from_millis(50);
/// Interval between searches for new processes of a family.
const FAMILY_INTERVAL: Duration = Duration::from_millis(500);

/// Interval between measurements of the overhead.
const OVERHEAD_INTERVAL: Duration = Duration::from_secs(1);
/// Duration of a measurement of the overhead, in which the sampling thread is busy.
const OVERHEAD_TIME: Duration = Duration::from_millis(5);
/// Number of measurements whose median decides whether the rate is lowered.
const OVERHEAD_WINDOW: usize = 5;
/// The rate is lowered if the overhead exceeds the budget by more than this factor, because
/// measurements vary.
const TOLERANCE: f64 = 1.2;

/// Samples a process, and its descendants if `family`, until the time is over or `until` returns
/// true. `until` gets the elapsed time.
///
/// # Errors
/// The process exited, or the kernel does not permit sampling.
pub fn sample(
    pid: u32,
    family: bool,
    options: &SamplingOptions,
    mut until: impl FnMut(Duration) -> bool,
) -> Result<Sampled, LiveError> {
    raise_file_limit();
    let mut members = if family { family_of(pid) } else { HashSet::from([pid]) };
    // The kernel may have lowered the highest rate since the plan was made.
    let mut frequency = options.frequency.min(budget::highest_frequency());
    let (source, mut events) = open(pid, &members, frequency)?;
    tracing::info!(pid, processes = members.len(), ?source, "sampling");
    let failed = || LiveError::system("sampling", pid);
    events.enable().map_err(failed())?;
    let mut counts = Counts::default();
    let start = Instant::now();
    let mut family_read = start;
    // Only an event of all threads also interrupts this one.
    let cost = options.cost.filter(|_| events.are_of_all_threads());
    let (mut overheads, mut overhead_measured) = (Vec::new(), start);
    let mut since_change = 0;
    loop {
        let is_over = start.elapsed() >= options.time || until(start.elapsed());
        if is_over {
            events.disable().map_err(failed())?;
        }
        if family && family_read.elapsed() > FAMILY_INTERVAL {
            members = family_of(pid);
            family_read = Instant::now();
        }
        events.drain(|record| counts.add(record, &members));
        if is_over {
            break;
        }
        if ProcStat::of_process(pid).is_err() {
            return Err(LiveError::Exited { pid });
        }
        if let Some(cost) = cost
            && overhead_measured.elapsed() > OVERHEAD_INTERVAL
        {
            overheads.push(cost.present_overhead(OVERHEAD_TIME).as_fraction());
            overhead_measured = Instant::now();
            let most = options.max_overhead;
            if let Some(lower) =
                most.and_then(|most| exceeded(&overheads[since_change..], frequency, most))
            {
                tracing::info!(pid, frequency, lower, "sampling exceeds its budget");
                since_change = overheads.len();
                frequency = lower.min(budget::highest_frequency());
                events.disable().map_err(failed())?;
                events = open_source(source, frequency, &members).map_err(failed())?;
                events.enable().map_err(failed())?;
            }
        }
        thread::sleep(DRAIN_INTERVAL.min(options.time.saturating_sub(start.elapsed())));
    }
    let Counts { samples, lost } = counts;
    let overhead = median(&overheads).map(Share::from_fraction);
    Ok(Sampled { source, samples, lost, events: events.len(), frequency, overhead })
}

/// A lower rate if the last measurements exceed the budget.
fn exceeded(overheads: &[f64], frequency: u32, most: Share) -> Option<u32> {
    let last = overheads.len().checked_sub(OVERHEAD_WINDOW)?;
    let overhead = median(&overheads[last..])?;
    let is_exceeded = overhead > most.as_fraction() * TOLERANCE;
    is_exceeded.then(|| budget::lowered(frequency, overhead, most)).filter(|it| *it < frequency)
}

/// Opens events of the best source that the machine and the kernel permit.
fn open(
    pid: u32,
    members: &HashSet<u32>,
    frequency: u32,
) -> Result<(SampleSource, Events), LiveError> {
    let mut refused = None;
    for source in SampleSource::BEST_FIRST {
        match open_source(source, frequency, members) {
            Ok(events) => return Ok((source, events)),
            Err(error) => refused = Some(error),
        }
    }
    Err(refusal(pid, refused))
}

/// The best source of samples that the kernel permits for all threads or, at least, for those of this
/// user. No event is enabled, and none is opened for the process.
///
/// # Errors
/// It permits none.
pub(crate) fn permitted_source(pid: u32) -> Result<SampleSource, LiveError> {
    let own_thread = rustix::thread::gettid().as_raw_nonzero().get();
    let cpus = online_cpus().map_err(LiveError::system("listing the CPUs to sample", pid))?;
    let mut refused = None;
    for source in SampleSource::BEST_FIRST {
        let options = EventOptions { source, frequency: 1 };
        match Events::for_threads(options, &cpus, &[own_thread]) {
            Ok(_) => return Ok(source),
            Err(error) => refused = Some(error),
        }
    }
    Err(refusal(pid, refused))
}

fn open_source(source: SampleSource, frequency: u32, members: &HashSet<u32>) -> io::Result<Events> {
    let cpus = online_cpus()?;
    let tids = || -> Vec<i32> {
        members.iter().flat_map(|pid| threads(*pid).unwrap_or_default()).collect()
    };
    let options = EventOptions { source, frequency };
    Events::for_all_threads(options, &cpus)
        .or_else(|_| Events::for_threads(options, &cpus, &tids()))
}

fn refusal(pid: u32, error: Option<io::Error>) -> LiveError {
    let error = error.unwrap_or_else(|| io::ErrorKind::Unsupported.into());
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => LiveError::refused(
            pid,
            format!(
                "the kernel does not permit sampling (kernel.perf_event_paranoid is {}); run as root, \
                 or: sysctl kernel.perf_event_paranoid=2",
                paranoid.trim()
            ),
        ),
        _ => LiveError::system("sampling", pid)(error),
    }
}

/// The IDs of the online CPUs.
fn online_cpus() -> io::Result<Vec<usize>> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online")?;
    let invalid = || io::Error::other(format!("invalid list of CPUs: {text}"));
    let mut cpus = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let first: usize = first.parse().map_err(|_| invalid())?;
        let last: usize = last.parse().map_err(|_| invalid())?;
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

/// A process and its descendants.
#[must_use]
pub fn family_of(root: u32) -> HashSet<u32> {
    let mut parents = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if let Ok(stat) = ProcStat::of_process(pid) {
            parents.insert(pid, stat.parent);
        }
    }
    let mut family = HashSet::from([root]);
    loop {
        let before = family.len();
        let children = parents.iter().filter(|(_, parent)| family.contains(parent));
        let children: Vec<u32> = children.map(|(pid, _)| *pid).collect();
        family.extend(children);
        if family.len() == before {
            return family;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_loop_is_sampled() {
        let time = Duration::from_millis(300);
        let options = SamplingOptions { time, frequency: 1_000, ..SamplingOptions::default() };
        let pid = std::process::id();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let found = thread::scope(|scope| {
            scope.spawn(|| {
                let mut turns = 0_u64;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    turns = std::hint::black_box(turns + 1);
                }
            });
            // On a busy machine, the loop may not run for most of the time.
            let found = (0..100).find_map(|_| {
                let found = sample(pid, false, &options, |_| false).unwrap();
                (found.samples.total() > 10).then_some(found)
            });
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            found
        });
        assert!(found.expect("samples of the loop").events > 0);
    }

    #[test]
    fn rate_is_lowered_when_overhead_exceeds_the_budget() {
        let most = Share::from_percent(5.0);
        assert_eq!(exceeded(&[0.2; 4], 2_000, most), None);
        assert_eq!(exceeded(&[0.01, 0.01, 0.01, 0.1, 0.1, 0.1], 2_000, most), Some(1_000));
        // Disturbed measurements, and a small excess.
        assert_eq!(exceeded(&[0.04, 0.5, 0.04, 0.5, 0.04], 2_000, most), None);
        assert_eq!(exceeded(&[0.055; 5], 2_000, most), None);
    }

    #[test]
    fn family_includes_the_process_itself() {
        let me = std::process::id();
        assert!(family_of(me).contains(&me));
    }
}
