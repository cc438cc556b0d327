//! User CPU time of a process, by a fast timer.
//!
//! Most kernels split CPU time into user and system time by sampling at each tick, 100 to 1000
//! times a second. A load generator that uses a hundredth of a CPU in user mode is then sampled a
//! few times a second, which is too few for a comparison. The timer here samples 5000 times.
//!
//! Each sample in user mode stands for one period. Samples in kernel mode are not used: there the
//! timer's interrupt is often delayed and hits the code that runs next.

use std::io;

use dbdyno_machine::CpuSet;
use dbdyno_units::Nanos;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};

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
    ///
    /// # Errors
    /// The kernel's; mostly a missing permission, which root has.
    pub fn start(cpus: &CpuSet) -> io::Result<Self> {
        let mut timers = cpus.iter().map(open_timer).collect::<io::Result<Vec<_>>>()?;
        for timer in &mut timers {
            timer.as_counter_mut().enable()?;
        }
        Ok(Self { timers })
    }

    /// Stops the timers and returns the user CPU time of the process `pid`.
    ///
    /// # Errors
    /// The kernel's, and `InvalidData` if the sample buffer was full.
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
