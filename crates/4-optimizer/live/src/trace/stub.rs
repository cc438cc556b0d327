//! Machine code that a thread runs for dbdyno and that restores the thread's state itself, and memory for it.
//!
//! A stub contains all register values of the thread as constants and ends with a jump to where the
//! thread was. So the thread never depends on dbdyno: if dbdyno is killed right after it has set the
//! thread's instruction pointer, the thread runs the stub and continues as before. A stub does not
//! use the thread's stack.

use std::ops::Range;

use crate::LiveError;
use crate::journal::{BorrowedCode, PatchedMapping};
use crate::memory::{Mapping, Maps, ProcessMemory};
use crate::patch::PAGE;
use crate::trace::raw::Registers;

/// A system call and its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SystemCall {
    pub(crate) number: i64,
    pub(crate) arguments: [u64; 6],
}

/// A call of a function of the process, with up to three arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FunctionCall {
    pub(crate) address: u64,
    pub(crate) arguments: [u64; 3],
}

/// Memory for a stub that calls functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StubData {
    /// Start of the stack, which grows down. Aligned to 16 bytes.
    pub(crate) stack_top: u64,
    /// Space for the vector registers. Aligned to 64 bytes and initially zero.
    pub(crate) vectors: u64,
    /// Address of a word that counts the called functions.
    pub(crate) counter: u64,
}

const SIG_SETMASK: u64 = 2;

/// Register numbers in instruction encoding.
const RAX: u8 = 0;
const RCX: u8 = 1;
const RDX: u8 = 2;
const RBX: u8 = 3;
const RSP: u8 = 4;
const RBP: u8 = 5;
const RSI: u8 = 6;
const RDI: u8 = 7;
const R8: u8 = 8;
const R9: u8 = 9;
const R10: u8 = 10;
const R11: u8 = 11;
const R12: u8 = 12;
const R13: u8 = 13;
const R14: u8 = 14;
const R15: u8 = 15;

struct Code(Vec<u8>);

impl Code {
    /// `movabs register, value`
    fn load(&mut self, register: u8, value: u64) {
        self.0.extend([0x48 | (register >> 3), 0xb8 | (register & 7)]);
        self.0.extend(value.to_le_bytes());
    }

    fn syscall(&mut self, call: &SystemCall) {
        for (register, value) in [RDI, RSI, RDX, R10, R8, R9].into_iter().zip(call.arguments) {
            self.load(register, value);
        }
        self.load(RAX, call.number.cast_unsigned());
        self.0.extend([0x0f, 0x05]);
    }

    /// Loads registers, then jumps: `jmp [rip]`, followed by the address.
    fn finish(mut self, registers: &[(u8, u64)], address: u64) -> Vec<u8> {
        for &(register, value) in registers {
            self.load(register, value);
        }
        self.0.extend([0xff, 0x25, 0, 0, 0, 0]);
        self.0.extend(address.to_le_bytes());
        self.0
    }
}

/// The call that restores the signal mask at an address.
pub(super) fn mask_call(mask: u64) -> SystemCall {
    let arguments = [SIG_SETMASK, mask, 0, 8, 0, 0];
    SystemCall { number: libc::SYS_rt_sigprocmask, arguments }
}

/// A stub that makes system calls, ignoring their results, then continues with `after`.
///
/// `address` is the address of the stub; `mask` the thread's signal mask.
pub(crate) fn system_calls(
    address: u64,
    calls: &[SystemCall],
    after: &Registers,
    mask: u64,
) -> Vec<u8> {
    let mut code = Code(mask.to_le_bytes().to_vec());
    for call in calls {
        code.syscall(call);
    }
    code.syscall(&mask_call(address));
    // System calls change no other registers, and not the flags.
    let registers = [
        (RAX, after.rax),
        (RDI, after.rdi),
        (RSI, after.rsi),
        (RDX, after.rdx),
        (R10, after.r10),
        (R8, after.r8),
        (R9, after.r9),
        (RCX, after.rcx),
        (R11, after.r11),
    ];
    code.finish(&registers, after.rip)
}

/// A stub that calls functions on its own stack, then continues with `after`.
pub(crate) fn functions(
    address: u64,
    functions: &[FunctionCall],
    workspace: &StubData,
    after: &Registers,
    mask: u64,
) -> Vec<u8> {
    let mut code = Code(mask.to_le_bytes().to_vec());
    code.load(RSP, workspace.stack_top);
    // All vector state of the CPU.
    code.load(RAX, u64::MAX);
    code.load(RDX, u64::MAX);
    code.load(RDI, workspace.vectors);
    code.0.extend([0x48, 0x0f, 0xae, 0x27]); // xsave64 [rdi]
    code.0.push(0xfc); // cld
    for function in functions {
        for (register, value) in [RDI, RSI, RDX].into_iter().zip(function.arguments) {
            code.load(register, value);
        }
        code.load(RAX, function.address);
        code.0.extend([0xff, 0xd0]); // call rax
        code.load(RAX, workspace.counter);
        code.0.extend([0xff, 0x00]); // inc dword [rax]
    }
    code.load(RAX, u64::MAX);
    code.load(RDX, u64::MAX);
    code.load(RDI, workspace.vectors);
    code.0.extend([0x48, 0x0f, 0xae, 0x2f]); // xrstor64 [rdi]
    code.load(RAX, after.eflags);
    code.0.extend([0x50, 0x9d]); // push rax; popfq
    // From here on signals may arrive: their handlers, and what they fork, must find the thread's own stack. A system call
    // keeps the flags.
    code.load(RSP, after.rsp);
    code.syscall(&mask_call(address));
    let registers = [
        (RAX, after.rax),
        (RBX, after.rbx),
        (RCX, after.rcx),
        (RDX, after.rdx),
        (RSI, after.rsi),
        (RDI, after.rdi),
        (RBP, after.rbp),
        (R8, after.r8),
        (R9, after.r9),
        (R10, after.r10),
        (R11, after.r11),
        (R12, after.r12),
        (R13, after.r13),
        (R14, after.r14),
        (R15, after.r15),
    ];
    code.finish(&registers, after.rip)
}

/// Offset of the code in a stub, which starts with the thread's signal mask.
pub(crate) const ENTRY: u64 = 8;

/// Size in bytes of a stub that makes `calls` system calls.
pub(crate) const fn size_of_system_calls(calls: usize) -> usize {
    8 + (calls + 1) * 72 + 9 * 10 + 14
}

/// Size in bytes of a stub that calls `functions` functions.
pub(crate) const fn size_of_functions(functions: usize) -> usize {
    345 + functions * 54
}

const PROGRAM_HEADER: usize = 56;
const PT_LOAD: u32 = 1;
const PF_X: u32 = 1;

/// Finds `size` executable bytes that the process never uses: the last page of a code segment is mapped
/// completely, but unused after the end of the segment.
pub(crate) fn find_unused_code(
    pid: u32,
    memory: &ProcessMemory,
    size: usize,
) -> Result<BorrowedCode, LiveError> {
    let maps = Maps::of(pid)?;
    for header in maps.all().iter().filter(|mapping| starts_file(mapping)) {
        for tail in tails(memory, &maps, header).unwrap_or_default() {
            // Aligned for the word at its start.
            let start = tail.start.next_multiple_of(16);
            if start + size as u64 <= tail.end {
                let mapping = maps.at(start).map(PatchedMapping::at);
                return Ok(BorrowedCode {
                    address: start,
                    original: memory.read(start, size)?,
                    mapping,
                });
            }
        }
    }
    Err(LiveError::refused(pid, "its code segments have no unused space for a few instructions"))
}

fn starts_file(mapping: &Mapping) -> bool {
    mapping.inode != 0 && mapping.offset == 0 && mapping.readable
}

/// The unused ends of the executable segments of a file.
fn tails(memory: &ProcessMemory, maps: &Maps, header: &Mapping) -> Option<Vec<Range<u64>>> {
    let start = memory.read(header.range.start, 64).ok()?;
    let number = |at: usize, count: usize| {
        let bytes = start.get(at..at + count)?;
        Some(bytes.iter().rev().fold(0_u64, |n, byte| n << 8 | u64::from(*byte)))
    };
    if start.get(..5)? != [0x7f, b'E', b'L', b'F', 2] {
        return None;
    }
    let (offset, count) = (number(32, 8)?, number(56, 2)?);
    let headers = memory
        .read(header.range.start + offset, usize::try_from(count).ok()? * PROGRAM_HEADER)
        .ok()?;
    let loads: Vec<(u32, u64, u64)> = headers
        .chunks_exact(PROGRAM_HEADER)
        .filter_map(|header| {
            let word =
                |at: usize| Some(u64::from_le_bytes(header.get(at..at + 8)?.try_into().ok()?));
            let kind = word(0)?;
            (kind as u32 == PT_LOAD).then_some(((kind >> 32) as u32, word(16)?, word(40)?))
        })
        .collect();
    let bias = header.range.start.wrapping_sub(loads.first()?.1 / PAGE * PAGE);
    let tails = loads.iter().filter(|(flags, ..)| flags & PF_X != 0).filter_map(|(_, at, size)| {
        let end = bias.wrapping_add(at + size);
        let mapping = maps.at(end.checked_sub(1)?)?;
        let same_file = mapping.executable && mapping.inode == header.inode;
        let tail = end..end.next_multiple_of(PAGE).min(mapping.range.end);
        same_file.then_some(tail)
    });
    Some(tails.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stub_has_the_computed_size() {
        // SAFETY: a structure of numbers.
        let after: Registers = unsafe { std::mem::zeroed() };
        let call = SystemCall { number: 9, arguments: [1, 2, 3, 4, 5, 6] };
        for calls in [vec![], vec![call], vec![call; 3]] {
            let stub = system_calls(0x1000, &calls, &after, 0);
            assert_eq!(stub.len(), size_of_system_calls(calls.len()));
        }
        let call = FunctionCall { address: 0x2000, arguments: [1, 2, 3] };
        let data = StubData { stack_top: 0x3000, vectors: 0x4000, counter: 0x5000 };
        for calls in [vec![], vec![call], vec![call; 3]] {
            let stub = functions(0x1000, &calls, &data, &after, 0);
            assert_eq!(stub.len(), size_of_functions(calls.len()));
        }
    }
}
