use std::fs;
use std::mem::MaybeUninit;

use dbdyno_units::{Bytes, Nanos};
use serde::Serialize;

/// What this process has cost since it started, all its threads together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OwnUsage {
    /// CPU time, in user mode and in the kernel, with that of programs that it called.
    pub cpu: Nanos,
    /// The most memory of its own that it had in use at once; `None` where unknown.
    pub most_memory: Option<Bytes>,
}

impl OwnUsage {
    /// The present reading.
    #[must_use]
    pub fn now() -> Self {
        let cpu = cpu_of(libc::RUSAGE_SELF) + cpu_of(libc::RUSAGE_CHILDREN);
        // getrusage would tell the most that this process had before it became this program, too.
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
    fn work_and_memory_are_seen() {
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
