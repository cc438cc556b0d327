//! One event of the kernel with its buffer of records.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings::{
    PERF_FLAG_FD_CLOEXEC, PERF_RECORD_LOST, PERF_RECORD_SAMPLE, PERF_SAMPLE_BRANCH_ANY,
    PERF_SAMPLE_BRANCH_STACK, PERF_SAMPLE_BRANCH_USER, PERF_SAMPLE_IP, PERF_SAMPLE_TID,
    perf_event_attr, perf_event_mmap_page,
};
use perf_event_open_sys::{ioctls, perf_event_open};

/// What is sampled, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: u32,
    pub(crate) config: u64,
    pub(crate) branches: bool,
    /// Per second and CPU.
    pub(crate) frequency: u64,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RingRecord {
    Sample {
        address: u64,
        pid: u32,
        /// Taken branches: from, to, whether mispredicted.
        branches: Vec<(u64, u64, bool)>,
    },
    /// So many had no room in the buffer.
    Lost(u64),
}

/// Opens an event for a thread (all of them: -1) on a CPU (-1: on any), not counting yet. What
/// the thread starts later is sampled, too.
pub(crate) fn open(event: &Event, tid: i32, cpu: i32) -> io::Result<OwnedFd> {
    let mut attributes = perf_event_attr {
        type_: event.kind,
        size: size_of::<perf_event_attr>() as u32,
        config: event.config,
        sample_type: u64::from(PERF_SAMPLE_IP) | u64::from(PERF_SAMPLE_TID),
        ..perf_event_attr::default()
    };
    attributes.__bindgen_anon_1.sample_freq = event.frequency;
    attributes.set_freq(1);
    attributes.set_disabled(1);
    attributes.set_inherit(u64::from(tid >= 0));
    attributes.set_exclude_kernel(1);
    attributes.set_exclude_hv(1);
    if event.branches {
        attributes.sample_type |= u64::from(PERF_SAMPLE_BRANCH_STACK);
        attributes.branch_sample_type =
            u64::from(PERF_SAMPLE_BRANCH_USER) | u64::from(PERF_SAMPLE_BRANCH_ANY);
    }
    const NO_GROUP: libc::c_int = -1;
    let flags = libc::c_ulong::from(PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attributes` lives, is writable and says its size.
    let file = unsafe { perf_event_open(&raw mut attributes, tid, cpu, NO_GROUP, flags) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this file descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

pub(crate) fn enable(file: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the argument is a number.
    done(unsafe { ioctls::ENABLE(file.as_raw_fd(), 0) })
}

pub(crate) fn disable(file: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the argument is a number.
    done(unsafe { ioctls::DISABLE(file.as_raw_fd(), 0) })
}

/// Has an event put its records into the buffer of another one.
pub(crate) fn redirect(file: BorrowedFd<'_>, to: &Ring) -> io::Result<()> {
    let to = to.file.as_raw_fd();
    // SAFETY: the argument is a file descriptor's number.
    done(unsafe { ioctls::SET_OUTPUT(file.as_raw_fd(), to) })
}

fn done(status: libc::c_int) -> io::Result<()> {
    if status == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// An event's buffer, shared with the kernel.
#[derive(Debug)]
pub(crate) struct Ring {
    file: OwnedFd,
    memory: *mut u8,
    /// Bytes of the records, a power of two.
    size: usize,
    branches: bool,
}

const PAGE: usize = 4096;
/// Pages for records.
const PAGES: usize = 64;

impl Ring {
    pub(crate) fn new(file: OwnedFd, event: &Event) -> io::Result<Self> {
        let size = PAGES * PAGE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                PAGE + size,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { file, memory: memory.cast(), size, branches: event.branches })
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.file)
    }

    /// Takes all records out.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(RingRecord)) {
        let page = self.memory.cast::<perf_event_mmap_page>();
        // SAFETY: the first page of the mapping is this structure, whose two counters are aligned
        // and are only changed as wholes; the mapping lives as long as `self`.
        let (head, tail) = unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*page).data_head),
                AtomicU64::from_ptr(&raw mut (*page).data_tail),
            )
        };
        let end = head.load(Ordering::Acquire);
        let mut at = tail.load(Ordering::Relaxed);
        while at < end {
            let header = self.copy(at, 8);
            let kind = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
            let size = usize::from(u16::from_le_bytes([header[6], header[7]]));
            if size < 8 {
                break;
            }
            let record = self.copy(at, size);
            if let Some(record) = parse(kind, &record[8..], self.branches) {
                each(record);
            }
            at += size as u64;
        }
        tail.store(end, Ordering::Release);
    }

    fn copy(&self, at: u64, count: usize) -> Vec<u8> {
        let start = (at as usize) & (self.size - 1);
        let first = count.min(self.size - start);
        let mut bytes = vec![0; count];
        // SAFETY: both pieces lie inside the buffer behind the first page, and the kernel does
        // not write to records that have not been released.
        unsafe {
            let data = self.memory.add(PAGE);
            ptr::copy_nonoverlapping(data.add(start), bytes.as_mut_ptr(), first);
            ptr::copy_nonoverlapping(data, bytes.as_mut_ptr().add(first), count - first);
        }
        bytes
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nobody uses any more.
        unsafe { libc::munmap(self.memory.cast(), PAGE + self.size) };
    }
}

fn parse(kind: u32, body: &[u8], with_branches: bool) -> Option<RingRecord> {
    let word = |at: usize| Some(u64::from_le_bytes(body.get(at..at + 8)?.try_into().ok()?));
    match kind {
        PERF_RECORD_LOST => Some(RingRecord::Lost(word(8)?)),
        PERF_RECORD_SAMPLE => {
            let (address, pid) = (word(0)?, word(8)? as u32);
            let mut branches = Vec::new();
            if with_branches {
                let count = usize::try_from(word(16)?).ok()?;
                for index in 0..count {
                    let at = 24 + index * 24;
                    branches.push((word(at)?, word(at + 8)?, word(at + 16)? & 1 == 1));
                }
            }
            Some(RingRecord::Sample { address, pid, branches })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn records_are_understood_and_cut_ones_are_not() {
        let sample = words(&[0x1234, 7 | 9 << 32, 2, 1, 2, 1, 3, 4, 0]);
        let expected = RingRecord::Sample {
            address: 0x1234,
            pid: 7,
            branches: vec![(1, 2, true), (3, 4, false)],
        };
        assert_eq!(parse(PERF_RECORD_SAMPLE, &sample, true), Some(expected));
        assert_eq!(parse(PERF_RECORD_SAMPLE, &sample[..40], true), None);
        assert_eq!(parse(PERF_RECORD_LOST, &words(&[1, 5]), true), Some(RingRecord::Lost(5)));
        assert_eq!(parse(1, &sample, true), None);
    }
}
