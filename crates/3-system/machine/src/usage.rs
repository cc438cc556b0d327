//! Resource usage of this process, of a thread and of a block device.

use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use dbdyno_types::insert::DeviceUsage;
use dbdyno_units::{Bytes, Nanos};
use serde::Serialize;

use crate::proc_stat::field;

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
        Self { cpu, most_memory: field(&status, "VmHWM:").map(Bytes::from_kib) }
    }
}

fn rusage(whom: libc::c_int) -> libc::rusage {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills the structure; all zeroes is a valid value of it anyway.
    unsafe {
        libc::getrusage(whom, usage.as_mut_ptr());
        usage.assume_init()
    }
}

fn cpu_of(whom: libc::c_int) -> Nanos {
    let usage = rusage(whom);
    let time = |time: libc::timeval| {
        let seconds = Nanos::from_secs(time.tv_sec.cast_unsigned());
        seconds + Nanos::from_micros(time.tv_usec.cast_unsigned())
    };
    time(usage.ru_utime) + time(usage.ru_stime)
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
        let usage = rusage(libc::RUSAGE_THREAD);
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

/// The sector size of the kernel's counters, independent of the device's.
const SECTOR: u64 = 512;

/// The block device under a file system.
#[derive(Debug)]
pub struct BlockDevice {
    stat: File,
}

impl BlockDevice {
    /// The device that holds `path`; `None` for file systems on no device or on several, such as
    /// tmpfs, overlayfs and btrfs.
    pub fn of(path: &Path) -> Option<Self> {
        let number = fs::metadata(path).ok()?.dev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let stat = File::open(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
        Some(Self { stat })
    }

    /// The counters since boot.
    pub fn read(&self) -> io::Result<DeviceUsage> {
        let mut buffer = [0; 512];
        let length = self.stat.read_at(&mut buffer, 0)?;
        let text = String::from_utf8_lossy(&buffer[..length]);
        parse(&text).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("unknown format of device counters: `{text}`"),
            )
        })
    }
}

/// The kernel's Documentation/block/stat.rst: reads, merged, sectors, time; the same of writes.
fn parse(text: &str) -> Option<DeviceUsage> {
    let mut numbers = text.split_ascii_whitespace().map(|number| number.parse::<u64>().ok());
    let mut at = |skip: usize| numbers.nth(skip).flatten();
    let (reads, read) = (at(0)?, at(1)?);
    let (writes, written) = (at(1)?, at(1)?);
    let bytes = |sectors: u64| Bytes::from_bytes(sectors.saturating_mul(SECTOR));
    Some(DeviceUsage { reads, read: bytes(read), writes, written: bytes(written) })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn cpu_time_and_peak_memory_are_read() {
        let memory = vec![1_u8; 64 << 20];
        let before = OwnUsage::now();
        while OwnUsage::now().cpu < before.cpu + Nanos::from_millis(5) {
            std::hint::black_box(memory.iter().map(|byte| u64::from(*byte)).sum::<u64>());
        }
        assert!(OwnUsage::now().most_memory.unwrap() >= Bytes::from_bytes(64 << 20));
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

    #[test]
    fn parses_the_kernels_columns() {
        let text = "  100   3   2048   77   50   9   4096   88   0   1   2\n";
        let usage = parse(text).unwrap();
        assert_eq!((usage.reads, usage.read), (100, Bytes::from_kib(1024)));
        assert_eq!((usage.writes, usage.written), (50, Bytes::from_kib(2048)));
        assert_eq!(parse("1 2"), None);
        assert_eq!(parse("a b c d e f g"), None);
    }

    #[test]
    fn synced_data_is_counted() {
        let directory = tempfile::tempdir().unwrap();
        let Some(device) = BlockDevice::of(directory.path()) else {
            dbdyno_fuzz::skip("the temporary directory is not on a block device");
            return;
        };
        let before = device.read().unwrap();
        let mut file = File::create(directory.path().join("f")).unwrap();
        file.write_all(&vec![7; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        let written = device.read().unwrap().since(&before).written;
        assert!(written >= Bytes::from_mib(1), "{written}");
    }
}
