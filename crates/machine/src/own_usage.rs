use std::mem::MaybeUninit;

use dbdyno_units::{Bytes, Nanos};
use serde::Serialize;

/// What this process has cost since it started, all its threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OwnUsage {
    /// CPU time, in user mode and in the kernel.
    pub cpu: Nanos,
    /// The most memory that it had in use at once.
    pub most_memory: Bytes,
}

impl OwnUsage {
    /// The present reading.
    #[must_use]
    pub fn now() -> Self {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the kernel fills the structure; all zeroes is a valid value of it anyway.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
            usage.assume_init()
        };
        let time = |time: libc::timeval| {
            let seconds = Nanos::from_secs(time.tv_sec.cast_unsigned());
            seconds + Nanos::from_micros(time.tv_usec.cast_unsigned())
        };
        Self {
            cpu: time(usage.ru_utime) + time(usage.ru_stime),
            // In KiB: getrusage(2).
            most_memory: Bytes::from_bytes(usage.ru_maxrss.cast_unsigned() << 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_and_memory_are_seen() {
        let memory = vec![1_u8; 64 << 20];
        let mut sum = 0_u64;
        let before = OwnUsage::now();
        while OwnUsage::now().cpu < before.cpu + Nanos::from_millis(5) {
            sum =
                sum.wrapping_add(std::hint::black_box(&memory).iter().map(|b| u64::from(*b)).sum());
        }
        assert!(OwnUsage::now().most_memory >= Bytes::from_bytes(64 << 20), "{sum}");
    }
}
