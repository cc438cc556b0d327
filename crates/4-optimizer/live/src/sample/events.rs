//! Events of the kernel, and the samples in them.

use std::collections::HashSet;
use std::io;
use std::os::fd::AsRawFd;

use dbdyno_relayout::{Branch, BranchCount, FallThrough, Samples};
use perf_event::data::Record;
use perf_event::events::{Hardware, Software};
use perf_event::{Builder, Counter, SampleBranchFlag, SampleFlag, Sampler};
use perf_event_open_sys::ioctls;

use crate::sample::SampleSource;

/// Size of a ring buffer in bytes.
const RING_SIZE: usize = 64 * 4096;

/// What to sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventOptions {
    pub(super) source: SampleSource,
    /// Samples per second and CPU.
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
    all_threads: bool,
}

impl Events {
    /// Events for all threads on all CPUs. The cheapest way, and it includes new threads immediately.
    pub(super) fn for_all_threads(options: EventOptions, cpus: &[usize]) -> io::Result<Self> {
        let open = |cpu: &usize| options.on_cpu(*cpu).any_pid().build()?.sampled(RING_SIZE);
        let rings = cpus.iter().map(open).collect::<io::Result<_>>()?;
        Ok(Self { rings, redirected: Vec::new(), all_threads: true })
    }

    /// Events for some threads and those that they start, one per CPU: the kernel allows ring buffers
    /// for inherited events only per CPU. The events of a CPU share a ring buffer.
    pub(super) fn for_threads(
        options: EventOptions,
        cpus: &[usize],
        tids: &[i32],
    ) -> io::Result<Self> {
        let mut events = Self { rings: Vec::new(), redirected: Vec::new(), all_threads: false };
        for cpu in cpus {
            let first = events.rings.len();
            for tid in tids {
                let counter = match options.on_cpu(*cpu).observe_pid(*tid).inherit(true).build() {
                    Ok(counter) => counter,
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
                    Err(error) => return Err(error),
                };
                if let Some(ring) = events.rings.get(first) {
                    redirect(&counter, ring.as_counter())?;
                    events.redirected.push(counter);
                } else {
                    events.rings.push(counter.sampled(RING_SIZE)?);
                }
            }
        }
        Ok(events)
    }

    /// Whether they are events of all threads of the machine.
    pub(super) fn are_of_all_threads(&self) -> bool {
        self.all_threads
    }

    /// Number of open events.
    pub(super) fn len(&self) -> usize {
        self.rings.len() + self.redirected.len()
    }

    pub(super) fn enable(&mut self) -> io::Result<()> {
        self.counters().try_for_each(Counter::enable)
    }

    pub(super) fn disable(&mut self) -> io::Result<()> {
        self.counters().try_for_each(Counter::disable)
    }

    fn counters(&mut self) -> impl Iterator<Item = &mut Counter> {
        self.rings.iter_mut().map(Sampler::as_counter_mut).chain(&mut self.redirected)
    }

    /// Reads and removes all records.
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

/// Lets an event write to the ring buffer of another event.
fn redirect(counter: &Counter, to: &Counter) -> io::Result<()> {
    // SAFETY: the argument is a file descriptor.
    match unsafe { ioctls::SET_OUTPUT(counter.as_raw_fd(), to.as_raw_fd()) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
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

    const PID: u32 = 77;

    /// A record: type, flags, size, and content.
    fn record(kind: u32, content: &[u64]) -> Vec<u8> {
        let size = u64::try_from(8 + 8 * content.len()).unwrap();
        let header = u64::from(kind) | size << 48;
        [&[header], content].concat().iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn sample(pid: u32, ip: u64, branches: &[[u64; 3]]) -> Vec<u8> {
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
        let records =
            [sample(PID, 0x30, &branches), sample(PID + 1, 0x40, &branches), lost(5), lost(2)];
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
            let counts = counts(SampleSource::Branches, &sample(PID, at, &branches));
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
        let one = sample(PID, 0x30, &branches);
        let samples = vec![
            [one.clone(), lost(u64::MAX), sample(PID, u64::MAX, &[]), lost(7), one].concat(),
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
