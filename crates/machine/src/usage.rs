//! Resource usage of a process: CPU time, context switches, page faults, I/O, memory.

use std::fs;
use std::io;
use std::ops::Add;

use dbdyno_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::pin::threads_of;
use crate::proc_stat::{ProcStat, ticks};

/// Resource usage of a process since its start, including ended threads unless noted, without
/// child processes. For a server with several processes use [`crate::ProcessTree`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// CPU time by the process's CPU clock, in nanoseconds.
    pub cpu: Nanos,
    /// User CPU time, in steps of the kernel's tick, mostly 10 ms.
    pub user: Nanos,
    /// System CPU time, in the same steps.
    pub system: Nanos,
    /// Voluntary context switches of live threads.
    pub voluntary_switches: Option<u64>,
    /// Involuntary context switches of live threads.
    pub involuntary_switches: Option<u64>,
    /// Minor page faults.
    pub minor_faults: u64,
    /// Major page faults, which waited for storage.
    pub major_faults: u64,
    /// Bytes read and written; `None` if this user may not trace the process.
    pub io: Option<Io>,
    /// Current resident memory.
    pub resident: Bytes,
}

/// Bytes read and written by a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Io {
    /// Read by system calls: from files, sockets and pipes, cached or not.
    pub read: Bytes,
    /// Written by system calls.
    pub written: Bytes,
    /// Read from storage.
    pub read_from_storage: Bytes,
    /// Written to storage, or to the page cache to be written back later.
    pub written_to_storage: Bytes,
}

/// Resource usage between two readings; can be summed over processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// CPU time, to the nanosecond.
    pub cpu: Nanos,
    /// User CPU time, in steps of the kernel's tick.
    pub user: Nanos,
    /// System CPU time, in steps of the kernel's tick.
    pub system: Nanos,
    /// Voluntary context switches; `None` if unknown, or if a thread ended and with it its count.
    pub voluntary_switches: Option<u64>,
    /// Involuntary context switches; `None` as above.
    pub involuntary_switches: Option<u64>,
    /// Minor page faults.
    pub minor_faults: u64,
    /// Major page faults, which waited for storage.
    pub major_faults: u64,
    /// Bytes read and written; `None` if not permitted.
    pub io: Option<Io>,
    /// Change of resident memory, in bytes.
    pub resident_growth: i64,
}

impl Usage {
    /// Reads the usage of the process `pid`.
    ///
    /// # Errors
    /// There is no such process, or a file of `/proc` has an unknown format (`InvalidData`).
    pub fn of(pid: u32) -> io::Result<Self> {
        let stat = ProcStat::of_process(pid)?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let switches = switches_of(pid);
        Ok(Self {
            cpu: clock::process_cpu_of(pid)?,
            user: ticks(stat.user_ticks),
            system: ticks(stat.system_ticks),
            voluntary_switches: switches.map(|(voluntary, _)| voluntary),
            involuntary_switches: switches.map(|(_, involuntary)| involuntary),
            minor_faults: stat.minor_faults,
            major_faults: stat.major_faults,
            io: fs::read_to_string(format!("/proc/{pid}/io"))
                .ok()
                .and_then(|text| Io::parse(&text)),
            // Missing for kernel threads and ended processes.
            resident: Bytes::from_bytes(field(&status, "VmRSS:").unwrap_or(0).saturating_mul(1024)),
        })
    }

    /// Reads the usage of this process.
    ///
    /// # Errors
    /// As [`Usage::of`].
    pub fn of_self() -> io::Result<Self> {
        Self::of(std::process::id())
    }

    /// The usage since an `earlier` reading of the same process.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Used {
        let grown = |now: Option<u64>, then: Option<u64>| now?.checked_sub(then?);
        Used {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            voluntary_switches: grown(self.voluntary_switches, earlier.voluntary_switches),
            involuntary_switches: grown(self.involuntary_switches, earlier.involuntary_switches),
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            io: self.io.zip(earlier.io).map(|(now, then)| now.since(then)),
            resident_growth: self
                .resident
                .as_bytes()
                .cast_signed()
                .saturating_sub(earlier.resident.as_bytes().cast_signed()),
        }
    }
}

/// The sum of two processes; unknown if unknown for one of them.
impl Add for Used {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let sum = |one: Option<u64>, two: Option<u64>| Some(one? + two?);
        Self {
            cpu: self.cpu + other.cpu,
            user: self.user + other.user,
            system: self.system + other.system,
            voluntary_switches: sum(self.voluntary_switches, other.voluntary_switches),
            involuntary_switches: sum(self.involuntary_switches, other.involuntary_switches),
            minor_faults: self.minor_faults + other.minor_faults,
            major_faults: self.major_faults + other.major_faults,
            io: self.io.zip(other.io).map(|(one, two)| Io {
                read: one.read + two.read,
                written: one.written + two.written,
                read_from_storage: one.read_from_storage + two.read_from_storage,
                written_to_storage: one.written_to_storage + two.written_to_storage,
            }),
            resident_growth: self.resident_growth + other.resident_growth,
        }
    }
}

impl Io {
    /// Parses `/proc/PID/io`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let bytes = |name| field(text, name).map(Bytes::from_bytes);
        Some(Self {
            read: bytes("rchar:")?,
            written: bytes("wchar:")?,
            read_from_storage: bytes("read_bytes:")?,
            written_to_storage: bytes("write_bytes:")?,
        })
    }

    fn since(self, earlier: Self) -> Self {
        let grown = |now: Bytes, then: Bytes| {
            Bytes::from_bytes(now.as_bytes().saturating_sub(then.as_bytes()))
        };
        Self {
            read: grown(self.read, earlier.read),
            written: grown(self.written, earlier.written),
            read_from_storage: grown(self.read_from_storage, earlier.read_from_storage),
            written_to_storage: grown(self.written_to_storage, earlier.written_to_storage),
        }
    }
}

/// Voluntary and involuntary context switches of all live threads: the process's status file only
/// has those of the main thread.
fn switches_of(pid: u32) -> Option<(u64, u64)> {
    let mut sum = (0_u64, 0_u64);
    for thread in threads_of(pid).ok()? {
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")) else {
            continue; // The thread ended.
        };
        sum.0 = sum.0.saturating_add(field(&status, "voluntary_ctxt_switches:")?);
        sum.1 = sum.1.saturating_add(field(&status, "nonvoluntary_ctxt_switches:")?);
    }
    Some(sum)
}

/// The number after `name` in the line that starts with it.
pub(crate) fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_io_by_system_call_and_by_storage() {
        let text = "rchar: 10\nwchar: 20\nsyscr: 1\nsyscw: 2\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n";
        let io = Io::parse(text).unwrap();
        assert_eq!(io.read, Bytes::from_bytes(10));
        assert_eq!(io.written_to_storage, Bytes::from_kib(8));
        assert_eq!(Io::parse("rchar: 10\n"), None);
    }

    #[test]
    fn unknown_stays_unknown_in_differences_and_sums() {
        let known =
            Used { voluntary_switches: Some(2), io: Some(Io::default()), ..Used::default() };
        let sum = known + Used { voluntary_switches: Some(3), ..Used::default() };
        assert_eq!((sum.voluntary_switches, sum.io), (Some(5), None));
    }

    #[test]
    fn usage_of_this_process_grows() {
        let before = Usage::of_self().unwrap();
        let start = clock::thread_cpu();
        while clock::thread_cpu() - start < Nanos::from_millis(30) {
            std::hint::spin_loop();
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
        let touched = std::hint::black_box(vec![1_u8; 4 << 20]);
        let used = Usage::of_self().unwrap().since(&before);
        assert!(used.cpu >= Nanos::from_millis(30), "{used:?}");
        assert!(used.user + used.system > Nanos::ZERO, "{used:?}");
        assert!(before.resident > Bytes::from_kib(100));
        drop(touched);
    }

    #[test]
    fn no_such_process_is_an_error() {
        assert!(Usage::of(i32::MAX.cast_unsigned()).is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in "(?s).{0,200}", name in "[a-z_]{0,8}:") {
            let _ = (Io::parse(&text), field(&text, &name));
        }
    }
}
