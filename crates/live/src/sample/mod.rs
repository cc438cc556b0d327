//! Sampling of processes.

mod events;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use dbdyno_machine::ProcStat;
use dbdyno_relayout::{Branch, BranchCount, Samples};
use perf_event::data::Record;
use serde::Serialize;

use crate::LiveError;
use crate::threads::threads;
use events::{EventOptions, Events};

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

/// How to sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplingOptions {
    /// Duration.
    pub time: Duration,
    /// Samples per second and CPU. The kernel needs one or two microseconds for each. Executed blocks
    /// without a sample are treated as cold, so a layout from too few samples makes a program slower.
    /// About 100,000 are enough for a server.
    pub frequency: u32,
}

impl Default for SamplingOptions {
    fn default() -> Self {
        Self { time: Duration::from_secs(15), frequency: 7_999 }
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
}

/// Interval between reads of the ring buffers.
const DRAIN_INTERVAL: Duration = Duration::from_millis(50);
/// Interval between searches for new processes of a family.
const FAMILY_INTERVAL: Duration = Duration::from_millis(500);

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
    let mut members = if family { family_of(pid) } else { HashSet::from([pid]) };
    let (source, mut events) = open(pid, &members, options.frequency)?;
    tracing::info!(pid, processes = members.len(), ?source, "sampling");
    let failed = || LiveError::system("sampling", pid);
    events.enable().map_err(failed())?;
    let mut samples = Samples::default();
    let mut branches: BTreeMap<Branch, BranchCount> = BTreeMap::new();
    let mut lost = 0;
    let start = Instant::now();
    let mut family_read = start;
    loop {
        let is_over = start.elapsed() >= options.time || until(start.elapsed());
        if is_over {
            events.disable().map_err(failed())?;
        }
        if family && family_read.elapsed() > FAMILY_INTERVAL {
            members = family_of(pid);
            family_read = Instant::now();
        }
        events.drain(|record| match record {
            Record::Lost(record) => lost += record.lost,
            Record::Sample(record) if record.pid().is_some_and(|pid| members.contains(&pid)) => {
                samples.add_hit(record.ip().unwrap_or_default(), 1);
                for taken in record.lbr().unwrap_or_default() {
                    let branch = Branch { from: taken.from(), to: taken.to() };
                    let sum = branches.entry(branch).or_default();
                    sum.taken += 1;
                    sum.mispredicted += u64::from(taken.mispred());
                }
            }
            _ => {}
        });
        if is_over {
            break;
        }
        if ProcStat::of_process(pid).is_err() {
            return Err(LiveError::Exited { pid });
        }
        thread::sleep(DRAIN_INTERVAL.min(options.time.saturating_sub(start.elapsed())));
    }
    for (branch, count) in branches {
        samples.add_branch(branch, count);
    }
    Ok(Sampled { source, samples, lost, events: events.len() })
}

/// Opens events of the best source that the machine and the kernel permit.
fn open(
    pid: u32,
    members: &HashSet<u32>,
    frequency: u32,
) -> Result<(SampleSource, Events), LiveError> {
    let cpus = online_cpus().map_err(LiveError::system("listing the CPUs to sample", pid))?;
    let tids = || -> Vec<i32> {
        members.iter().flat_map(|pid| threads(*pid).unwrap_or_default()).collect()
    };
    let mut refused = None;
    for source in [SampleSource::Branches, SampleSource::Cycles, SampleSource::Clock] {
        let options = EventOptions { source, frequency };
        let events = Events::for_all_threads(options, &cpus)
            .or_else(|_| Events::for_threads(options, &cpus, &tids()));
        match events {
            Ok(events) => return Ok((source, events)),
            Err(error) => refused = Some(error),
        }
    }
    Err(refusal(pid, refused))
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
        let options = SamplingOptions { time: Duration::from_millis(300), frequency: 1_000 };
        let pid = std::process::id();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let found = thread::scope(|scope| {
            scope.spawn(|| {
                let mut turns = 0_u64;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    turns = std::hint::black_box(turns + 1);
                }
            });
            let found = sample(pid, false, &options, |_| false);
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            found
        });
        let found = found.unwrap();
        assert!(found.samples.total() > 10, "{found:?}");
        assert!(found.events > 0);
    }

    #[test]
    fn family_includes_the_process_itself() {
        let me = std::process::id();
        assert!(family_of(me).contains(&me));
    }
}
