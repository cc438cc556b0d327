//! CPU time and throughput of a load generator over a period of time.

use std::io;

use dbdyno_machine::{CpuSet, ProcessTree, ProcessTreeUsage, clock};
use dbdyno_units::Nanos;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};

/// Measures a process that is pinned to some CPUs.
pub struct Meter {
    pid: u32,
    process: ProcessTree,
    before: ProcessTreeUsage,
    /// `None` if this user may not sample CPUs.
    samples: Option<ModeSamples>,
    started: Nanos,
}

/// CPU time and statements of a process over one or more periods of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuCost {
    pub user: Nanos,
    /// User and system CPU time, to the nanosecond.
    pub cpu: Nanos,
    /// The part of it in which the process polled in vain.
    pub polling: Nanos,
    pub wall: Nanos,
    pub statements: u64,
}

impl Meter {
    /// Starts to measure the process `pid`, which is pinned to `cpus`.
    pub fn start(pid: u32, cpus: &CpuSet) -> io::Result<Self> {
        let samples = ModeSamples::start(cpus).ok();
        let mut process = ProcessTree::of(pid)?;
        let before = process.read()?;
        Ok(Self { pid, process, before, samples, started: clock::monotonic() })
    }

    /// Ends the measurement, in which `statements` were executed.
    pub fn finish(mut self, statements: u64) -> io::Result<CpuCost> {
        let wall = clock::monotonic() - self.started;
        let used = self.process.read()?.since(&self.before);
        let user = match self.samples {
            Some(samples) => samples.finish(self.pid)?,
            None => used.user,
        };
        Ok(CpuCost { user, cpu: used.cpu, polling: Nanos::ZERO, wall, statements })
    }

    /// How user CPU time is measured on this machine.
    pub fn method(cpus: &CpuSet) -> &'static str {
        match ModeSamples::start(cpus) {
            Ok(_) => "CPU time by the process's clock; user CPU time by 5000 samples a second",
            Err(_) => {
                "CPU time by the process's clock; user CPU time by the kernel's ticks, which is \
                 coarse: run as root, or set kernel.perf_event_paranoid to 0, for a finer timer"
            }
        }
    }
}

impl CpuCost {
    pub fn add(&mut self, other: &Self) {
        self.user += other.user;
        self.cpu += other.cpu;
        self.polling += other.polling;
        self.wall += other.wall;
        self.statements += other.statements;
    }

    /// User CPU time per statement, in µs.
    pub fn user_us(&self) -> f64 {
        self.us_per_statement(self.user)
    }

    /// User and system CPU time per statement without polling, in µs.
    pub fn work_us(&self) -> f64 {
        self.us_per_statement(self.cpu.saturating_sub(self.polling))
    }

    pub fn qps(&self) -> f64 {
        self.statements as f64 / self.wall.as_secs_f64()
    }

    fn us_per_statement(&self, time: Nanos) -> f64 {
        time.as_secs_f64() * 1e6 / self.statements as f64
    }
}

/// Sampling period in nanoseconds: a prime, to avoid running in step with anything periodic.
const PERIOD: u64 = 199_999;

/// Size of the sample buffer in bytes: a power of two, enough for ten seconds.
const BUFFER: usize = 1 << 20;

/// If less than this is left of the buffer, samples may have been dropped.
const MIN_FREE: usize = 64;

/// Record types and modes of `linux/perf_event.h`.
const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
const MISC_CPU_MODE_MASK: u16 = 7;
const MISC_USER: u16 = 2;
const RECORD_HEADER_SIZE: usize = 8;

/// Samples what runs on some CPUs.
pub struct ModeSamples {
    timers: Vec<Sampler>,
}

impl ModeSamples {
    /// Starts a timer on each of these CPUs.
    pub fn start(cpus: &CpuSet) -> io::Result<Self> {
        let mut timers = cpus.iter().map(open_timer).collect::<io::Result<Vec<_>>>()?;
        for timer in &mut timers {
            timer.as_counter_mut().enable()?;
        }
        Ok(Self { timers })
    }

    /// Stops the timers and returns the user CPU time of the process `pid`.
    pub fn finish(mut self, pid: u32) -> io::Result<Nanos> {
        let mut samples = 0;
        for timer in &mut self.timers {
            timer.as_counter_mut().disable()?;
            let mut size = 0;
            let records = std::iter::from_fn(|| {
                let record = timer.next_record()?;
                size += RECORD_HEADER_SIZE + record.len();
                Some((record.ty(), record.misc(), record.to_vec()))
            });
            samples += count_user_samples(records, pid).ok_or_else(buffer_full)?;
            // The kernel drops what does not fit, and reports that only if the report fits.
            if size + MIN_FREE >= BUFFER {
                return Err(buffer_full());
            }
        }
        Ok(Nanos::from_nanos(samples * PERIOD))
    }
}

fn open_timer(cpu: u32) -> io::Result<Sampler> {
    let mut builder = Builder::new(Software::CPU_CLOCK);
    builder.any_pid().one_cpu(cpu as usize).include_kernel().include_hv().exclude_idle(true);
    builder.sample(SampleFlag::TID).sample_period(PERIOD).build()?.sampled(BUFFER)
}

fn buffer_full() -> io::Error {
    let message = "the kernel's sample buffer was full; measure for a shorter time";
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// The number of samples of a process in user mode; `None` if samples were lost. A record is its
/// type, its misc field, and its data: process ID and thread ID.
fn count_user_samples(
    mut records: impl Iterator<Item = (u32, u16, Vec<u8>)>,
    pid: u32,
) -> Option<u64> {
    records.try_fold(0, |samples, (kind, misc, data)| match kind {
        RECORD_SAMPLE => {
            let is_pid = u32::from_ne_bytes(*data.first_chunk()?) == pid;
            Some(samples + u64::from(is_pid && misc & MISC_CPU_MODE_MASK == MISC_USER))
        }
        RECORD_LOST => None,
        _ => Some(samples),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_add_up() {
        let second = |statements, micros| CpuCost {
            user: Nanos::from_micros(micros),
            cpu: Nanos::from_micros(6 * micros),
            polling: Nanos::from_micros(2 * micros),
            wall: Nanos::from_secs(1),
            statements,
        };
        let mut cost = CpuCost::default();
        cost.add(&second(100, 500));
        cost.add(&second(300, 300));
        assert_eq!((cost.user_us(), cost.work_us(), cost.qps()), (2.0, 8.0, 200.0));
    }

    #[test]
    fn computing_process_uses_user_time() {
        let cpus = CpuSet::allowed().unwrap();
        let meter = Meter::start(std::process::id(), &cpus).unwrap();
        let started = clock::thread_cpu();
        while clock::thread_cpu() - started < Nanos::from_millis(60) {
            // Long periods in user mode between readings of the clock.
            (0..100_000).for_each(|n| {
                std::hint::black_box(n);
            });
        }
        let cost = meter.finish(1).unwrap();
        assert!(cost.cpu >= Nanos::from_millis(60), "{cost:?}");
        assert!(cost.user.as_secs_f64() > 0.5 * cost.cpu.as_secs_f64(), "{cost:?}");
    }

    fn record(kind: u32, misc: u16, pid: u32) -> (u32, u16, Vec<u8>) {
        (kind, misc, [pid.to_ne_bytes(), pid.to_ne_bytes()].concat())
    }

    #[test]
    fn counts_user_mode_samples_of_one_process() {
        let records = [
            record(9, 2, 7),
            record(9, 1, 7),
            record(9, 2, 8),
            record(3, 2, 7),
            record(9, 0x4002, 7),
        ];
        assert_eq!(count_user_samples(records.into_iter(), 7), Some(2));
    }

    #[test]
    fn lost_or_truncated_samples_give_no_count() {
        let lost = [record(9, 2, 7), record(2, 0, 7)];
        assert_eq!(count_user_samples(lost.into_iter(), 7), None);
        let truncated = [(9, 2, vec![7, 0])];
        assert_eq!(count_user_samples(truncated.into_iter(), 7), None);
    }
}
