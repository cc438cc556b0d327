//! Sampling of processes.

mod budget;

use std::collections::HashSet;
use std::time::{Duration, Instant};
use std::{fmt, fs, io, thread};

pub use budget::{DEFAULT_FREQUENCY, SamplingCost, SamplingPlan, SamplingRequest};
use dbdyno_machine::{CpuSet, ProcStat, VaryingPeriod, share_buffer};
use dbdyno_relayout::{Branch, BranchCount, FallThrough, Samples};
use dbdyno_stats::median;
use dbdyno_units::{Nanos, Share};
use perf_event::data::Record;
use perf_event::events::{Hardware, Software};
use perf_event::{Builder, Counter, SampleBranchFlag, SampleFlag, Sampler};
use serde::Serialize;

use crate::LiveError;
use crate::process::{family_of, raise_file_limit, threads};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SampleSource {
    /// CPU cycles, with the last taken branches.
    Branches,
    Cycles,
    /// The CPU clock, if hardware counters are not available.
    Clock,
}

impl SampleSource {
    /// The most informative source that `open` accepts, with what it returns.
    fn best<T>(mut open: impl FnMut(Self) -> io::Result<T>) -> io::Result<(Self, T)> {
        let mut refused = io::ErrorKind::Unsupported.into();
        for source in [Self::Branches, Self::Cycles, Self::Clock] {
            match open(source) {
                Ok(opened) => return Ok((source, opened)),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }
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

#[derive(Clone, Debug)]
pub struct Sampled {
    pub source: SampleSource,
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

/// Samples a process, and its descendants if `family`, until the time is over or `until` returns
/// true. `until` gets the elapsed time.
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
    let (source, mut events) =
        SampleSource::best(|source| open_source(source, frequency, &members))
            .map_err(|error| refusal(pid, error))?;
    tracing::info!(pid, processes = members.len(), ?source, "sampling");
    let failed = || LiveError::system("sampling", pid);
    events.enable().map_err(failed())?;
    let mut counts = Counts::default();
    let start = Instant::now();
    let mut family_read = start;
    // Only an event of all threads also interrupts this one.
    let cost = options.cost.filter(|_| events.all_threads);
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
        events.vary().map_err(failed())?;
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
    let is_exceeded = overhead > most.as_fraction();
    is_exceeded.then(|| budget::lowered(frequency, overhead, most)).filter(|it| *it < frequency)
}

/// The best source of samples that the kernel permits for all threads or, at least, for those of this
/// user. No event is enabled, and none is opened for the process.
pub(crate) fn permitted_source(pid: u32) -> Result<SampleSource, LiveError> {
    let own_thread = rustix::thread::gettid().as_raw_nonzero().get();
    let cpus = online_cpus().map_err(LiveError::system("listing the CPUs to sample", pid))?;
    let open =
        |source| Events::for_threads(EventOptions { source, frequency: 1 }, &cpus, &[own_thread]);
    let (source, _) = SampleSource::best(open).map_err(|error| refusal(pid, error))?;
    Ok(source)
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

fn refusal(pid: u32, error: io::Error) -> LiveError {
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

fn online_cpus() -> io::Result<Vec<usize>> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online")?;
    let cpus = text.parse::<CpuSet>();
    let cpus = cpus.map_err(|_| io::Error::other(format!("invalid list of CPUs: {text}")))?;
    Ok(cpus.iter().map(|cpu| cpu as usize).collect())
}

/// Size of a ring buffer in bytes.
const RING_SIZE: usize = 64 * 4096;

#[derive(Clone, Copy, Debug)]
pub(super) struct EventOptions {
    pub(super) source: SampleSource,
    pub(super) frequency: u32,
}

impl EventOptions {
    /// A disabled event on one CPU.
    pub(super) fn on_cpu(self, cpu: usize) -> Builder<'static> {
        let mut builder = match self.source {
            SampleSource::Clock => Builder::new(Software::CPU_CLOCK),
            SampleSource::Branches | SampleSource::Cycles => Builder::new(Hardware::CPU_CYCLES),
        };
        builder.one_cpu(cpu).sample_frequency(self.frequency.into());
        builder.sample(SampleFlag::IP | SampleFlag::TID);
        if self.source == SampleSource::Branches {
            builder.sample(SampleFlag::BRANCH_STACK);
            builder.branch_sample_type(SampleBranchFlag::USER | SampleBranchFlag::ANY);
        }
        builder
    }
}

/// Open events and their ring buffers.
pub(super) struct Events {
    rings: Vec<Sampler>,
    /// Events that write to the ring buffer of another event.
    redirected: Vec<Counter>,
    /// Whether they are events of all threads of the machine.
    all_threads: bool,
    /// Of clocks of CPUs. The kernel adapts the period of other events all the time.
    varying: Option<VaryingPeriod>,
}

impl Events {
    /// Events for all threads on all CPUs. The cheapest way, and it includes new threads immediately.
    pub(super) fn for_all_threads(options: EventOptions, cpus: &[usize]) -> io::Result<Self> {
        let open = |cpu: &usize| options.on_cpu(*cpu).any_pid().build()?.sampled(RING_SIZE);
        let rings = cpus.iter().map(open).collect::<io::Result<_>>()?;
        let mean = Nanos::from_nanos(1_000_000_000 / u64::from(options.frequency.max(1)));
        let is_clock = options.source == SampleSource::Clock;
        let varying = is_clock.then(|| VaryingPeriod::around(mean));
        Ok(Self { rings, redirected: Vec::new(), all_threads: true, varying })
    }

    /// Events for some threads and those that they start, one per CPU: the kernel allows ring buffers
    /// for inherited events only per CPU. The events of a CPU share a ring buffer.
    pub(super) fn for_threads(
        options: EventOptions,
        cpus: &[usize],
        tids: &[i32],
    ) -> io::Result<Self> {
        let mut events =
            Self { rings: Vec::new(), redirected: Vec::new(), all_threads: false, varying: None };
        for cpu in cpus {
            let first = events.rings.len();
            for tid in tids {
                let counter = match options.on_cpu(*cpu).observe_pid(*tid).inherit(true).build() {
                    Ok(counter) => counter,
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
                    Err(error) => return Err(error),
                };
                if let Some(ring) = events.rings.get(first) {
                    share_buffer(&counter, ring.as_counter())?;
                    events.redirected.push(counter);
                } else {
                    events.rings.push(counter.sampled(RING_SIZE)?);
                }
            }
        }
        Ok(events)
    }

    pub(super) fn len(&self) -> usize {
        self.rings.len() + self.redirected.len()
    }

    pub(super) fn enable(&mut self) -> io::Result<()> {
        self.counters().try_for_each(Counter::enable)
    }

    pub(super) fn disable(&mut self) -> io::Result<()> {
        self.counters().try_for_each(Counter::disable)
    }

    /// Keeps what is sampled from falling into step with the samples.
    fn vary(&mut self) -> io::Result<()> {
        let counters = self.rings.iter().map(Sampler::as_counter);
        self.varying.as_mut().map_or(Ok(()), |varying| varying.vary(counters))
    }

    fn counters(&mut self) -> impl Iterator<Item = &mut Counter> {
        self.rings.iter_mut().map(Sampler::as_counter_mut).chain(&mut self.redirected)
    }

    pub(super) fn drain(&mut self, mut each: impl FnMut(&Record<'_>)) {
        for ring in &mut self.rings {
            while let Some(record) = ring.next_record() {
                if let Ok(record) = record.parse_record() {
                    each(&record);
                }
            }
        }
    }
}

/// What the records of some processes add up to.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) samples: Samples,
    pub(super) lost: u64,
}

impl Counts {
    /// Adds a record, unless it is a sample of a process that is no member.
    pub(super) fn add(&mut self, record: &Record<'_>, members: &HashSet<u32>) {
        match record {
            Record::Lost(record) => self.lost = self.lost.saturating_add(record.lost),
            Record::Sample(record) if record.pid().is_some_and(|pid| members.contains(&pid)) => {
                let sampled = record.ip().unwrap_or_default();
                self.samples.add_hit(sampled, 1);
                // The latest branch is first. From its target on, code was executed up to the sample.
                let mut next_branch = Some(sampled);
                for taken in record.lbr().unwrap_or_default() {
                    if let Some(last) = next_branch {
                        self.samples.add_fall_through(FallThrough { first: taken.to(), last }, 1);
                    }
                    next_branch = Some(taken.from());
                    let branch = Branch { from: taken.from(), to: taken.to() };
                    let mispredicted = taken.mispred().into();
                    self.samples.add_branch(branch, BranchCount { taken: 1, mispredicted });
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use dbdyno_fuzz::Fuzz;
    use perf_event::data::endian::Native;
    use perf_event::data::parse::{ParseConfig, Parser};

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
        assert_eq!(exceeded(&[0.01, 0.01, 0.01, 0.1, 0.1, 0.1], 2_000, most), Some(800));
        assert_eq!(exceeded(&[0.055; 5], 2_000, most), Some(1_455));
        // Disturbed measurements, and less than the limit, but more than was planned.
        assert_eq!(exceeded(&[0.04, 0.5, 0.04, 0.5, 0.04], 2_000, most), None);
        assert_eq!(exceeded(&[0.048; 5], 2_000, most), None);
    }

    #[test]
    fn family_includes_the_process_itself() {
        let me = std::process::id();
        assert!(family_of(me).contains(&me));
    }

    const PID: u32 = 77;

    /// A record: type, flags, size, and content.
    fn record(kind: u32, content: &[u64]) -> Vec<u8> {
        let size = u64::try_from(8 + 8 * content.len()).unwrap();
        let header = u64::from(kind) | size << 48;
        [&[header], content].concat().iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn sample_record(pid: u32, ip: u64, branches: &[[u64; 3]]) -> Vec<u8> {
        let count = branches.len() as u64;
        record(9, &[&[ip, pid.into(), count], branches.as_flattened()].concat())
    }

    fn lost(count: u64) -> Vec<u8> {
        record(2, &[1, count])
    }

    /// The counts of all records up to the first invalid one, parsed as a ring buffer of these events is.
    fn counts(source: SampleSource, bytes: &[u8]) -> Counts {
        let options = EventOptions { source, frequency: 1_000 };
        let config = ParseConfig::<Native>::from(*options.on_cpu(0).attrs());
        let mut parser = Parser::new(bytes, config);
        let mut counts = Counts::default();
        while let Ok(record) = parser.parse::<Record<'_>>() {
            counts.add(&record, &HashSet::from([PID]));
        }
        counts
    }

    #[test]
    fn samples_of_members_are_counted_with_their_branches() {
        let branches = [[0x10, 0x20, 1], [0x10, 0x20, 2]];
        let records = [
            sample_record(PID, 0x30, &branches),
            sample_record(PID + 1, 0x40, &branches),
            lost(5),
            lost(2),
        ];
        let counts = counts(SampleSource::Branches, &records.concat());
        assert_eq!((counts.samples.total(), counts.samples.hits()[&0x30], counts.lost), (1, 1, 7));
        let taken = counts.samples.branches()[&Branch { from: 0x10, to: 0x20 }];
        assert_eq!(taken, BranchCount { taken: 2, mispredicted: 1 });
    }

    #[test]
    fn code_between_two_recorded_branches_was_executed() {
        // From 0x10 to 0x20, from 0x28 to 0x40, from 0x48 to 0x10; the latest is first.
        let branches = [[0x48, 0x10, 1], [0x28, 0x40, 1], [0x10, 0x20, 1]];
        let found = |at: u64| {
            let counts = counts(SampleSource::Branches, &sample_record(PID, at, &branches));
            let counts = counts.samples.fall_throughs().iter();
            let mut found: Vec<_> =
                counts.map(|(code, count)| (code.first, code.last, *count)).collect();
            found.sort_unstable();
            found
        };
        // The last one ends at the sampled instruction.
        assert_eq!(found(0x14), [(0x10, 0x14, 1), (0x20, 0x28, 1), (0x40, 0x48, 1)]);
        // A signal handler was called since the last branch.
        assert_eq!(found(0x0c), [(0x20, 0x28, 1), (0x40, 0x48, 1)]);
    }

    #[test]
    fn damaged_records_are_read_or_refused() {
        let branches = [[0x10, 0x20, 1], [0x20, u64::MAX, 2], [0, 0, u64::MAX]];
        let one = sample_record(PID, 0x30, &branches);
        let samples = vec![
            [one.clone(), lost(u64::MAX), sample_record(PID, u64::MAX, &[]), lost(7), one].concat(),
            // The kernel starts and stops recording; a process starts, forks, is renamed, and exits.
            [3, 4, 5, 6, 7, 10, 14].map(|kind| record(kind, &[PID.into(), 0x30, 0, 0x61])).concat(),
        ];
        for source in [SampleSource::Branches, SampleSource::Cycles, SampleSource::Clock] {
            Fuzz::new(samples.clone()).cases(512).run(|records| {
                let counts = counts(source, records);
                // A sample takes at least a header, an address and a process.
                assert!(counts.samples.total() <= records.len() as u64 / 24);
            });
        }
    }
}
