//! Resource usage of this process and of a thread.

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

/// Context switches and page faults of the calling thread since its start; one system call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadUsage {
    /// Voluntary and involuntary context switches.
    pub context_switches: u64,
    pub page_faults: u64,
}

impl ThreadUsage {
    pub fn now() -> Self {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the kernel fills the structure; all zeroes is a valid value of it anyway.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
            usage.assume_init()
        };
        Self {
            context_switches: (usage.ru_nvcsw + usage.ru_nivcsw).cast_unsigned(),
            page_faults: (usage.ru_minflt + usage.ru_majflt).cast_unsigned(),
        }
    }

    /// The increase since an earlier reading of the same thread.
    pub const fn since(self, earlier: &Self) -> Self {
        Self {
            context_switches: self.context_switches.saturating_sub(earlier.context_switches),
            page_faults: self.page_faults.saturating_sub(earlier.page_faults),
        }
    }
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

    #[test]
    fn counts_context_switches_and_page_faults() {
        let before = ThreadUsage::now();
        std::thread::sleep(std::time::Duration::from_millis(1));
        let memory = vec![1_u8; 64 << 20];
        std::hint::black_box(&memory);
        let used = ThreadUsage::now().since(&before);
        assert!(used.context_switches >= 1);
        assert!(used.page_faults >= 1);
    }
}
