//! Code addresses on the stacks of stopped threads.

use std::ops::Range;

use super::session::StoppedThread;
use crate::LiveError;
use crate::maps::Maps;
use crate::memory::ProcessMemory;
use crate::process::Process;

/// Data for reading stacks, collected before the threads are stopped.
#[derive(Debug)]
pub(crate) struct Stacks<'a> {
    maps: Maps,
    /// Addresses that signal handlers return to, ascending.
    signal_returns: &'a [u64],
}

/// Offset from the return address of a signal handler to the saved stack pointer.
const SAVED_RSP: u64 = 168;
/// Offset from the return address of a signal handler to the saved instruction pointer.
const SAVED_RIP: u64 = 176;

/// Bytes below the stack pointer that a thread may use.
const RED_ZONE: u64 = 128;

/// Number of words per read.
const CHUNK_WORDS: usize = 64 << 10;

/// Maximum number of nested signal stacks per thread.
const STACKS_PER_THREAD: usize = 8;

impl<'a> Stacks<'a> {
    /// Prepares reading the stacks of a process.
    ///
    /// # Errors
    /// The process exited.
    pub(crate) fn of(process: &'a Process) -> Result<Self, LiveError> {
        Ok(Self { maps: process.maps()?, signal_returns: process.signal_returns()? })
    }

    /// Passes every word on the thread's stacks, including the red zone, to `see`; again, with `true`,
    /// each instruction pointer saved by a signal handler. Returns whether the thread is in a signal
    /// handler.
    pub(crate) fn visit(
        &self,
        memory: &ProcessMemory,
        thread: &StoppedThread,
        mut see: impl FnMut(u64, bool),
    ) -> bool {
        let mut starts = vec![thread.registers.rsp - RED_ZONE.min(thread.registers.rsp)];
        let mut visited: Vec<Range<u64>> = Vec::new();
        let mut in_handler = false;
        while let Some(start) = starts.pop() {
            let start = start / 8 * 8;
            // A stack without a mapping is newer than the list: read as much as possible.
            let end = self.end_of_stack(start);
            if visited.iter().any(|range| range.contains(&start)) {
                continue;
            }
            visited.push(start..end);
            let mut at = start;
            while at < end {
                let left = usize::try_from((end - at) / 8).unwrap_or(CHUNK_WORDS);
                let words = memory.words(at, left.clamp(1, CHUNK_WORDS));
                for (index, word) in words.iter().enumerate() {
                    see(*word, false);
                    if self.signal_returns.binary_search(word).is_ok() {
                        in_handler = true;
                        let frame = at + index as u64 * 8;
                        if let [rip] = memory.words(frame + SAVED_RIP, 1)[..] {
                            see(rip, true);
                        }
                        if let [rsp] = memory.words(frame + SAVED_RSP, 1)[..]
                            && visited.len() + starts.len() < STACKS_PER_THREAD
                        {
                            starts.push(rsp.saturating_sub(RED_ZONE));
                        }
                    }
                }
                if words.len() < left.min(CHUNK_WORDS) {
                    break;
                }
                at += words.len() as u64 * 8;
            }
        }
        in_handler
    }

    fn end_of_stack(&self, start: u64) -> u64 {
        const UNKNOWN: u64 = 8 << 20;
        let mapping = self.maps.at(start).or_else(|| self.maps.at(start + RED_ZONE + 8));
        mapping.map_or(start.saturating_add(UNKNOWN), |mapping| mapping.range.end)
    }
}

/// For each of these ranges (ascending, disjoint), whether a thread is in it or a word on its stacks
/// points to it.
pub(crate) fn ranges_in_use(
    stacks: &Stacks<'_>,
    memory: &ProcessMemory,
    threads: &[StoppedThread],
    ranges: &[Range<u64>],
) -> Vec<bool> {
    let mut used = vec![false; ranges.len()];
    let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else { return used };
    let all = first.start..last.end;
    let mut see = |word: u64| {
        if all.contains(&word) {
            let index = ranges.partition_point(|range| range.end <= word);
            if ranges[index].contains(&word) {
                used[index] = true;
            }
        }
    };
    for thread in threads {
        see(thread.registers.rip);
        stacks.visit(memory, thread, |word, _| see(word));
    }
    used
}

/// Code with its bytes, to distinguish return addresses from other words.
#[derive(Debug)]
pub(crate) struct KnownCode {
    pub(crate) start: u64,
    pub(crate) bytes: Vec<u8>,
}

impl KnownCode {
    fn contains(&self, address: u64) -> bool {
        (self.start..self.start + self.bytes.len() as u64).contains(&address)
    }

    /// Whether the bytes before an address may be a call.
    fn follows_call(&self, address: u64) -> bool {
        let Some(before) = address
            .checked_sub(self.start)
            .and_then(|offset| self.bytes.get(..usize::try_from(offset).ok()?))
        else {
            return false;
        };
        let back = |count: usize| before.len().checked_sub(count).map(|at| before[at]);
        // A near `call`; or one through a register or memory: 0xff, a second byte with 2 in bits 3 to
        // 5, and up to five more bytes.
        const CALL: u8 = 0xe8;
        const INDIRECT: u8 = 0xff;
        back(5) == Some(CALL)
            || (2..=7).any(|count| {
                back(count) == Some(INDIRECT)
                    && back(count - 1).is_some_and(|modifier| modifier >> 3 & 7 == 2)
            })
    }
}

/// Whether a thread is in this code, will return to it, or was interrupted in it by a signal handler.
///
/// If the addresses that signal handlers return to are unknown, every word that points to it counts.
pub(crate) fn is_code_in_use(
    stacks: &Stacks<'_>,
    memory: &ProcessMemory,
    threads: &[StoppedThread],
    code: &[KnownCode],
) -> bool {
    let find = |address: u64| code.iter().find(|code| code.contains(address));
    let every_word = stacks.signal_returns.is_empty();
    threads.iter().any(|thread| {
        let mut used = find(thread.registers.rip).is_some();
        stacks.visit(memory, thread, |word, is_saved| {
            if let Some(code) = find(word) {
                used |= is_saved || every_word || code.follows_call(word);
            }
        });
        used
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn return_addresses_are_distinguished_from_other_words() {
        // nop; call near; nop; call [rax]; nop; call [rip+0]; ret
        let bytes =
            vec![0x90, 0xe8, 1, 2, 3, 4, 0x90, 0xff, 0x10, 0x90, 0xff, 0x15, 0, 0, 0, 0, 0xc3];
        let code = KnownCode { start: 0x1000, bytes };
        let found: Vec<u64> =
            (0x0fff..0x1020).filter(|address| code.follows_call(*address)).collect();
        assert!([0x1006, 0x1009, 0x1010].iter().all(|address| found.contains(address)));
        assert!(![0x1000, 0x1001, 0x1007].iter().any(|address| found.contains(address)));
    }
}
