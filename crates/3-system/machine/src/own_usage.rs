use std::fs;
use std::mem::MaybeUninit;

use dbdyno_units::{Bytes, Nanos};
use serde::Serialize;

/// Resource usage of this process since its start, over all threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OwnUsage {
    /// User and system CPU time, including ended child processes.
    pub cpu: Nanos,
    /// Peak resident memory; `None` if unknown.
    pub most_memory: Option<Bytes>,
}

impl OwnUsage {
    /// Reads the current values.
    #[must_use]
    pub fn now() -> Self {
        let cpu = cpu_of(libc::RUSAGE_SELF) + cpu_of(libc::RUSAGE_CHILDREN);
        // Not ru_maxrss: it includes the peak from before the last exec.
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self { cpu, most_memory: most_memory(&status) }
    }
}

fn cpu_of(whom: libc::c_int) -> Nanos {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills the structure; all zeroes is a valid value of it anyway.
    let usage = unsafe {
        libc::getrusage(whom, usage.as_mut_ptr());
        usage.assume_init()
    };
    let time = |time: libc::timeval| {
        let seconds = Nanos::from_secs(time.tv_sec.cast_unsigned());
        seconds + Nanos::from_micros(time.tv_usec.cast_unsigned())
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

fn most_memory(status: &str) -> Option<Bytes> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Bytes::from_bytes(kib << 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_and_peak_memory_are_read() {
        let memory = vec![1_u8; 64 << 20];
        let before = OwnUsage::now();
        while OwnUsage::now().cpu < before.cpu + Nanos::from_millis(5) {
            std::hint::black_box(memory.iter().map(|byte| u64::from(*byte)).sum::<u64>());
        }
        assert!(OwnUsage::now().most_memory.unwrap() >= Bytes::from_bytes(64 << 20));
        assert_eq!(most_memory("VmHWM:\t   12 kB\n"), Some(Bytes::from_bytes(12 << 10)));
        assert_eq!(most_memory("nothing"), None);
    }
}
