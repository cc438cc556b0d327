//! How a process's CPU time divides into its own code and the kernel's, by a fast timer.
//!
//! Most kernels split CPU time by looking at what runs at each of their ticks, 100 to 1000 times a
//! second. A load generator that spends a hundredth of a CPU in its own code is met there a few
//! times a second: too few to compare it with another one. The timer here looks 5000 times.
//!
//! Each look that meets the process in its own code stands for the time between two looks. The looks
//! that meet it in the kernel are not used: there the timer's interrupt often has to wait, and meets
//! whoever comes next.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use dbdyno_machine::CpuSet;
use dbdyno_units::Nanos;

/// Time between two looks, in nanoseconds: a prime, so that it does not keep step with anything.
const PERIOD: u64 = 199_999;

/// The part of the buffer that holds samples: a power of two, enough for ten seconds.
const BUFFER: usize = 1 << 20;

/// Less room than this at the end, and there may have been more samples.
const ROOM_LEFT: usize = 64;

/// As in the kernel's `perf_event.h`.
mod kernel {
    pub const SOFTWARE: u32 = 1;
    pub const CPU_CLOCK: u64 = 0;
    pub const SAMPLE_PROCESS: u64 = 1 << 1;
    pub const DISABLED: u64 = 1;
    pub const EXCLUDE_IDLE: u64 = 1 << 6;
    pub const SAMPLE: u32 = 9;
    pub const LOST: u32 = 2;
    pub const MODE: u16 = 7;
    pub const MODE_USER: u16 = 2;
    pub const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
    pub const ENABLE: libc::c_ulong = 0x2400;
    pub const DISABLE: libc::c_ulong = 0x2401;
    /// Where the control page says how far the kernel has written.
    pub const DATA_HEAD: usize = 1024;

    #[repr(C)]
    #[derive(Default)]
    pub struct Attributes {
        pub kind: u32,
        pub size: u32,
        pub config: u64,
        pub period: u64,
        pub sample: u64,
        pub read_format: u64,
        pub flags: u64,
        pub wakeup_events: u32,
        pub breakpoint: u32,
        pub config1: u64,
    }
}

/// Looks at what runs on some CPUs, from its start to its end.
#[derive(Debug)]
pub struct ModeSamples {
    timers: Vec<Timer>,
}

impl ModeSamples {
    /// Starts the timer on each of these CPUs.
    ///
    /// # Errors
    /// The kernel's; mostly a missing permission, which root has.
    pub fn start(cpus: &CpuSet) -> io::Result<Self> {
        let timers = cpus.iter().map(Timer::open).collect::<io::Result<Vec<_>>>()?;
        for timer in &timers {
            timer.control(kernel::ENABLE)?;
        }
        Ok(Self { timers })
    }

    /// Stops the timers and tells how long the process `pid` was in its own code.
    ///
    /// # Errors
    /// The kernel's, and `InvalidData` where it ran out of room for samples.
    pub fn finish(self, pid: u32) -> io::Result<Nanos> {
        let mut met = 0;
        for timer in &self.timers {
            timer.control(kernel::DISABLE)?;
            met += timer.count(pid)?;
        }
        Ok(Nanos::from_nanos(met * PERIOD))
    }
}

/// The timer of one CPU and the buffer that the kernel writes its samples to.
#[derive(Debug)]
struct Timer {
    file: File,
    page: usize,
    buffer: *mut u8,
}

impl Timer {
    fn open(cpu: u32) -> io::Result<Self> {
        let attributes = kernel::Attributes {
            kind: kernel::SOFTWARE,
            size: size_of::<kernel::Attributes>() as u32,
            config: kernel::CPU_CLOCK,
            period: PERIOD,
            sample: kernel::SAMPLE_PROCESS,
            flags: kernel::DISABLED | kernel::EXCLUDE_IDLE,
            ..kernel::Attributes::default()
        };
        let (any_process, no_group, flags) = (-1, -1, kernel::CLOSE_ON_EXEC);
        // SAFETY: the attributes have the size that they say; the call makes a new descriptor.
        let file = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                any_process,
                cpu.cast_signed(),
                no_group,
                flags,
            )
        };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and nobody else has it.
        let file = unsafe { File::from_raw_fd(file as i32) };
        // SAFETY: the call takes a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        // SAFETY: a new mapping of the descriptor, of a control page and the buffer.
        let buffer = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let (length, shared) = (page + BUFFER, libc::MAP_SHARED);
            libc::mmap(ptr::null_mut(), length, protection, shared, file.as_raw_fd(), 0)
        };
        if buffer == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { file, page, buffer: buffer.cast() })
    }

    fn control(&self, request: libc::c_ulong) -> io::Result<()> {
        // SAFETY: the request takes a number and touches no memory of ours.
        let status = unsafe { libc::ioctl(self.file.as_raw_fd(), request, 0) };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// How often the process was met in its own code, once the timer is stopped.
    fn count(&self, pid: u32) -> io::Result<u64> {
        // SAFETY: inside the control page, aligned, and written by the kernel as one word.
        let head = unsafe { &*self.buffer.add(kernel::DATA_HEAD).cast::<AtomicU64>() };
        let head = head.load(Ordering::Acquire) as usize;
        // SAFETY: the kernel writes only behind `head`, and the buffer lives as long as `self`.
        let data = unsafe { std::slice::from_raw_parts(self.buffer.add(self.page), BUFFER) };
        // The kernel drops what no longer fits, and says so only where that fits.
        let records = data.get(..head).filter(|_| head + ROOM_LEFT < BUFFER);
        count(records.ok_or_else(out_of_room)?, pid).ok_or_else(out_of_room)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: mapped with this length by `open`, and nothing borrows from it any more.
        unsafe { libc::munmap(self.buffer.cast(), self.page + BUFFER) };
    }
}

fn out_of_room() -> io::Error {
    let message = "the kernel had no room for all samples; measure for a shorter time";
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// Counts the samples of a process in its own code. A record is a header of kind, mode and length,
/// then the process and the thread. `None` where samples were lost.
fn count(mut records: &[u8], pid: u32) -> Option<u64> {
    let mut met = 0;
    while let Some((header, _)) = records.split_first_chunk::<8>() {
        let [k0, k1, k2, k3, m0, m1, l0, l1] = *header;
        let kind = u32::from_ne_bytes([k0, k1, k2, k3]);
        let mode = u16::from_ne_bytes([m0, m1]) & kernel::MODE;
        let length = usize::from(u16::from_ne_bytes([l0, l1])).max(header.len());
        let (record, rest) = records.split_at_checked(length)?;
        records = rest;
        match kind {
            kernel::SAMPLE => {
                let of = record.get(8..12)?.try_into().ok()?;
                met += u64::from(u32::from_ne_bytes(of) == pid && mode == kernel::MODE_USER);
            }
            kernel::LOST => return None,
            _ => {}
        }
    }
    Some(met)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, mode: u16, pid: u32) -> Vec<u8> {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(mode.to_ne_bytes());
        bytes.extend(16_u16.to_ne_bytes());
        bytes.extend(pid.to_ne_bytes());
        bytes.extend(pid.to_ne_bytes());
        bytes
    }

    #[test]
    fn samples_of_one_process_are_counted_by_mode() {
        let records = [
            record(9, 2, 7),
            record(9, 1, 7),
            record(9, 2, 8),
            record(3, 2, 7),
            record(9, 0x4002, 7),
        ];
        assert_eq!(count(&records.concat(), 7), Some(2));
    }

    #[test]
    fn lost_samples_are_no_figures() {
        let records = [record(9, 2, 7), record(2, 0, 7)].concat();
        assert_eq!(count(&records, 7), None);
        assert_eq!(count(&records[..12], 7), None);
    }
}
