//! What the stacks of stopped threads refer to.

use std::ops::Range;

use super::session::StoppedThread;
use crate::LiveError;
use crate::maps::Maps;
use crate::memory::ProcessMemory;
use crate::process::Process;

/// What is needed to read stacks; made before the stop.
#[derive(Debug)]
pub(crate) struct Stacks<'a> {
    maps: Maps,
    /// Where signal handlers return to, ascending.
    restorers: &'a [u64],
}

/// How the two C libraries of Linux return from signal handlers: `mov $15, %rax; syscall`.
const RESTORERS: [&[u8]; 2] =
    [&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05], &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05]];

/// The places in a process's C library that signal handlers return to, ascending.
///
/// # Errors
/// The process is gone.
pub(crate) fn restorers(pid: u32, memory: &ProcessMemory) -> Result<Vec<u64>, LiveError> {
    let maps = Maps::of(pid)?;
    let mut found = Vec::new();
    let code = maps
        .all()
        .iter()
        .filter(|mapping| mapping.executable && mapping.readable && is_c_library(&mapping.name));
    for mapping in code {
        let size = usize::try_from(mapping.range.end - mapping.range.start).unwrap_or(usize::MAX);
        let bytes = memory.read(mapping.range.start, size)?;
        let system_calls = bytes.windows(2).enumerate().filter(|(_, pair)| **pair == [0x0f, 0x05]);
        for (offset, _) in system_calls {
            let end = offset + 2;
            let starts = RESTORERS.iter().filter_map(|pattern| {
                let start = end.checked_sub(pattern.len())?;
                (bytes[start..end] == **pattern).then_some(mapping.range.start + start as u64)
            });
            found.extend(starts);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// From the return address of a signal handler to the saved stack pointer of what it interrupted.
const SAVED_RSP: u64 = 168;
/// The same for its saved instruction pointer.
const SAVED_RIP: u64 = 176;

/// A thread may go on below its stack pointer by this much without moving it.
const RED_ZONE: u64 = 128;

/// Stacks are at most so deep; more is not read at once.
const CHUNK_WORDS: usize = 64 << 10;

/// Signal handlers on stacks of their own, one in the other, are followed so far.
const STACKS_PER_THREAD: usize = 8;

impl<'a> Stacks<'a> {
    /// The present stacks of a process.
    ///
    /// # Errors
    /// The process is gone.
    pub(crate) fn of(process: &'a Process) -> Result<Self, LiveError> {
        Ok(Self { maps: process.maps()?, restorers: process.restorers()? })
    }

    /// Hands every word on the thread's stacks to `see`, the red zone included; once more, and
    /// marked, those at which interrupted code goes on behind a signal handler. Says whether the
    /// thread is inside a signal handler.
    pub(crate) fn visit(
        &self,
        memory: &ProcessMemory,
        standing: &StoppedThread,
        mut see: impl FnMut(u64, bool),
    ) -> bool {
        let mut starts = vec![standing.registers.rsp - RED_ZONE.min(standing.registers.rsp)];
        let mut visited: Vec<Range<u64>> = Vec::new();
        let mut in_handler = false;
        while let Some(start) = starts.pop() {
            let start = start / 8 * 8;
            // A stack that is not on the list was made after it: read what can be read.
            let end = self.end_of_stack(start);
            if visited.iter().any(|range| range.contains(&start)) {
                continue;
            }
            visited.push(start..end);
            let mut at = start;
            while at < end {
                let wanted = usize::try_from((end - at) / 8).unwrap_or(CHUNK_WORDS);
                let words = memory.words(at, wanted.clamp(1, CHUNK_WORDS));
                for (index, word) in words.iter().enumerate() {
                    see(*word, false);
                    if self.restorers.binary_search(word).is_ok() {
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
                if words.len() < wanted.min(CHUNK_WORDS) {
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

fn is_c_library(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or_default();
    ["libc.so", "libc-2", "libpthread", "ld-musl", "libc.musl"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// Which of these ranges (ascending, apart from each other) some thread is in, or may come back
/// to: some word on its stacks points there. In the order of `ranges`.
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
    for standing in threads {
        see(standing.registers.rip);
        stacks.visit(memory, standing, |word, _| see(word));
    }
    used
}

/// Code whose bytes are known, so that a word on a stack can be told from a return address.
#[derive(Debug)]
pub(crate) struct KnownCode {
    pub(crate) start: u64,
    pub(crate) bytes: Vec<u8>,
}

impl KnownCode {
    fn contains(&self, address: u64) -> bool {
        (self.start..self.start + self.bytes.len() as u64).contains(&address)
    }

    /// Whether the bytes before an address can be read as a call.
    fn follows_call(&self, address: u64) -> bool {
        let Some(before) = address
            .checked_sub(self.start)
            .and_then(|offset| self.bytes.get(..usize::try_from(offset).ok()?))
        else {
            return false;
        };
        let back = |count: usize| before.len().checked_sub(count).map(|at| before[at]);
        // `call` near; or through a register or memory: 0xff with 2 in the middle of the second
        // byte, and up to five more.
        const CALL: u8 = 0xe8;
        const INDIRECT: u8 = 0xff;
        back(5) == Some(CALL)
            || (2..=7).any(|count| {
                back(count) == Some(INDIRECT)
                    && back(count - 1).is_some_and(|modifier| modifier >> 3 & 7 == 2)
            })
    }
}

/// Whether some thread is in this code, will return to it, or was interrupted in it by a signal
/// handler that it is in.
///
/// Where no signal handler's way back is known, every word that points there counts.
pub(crate) fn is_code_in_use(
    stacks: &Stacks<'_>,
    memory: &ProcessMemory,
    threads: &[StoppedThread],
    code: &[KnownCode],
) -> bool {
    let find = |address: u64| code.iter().find(|code| code.contains(address));
    let every_word = stacks.restorers.is_empty();
    threads.iter().any(|standing| {
        let mut used = find(standing.registers.rip).is_some();
        stacks.visit(memory, standing, |word, is_saved| {
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
    fn return_addresses_are_told_from_other_words() {
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
