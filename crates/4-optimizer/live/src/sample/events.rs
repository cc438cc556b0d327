//! Sampling events of the kernel, opened with `perf_event_open`.

use std::io;
use std::os::fd::AsRawFd;

use perf_event::data::Record;
use perf_event::events::{Hardware, Software};
use perf_event::{Builder, Counter, SampleBranchFlag, SampleFlag, Sampler};
use perf_event_open_sys::ioctls;

use super::SampleSource;

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
