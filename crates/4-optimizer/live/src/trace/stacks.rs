//! Code addresses on the stacks of stopped threads.

use std::ops::Range;

use super::raw::Registers;
use crate::LiveError;
use crate::memory::{Maps, ProcessMemory, WORD, words_of};
use crate::process::Process;

/// Data for reading stacks, collected before the threads are stopped.
#[derive(Debug)]
pub(crate) struct Stacks<'a> {
    maps: Maps,
    /// Addresses that signal handlers return to, ascending.
    signal_returns: &'a [u64],
}

/// Offset from the return address of a signal handler to the first saved register.
const SAVED_REGISTERS: u64 = 48;
/// Number of saved registers.
const SAVED_COUNT: usize = 17;
/// Index of the stack pointer among the saved registers; the instruction pointer is the next one.
const SAVED_RSP: usize = 15;
const SAVED_RIP: usize = 16;

/// What a word on a stack is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StackWord {
    /// Anything: a return address, for instance.
    Any,
    /// A general register saved by a signal handler.
    SavedRegister,
    /// An instruction pointer saved by a signal handler.
    SavedInstruction,
}

/// Bytes below the stack pointer that a thread may use.
const RED_ZONE: u64 = 128;

/// Number of words per read.
const CHUNK_WORDS: usize = 8 << 10;

/// Bytes of a thread's control block that may hold addresses of code, such as that of the function that the thread
/// starts with.
const CONTROL_BLOCK: u64 = 4 << 10;

/// Maximum number of nested signal stacks per thread.
const STACKS_PER_THREAD: usize = 8;

impl<'a> Stacks<'a> {
    /// Prepares reading the stacks of a process.
    pub(crate) fn of(process: &'a Process) -> Result<Self, LiveError> {
        Ok(Self { maps: process.maps()?, signal_returns: process.signal_returns()? })
    }

    /// Passes every word on the thread's stacks, including the red zone, to `see`; those saved by a signal
    /// handler again. Returns whether the thread is in a signal handler; `None` if `is_over` returned true
    /// before all words were read.
    pub(crate) fn visit(
        &self,
        memory: &ProcessMemory,
        registers: &Registers,
        is_over: impl Fn() -> bool,
        mut see: impl FnMut(u64, StackWord),
    ) -> Option<bool> {
        let mut starts = vec![registers.rsp.saturating_sub(RED_ZONE)];
        let mut visited: Vec<Range<u64>> = Vec::new();
        let mut buffer = Vec::new();
        let mut in_handler = false;
        while let Some(start) = starts.pop() {
            let start = start / WORD as u64 * WORD as u64;
            // A stack without a mapping is newer than the list: read as much as possible.
            let end = self.end_of_stack(start, registers.fs_base);
            if visited.iter().any(|range| range.contains(&start)) {
                continue;
            }
            visited.push(start..end);
            let mut at = start;
            while at < end {
                if is_over() {
                    return None;
                }
                let left = usize::try_from(end - at).unwrap_or(usize::MAX) / WORD;
                let size = left.clamp(1, CHUNK_WORDS) * WORD;
                buffer.resize(size, 0);
                let bytes = memory.read_up_to(at, &mut buffer);
                for (index, word) in words_of(bytes).enumerate() {
                    see(word, StackWord::Any);
                    if self.is_signal_return(word) {
                        in_handler = true;
                        let frame = at + (index * WORD) as u64;
                        let saved = memory.words(frame + SAVED_REGISTERS, SAVED_COUNT);
                        for (register, word) in saved.iter().enumerate() {
                            see(
                                *word,
                                match register {
                                    SAVED_RIP => StackWord::SavedInstruction,
                                    _ => StackWord::SavedRegister,
                                },
                            );
                        }
                        if let Some(rsp) = saved.get(SAVED_RSP)
                            && visited.len() + starts.len() < STACKS_PER_THREAD
                        {
                            starts.push(rsp.saturating_sub(RED_ZONE));
                        }
                    }
                }
                if bytes.len() < size {
                    break;
                }
                at += bytes.len() as u64;
            }
        }
        Some(in_handler)
    }

    fn is_signal_return(&self, word: u64) -> bool {
        // Most words are no addresses of code: this is called for each word of each stack.
        let (Some(first), Some(last)) = (self.signal_returns.first(), self.signal_returns.last())
        else {
            return false;
        };
        (*first..=*last).contains(&word) && self.signal_returns.binary_search(&word).is_ok()
    }

    /// The end of the stack that contains an address. A stack ends with its mapping, which may go on with a large heap;
    /// or with the thread's control block at `fs_base`, which is at its top, or elsewhere, but never within the stack.
    fn end_of_stack(&self, start: u64, fs_base: u64) -> u64 {
        const UNKNOWN: u64 = 8 << 20;
        let mapping = self.maps.at(start).or_else(|| self.maps.at(start + RED_ZONE + 8));
        let end = mapping.map_or(start.saturating_add(UNKNOWN), |mapping| mapping.range.end);
        if (start..end).contains(&fs_base) { end.min(fs_base + CONTROL_BLOCK) } else { end }
    }
}

/// The instruction pointer and the general registers, except the stack pointer.
fn addresses(all: &Registers) -> [u64; 16] {
    [
        all.rip, all.rax, all.rbx, all.rcx, all.rdx, all.rsi, all.rdi, all.rbp, all.r8, all.r9,
        all.r10, all.r11, all.r12, all.r13, all.r14, all.r15,
    ]
}

/// For each of these ranges (ascending, disjoint), whether a thread is in it, or one of its registers or a
/// word on its stacks points to it. `None`: as for [`Stacks::visit`].
pub(crate) fn ranges_in_use(
    stacks: &Stacks<'_>,
    memory: &ProcessMemory,
    threads: &[Registers],
    ranges: &[Range<u64>],
    is_over: impl Fn() -> bool,
) -> Option<Vec<bool>> {
    let mut used = vec![false; ranges.len()];
    let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else { return Some(used) };
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
        addresses(thread).into_iter().for_each(&mut see);
        stacks.visit(memory, thread, &is_over, |word, _| see(word))?;
    }
    Some(used)
}

/// Code with its bytes, to distinguish return addresses from other words.
#[derive(Debug)]
pub(crate) struct KnownCode {
    pub(crate) start: u64,
    pub(crate) bytes: Vec<u8>,
    /// Addresses in it that are called through pointers, ascending: a word on a stack may be one of them.
    pub(crate) called: Vec<u64>,
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

/// Whether a thread is in this code, will return to it, was interrupted in it by a signal handler, or has
/// its address in a register: such as the target of a jump that it is about to execute.
///
/// If the addresses that signal handlers return to are unknown, every word that points to it counts. `None`: as for
/// [`Stacks::visit`].
pub(crate) fn is_code_in_use(
    stacks: &Stacks<'_>,
    memory: &ProcessMemory,
    threads: &[Registers],
    code: &[KnownCode],
    is_over: impl Fn() -> bool,
) -> Option<bool> {
    let find = |address: u64| code.iter().find(|code| code.contains(address));
    let every_word = stacks.signal_returns.is_empty();
    let mut used = false;
    for thread in threads {
        used |= addresses(thread).into_iter().any(|word| find(word).is_some());
        stacks.visit(memory, thread, &is_over, |word, kind| {
            if let Some(code) = find(word) {
                used |= kind != StackWord::Any
                    || every_word
                    || code.follows_call(word)
                    || code.called.binary_search(&word).is_ok();
            }
        })?;
        if used {
            break;
        }
    }
    Some(used)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A stack that ends where it is mapped: no word on it is read.
    fn no_stacks() -> Stacks<'static> {
        Stacks { maps: Maps::default(), signal_returns: &[1] }
    }

    fn zero() -> Registers {
        // SAFETY: a structure of numbers.
        unsafe { std::mem::zeroed() }
    }

    fn in_time() -> bool {
        false
    }

    #[test]
    fn stack_in_a_large_mapping_is_read_until_the_time_is_over() {
        let memory = ProcessMemory::open(std::process::id()).unwrap();
        let heap = vec![1_u64; 8 * CHUNK_WORDS];
        let start = heap.as_ptr() as u64;
        let text =
            format!("{start:x}-{:x} rw-p 00000000 00:00 0 \n", start + 8 * heap.len() as u64);
        let stacks = Stacks { maps: Maps::parse(&text).unwrap(), signal_returns: &[2] };
        let registers = Registers { rsp: start + RED_ZONE, ..zero() };
        let visited = |chunks: usize| {
            let (checks, mut words) = (Cell::new(0), 0);
            let is_over = || checks.replace(checks.get() + 1) == chunks;
            let found = stacks.visit(&memory, &registers, is_over, |_, _| words += 1);
            (found, words)
        };
        assert_eq!(visited(2), (None, 2 * CHUNK_WORDS));
        assert_eq!(visited(100), (Some(false), heap.len()));
        // Unknown is not the same as unused.
        let range = 0x5_0000..0x5_0040;
        let ranges = std::slice::from_ref(&range);
        assert_eq!(ranges_in_use(&stacks, &memory, &[registers], ranges, || true), None);
        assert_eq!(is_code_in_use(&stacks, &memory, &[registers], &[], || true), None);
    }

    #[test]
    fn stack_ends_with_the_control_block_of_its_thread() {
        let memory = ProcessMemory::open(std::process::id()).unwrap();
        let heap = vec![1_u64; 4 * CHUNK_WORDS];
        let start = heap.as_ptr() as u64;
        let end = start + 8 * heap.len() as u64;
        let text = format!("{start:x}-{end:x} rw-p 00000000 00:00 0 \n");
        let stacks = Stacks { maps: Maps::parse(&text).unwrap(), signal_returns: &[] };
        let visited = |fs_base: u64| {
            let mut words = 0;
            let registers = Registers { rsp: start + RED_ZONE, fs_base, ..zero() };
            assert_eq!(stacks.visit(&memory, &registers, in_time, |_, _| words += 1), Some(false));
            words * WORD as u64
        };
        assert_eq!(visited(start + 8 * 1000), 8 * 1000 + CONTROL_BLOCK);
        assert_eq!(visited(end - 64), end - start, "not over the end of the mapping");
        for elsewhere in [0, start - 64, end, end + 64] {
            assert_eq!(visited(elsewhere), end - start, "{elsewhere:#x}");
        }
    }

    #[test]
    fn code_whose_address_is_in_a_register_is_in_use() {
        let memory = ProcessMemory::open(std::process::id()).unwrap();
        let code = [KnownCode { start: 0x5_0000, bytes: vec![0x90; 64], called: vec![0x5_0020] }];
        let range = 0x5_0000..0x5_0040;
        let is_used = |registers: Registers| {
            let threads = [registers];
            let used = is_code_in_use(&no_stacks(), &memory, &threads, &code, in_time).unwrap();
            let ranges = std::slice::from_ref(&range);
            let found = ranges_in_use(&no_stacks(), &memory, &threads, ranges, in_time);
            assert_eq!(found.unwrap(), [used]);
            used
        };
        assert!(!is_used(zero()));
        let at = 0x5_0010;
        assert!(is_used(Registers { rip: at, ..zero() }));
        assert!(is_used(Registers { rax: at, ..zero() }));
        assert!(is_used(Registers { rbp: at, ..zero() }));
        assert!(is_used(Registers { r15: at, ..zero() }));
        assert!(!is_used(Registers { r11: 0x5_0040, ..zero() }));
    }

    #[test]
    fn code_whose_address_a_signal_handler_saved_is_in_use() {
        const RETURN: u64 = 0x7_0000;
        let memory = ProcessMemory::open(std::process::id()).unwrap();
        let code = [KnownCode { start: 0x5_0000, bytes: vec![0x90; 64], called: vec![0x5_0020] }];
        let is_used = |index: usize, word: u64| {
            // The frame of a handler: its return address, and the context that it returns to.
            let mut stack = Box::new([0_u64; 64]);
            (stack[20], stack[20 + index]) = (RETURN, word);
            let start = stack.as_ptr() as u64;
            let text = format!("{start:x}-{:x} rw-p 00000000 00:00 0 \n", start + 8 * 64);
            let stacks = Stacks { maps: Maps::parse(&text).unwrap(), signal_returns: &[RETURN] };
            let registers = Registers { rsp: start + RED_ZONE, ..zero() };
            is_code_in_use(&stacks, &memory, &[registers], &code, in_time).unwrap()
        };
        // r8, the first saved register, to rip, the last one; rsp is followed as another stack.
        let saved: Vec<usize> = (1..30).filter(|index| is_used(*index, 0x5_0010)).collect();
        assert_eq!(saved, (6..=22).collect::<Vec<_>>());
        assert!(!is_used(10, 0x6_0000));
        // Outside of the frame, only what is called through pointers.
        assert!(is_used(40, 0x5_0020) && !is_used(40, 0x5_0010));
    }

    #[test]
    fn return_addresses_are_distinguished_from_other_words() {
        // nop; call near; nop; call [rax]; nop; call [rip+0]; ret
        let bytes =
            vec![0x90, 0xe8, 1, 2, 3, 4, 0x90, 0xff, 0x10, 0x90, 0xff, 0x15, 0, 0, 0, 0, 0xc3];
        let code = KnownCode { start: 0x1000, bytes, called: Vec::new() };
        let found: Vec<u64> =
            (0x0fff..0x1020).filter(|address| code.follows_call(*address)).collect();
        assert!([0x1006, 0x1009, 0x1010].iter().all(|address| found.contains(address)));
        assert!(![0x1000, 0x1001, 0x1007].iter().any(|address| found.contains(address)));
    }
}
