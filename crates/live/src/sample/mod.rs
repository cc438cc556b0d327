//! Where processes spend their time.

mod ring;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use dbdyno_relayout::{Branch, BranchCount, Samples};
use perf_event_open_sys::bindings::{
    PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_SW_CPU_CLOCK, PERF_TYPE_HARDWARE, PERF_TYPE_SOFTWARE,
};
use serde::Serialize;

use crate::LiveError;
use crate::identity::{Stat, threads};
use ring::{Event, Ring, RingRecord};

/// What the machine has to sample with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SampleSource {
    /// Cycles, each time with the last branches taken.
    Branches,
    /// Cycles.
    Cycles,
    /// The CPU's clock, where the counters are hidden.
    Clock,
}

/// How to sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplingOptions {
    /// For how long.
    pub time: Duration,
    /// Samples per second and CPU. The kernel takes a microsecond or two for each. Blocks that run
    /// but have no sample are taken for cold ones: with too few samples a layout makes things
    /// slower, not faster. Some 100,000 make a good one of a server.
    pub frequency: u32,
}

impl Default for SamplingOptions {
    fn default() -> Self {
        Self { time: Duration::from_secs(15), frequency: 7_999 }
    }
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Sampled {
    /// By which means.
    pub source: SampleSource,
    /// Samples by address, user code only.
    pub samples: Samples,
    /// Samples that the kernel had no room for.
    pub lost: u64,
    /// Threads or CPUs that were watched.
    pub events: usize,
}

/// Emptied this often.
const DRAIN_EVERY: Duration = Duration::from_millis(50);
/// New members of a family are looked for this often.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Samples a process, and all that descend from it if `family`, until the time is over or
/// `until` says so.
///
/// # Errors
/// The process ended, or the kernel permits no sampling.
pub fn sample(
    pid: u32,
    family: bool,
    sampling: &SamplingOptions,
    mut until: impl FnMut(Duration) -> bool,
) -> Result<Sampled, LiveError> {
    let sources = [
        (SampleSource::Branches, PERF_TYPE_HARDWARE, u64::from(PERF_COUNT_HW_CPU_CYCLES)),
        (SampleSource::Cycles, PERF_TYPE_HARDWARE, u64::from(PERF_COUNT_HW_CPU_CYCLES)),
        (SampleSource::Clock, PERF_TYPE_SOFTWARE, u64::from(PERF_COUNT_SW_CPU_CLOCK)),
    ];
    let mut members = if family { family_of(pid) } else { HashSet::from([pid]) };
    let mut refused = None;
    let opened = sources.into_iter().find_map(|(source, kind, config)| {
        let branches = source == SampleSource::Branches;
        let event = Event { kind, config, branches, frequency: u64::from(sampling.frequency) };
        match Watched::all_cpus(&event).or_else(|_| Watched::threads(&event, &members)) {
            Ok(watched) => Some((source, watched)),
            Err(error) => {
                refused = Some(error);
                None
            }
        }
    });
    let Some((source, mut watched)) = opened else {
        return Err(refusal(pid, refused));
    };
    tracing::info!(pid, processes = members.len(), ?source, "sampling");
    watched.switch(true).map_err(LiveError::system("sampling", pid))?;
    let mut samples = Samples::default();
    let mut branches: BTreeMap<Branch, BranchCount> = BTreeMap::new();
    let mut lost = 0;
    let start = Instant::now();
    let mut looked = start;
    loop {
        let over = start.elapsed() >= sampling.time || until(start.elapsed());
        if over {
            watched.switch(false).map_err(LiveError::system("sampling", pid))?;
        }
        if family && looked.elapsed() > LOOK_EVERY {
            members = family_of(pid);
            looked = Instant::now();
        }
        for ring in &mut watched.rings {
            ring.drain(|record| match record {
                RingRecord::Lost(count) => lost += count,
                RingRecord::Sample { pid, .. } if !members.contains(&pid) => {}
                RingRecord::Sample { address, branches: taken, .. } => {
                    samples.add_hit(address, 1);
                    for (from, to, mispredicted) in taken {
                        let sum = branches.entry(Branch { from, to }).or_default();
                        sum.taken += 1;
                        sum.mispredicted += u64::from(mispredicted);
                    }
                }
            });
        }
        if over {
            break;
        }
        if Stat::of(&format!("/proc/{pid}/stat")).is_none() {
            return Err(LiveError::Gone { pid });
        }
        thread::sleep(DRAIN_EVERY.min(sampling.time.saturating_sub(start.elapsed())));
    }
    for (branch, count) in branches {
        samples.add_branch(branch, count);
    }
    Ok(Sampled { source, samples, lost, events: watched.rings.len() + watched.others.len() })
}

fn refusal(pid: u32, error: Option<io::Error>) -> LiveError {
    let error = error.unwrap_or_else(|| io::ErrorKind::Unsupported.into());
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => LiveError::refused(
            pid,
            format!(
                "the kernel permits no sampling (kernel.perf_event_paranoid is {}); try as root, \
                 or: sysctl kernel.perf_event_paranoid=2",
                paranoid.trim()
            ),
        ),
        _ => LiveError::system("sampling", pid)(error),
    }
}

/// Open events.
#[derive(Debug)]
struct Watched {
    rings: Vec<Ring>,
    /// Events that put their records into the rings.
    others: Vec<OwnedFd>,
}

impl Watched {
    /// Everything on all CPUs: the cheapest by far, and new threads are seen at once.
    fn all_cpus(event: &Event) -> io::Result<Self> {
        const ALL: i32 = -1;
        let rings = cpus()?
            .into_iter()
            .map(|cpu| Ring::new(ring::open(event, ALL, cpu)?, event))
            .collect::<io::Result<Vec<_>>>()?;
        Ok(Self { rings, others: Vec::new() })
    }

    /// The threads of some processes, on each CPU: the kernel makes a buffer for a thread and
    /// what it starts later only by CPU.
    fn threads(event: &Event, members: &HashSet<u32>) -> io::Result<Self> {
        let mut watched = Self { rings: Vec::new(), others: Vec::new() };
        let tids: Vec<i32> =
            members.iter().flat_map(|pid| threads(*pid).unwrap_or_default()).collect();
        for cpu in cpus()? {
            let first = watched.rings.len();
            for tid in &tids {
                let file = match ring::open(event, *tid, cpu) {
                    Ok(file) => file,
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
                    Err(error) => return Err(error),
                };
                if let Some(ring) = watched.rings.get(first) {
                    ring::redirect(std::os::fd::AsFd::as_fd(&file), ring)?;
                    watched.others.push(file);
                } else {
                    watched.rings.push(Ring::new(file, event)?);
                }
            }
        }
        Ok(watched)
    }

    fn switch(&self, on: bool) -> io::Result<()> {
        let rings = self.rings.iter().map(Ring::file);
        for file in rings.chain(self.others.iter().map(std::os::fd::AsFd::as_fd)) {
            if on { ring::enable(file)? } else { ring::disable(file)? }
        }
        Ok(())
    }
}

/// The numbers of the CPUs that are on.
fn cpus() -> io::Result<Vec<i32>> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online")?;
    let unclear = || io::Error::other(format!("unknown list of CPUs: {text}"));
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: i32 = first.parse().map_err(|_| unclear())?;
        let last: i32 = last.parse().map_err(|_| unclear())?;
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

/// A process and all that descend from it.
#[must_use]
pub fn family_of(root: u32) -> HashSet<u32> {
    let mut parents = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if let Some(stat) = Stat::of(&format!("/proc/{pid}/stat")) {
            parents.insert(pid, stat.parent);
        }
    }
    let mut family = HashSet::from([root]);
    loop {
        let before = family.len();
        let kin = parents.iter().filter(|(_, parent)| family.contains(parent));
        let kin: Vec<u32> = kin.map(|(pid, _)| *pid).collect();
        family.extend(kin);
        if family.len() == before {
            return family;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_loop_is_found() {
        let sampling = SamplingOptions { time: Duration::from_millis(300), frequency: 1_000 };
        let pid = std::process::id();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let found = thread::scope(|scope| {
            scope.spawn(|| {
                let mut turns = 0_u64;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    turns = std::hint::black_box(turns + 1);
                }
            });
            let found = sample(pid, false, &sampling, |_| false);
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            found
        });
        let found = found.unwrap();
        assert!(found.samples.total() > 10, "{found:?}");
        assert!(found.events > 0);
    }

    #[test]
    fn a_process_is_of_its_own_family() {
        let me = std::process::id();
        assert!(family_of(me).contains(&me));
    }
}
