//! Threads in uninterruptible sleep, such as in `fsync`, which cannot be stopped.
//!
//! A thread that was seized and interrupted executes no instruction of the program before it has
//! stopped: the kernel handles the interruption when the thread returns from the kernel. So as long as
//! it is traced, a thread that is in a system call stays there, and the registers that it returns with
//! are those that it entered with. The kernel shows two of them, the stack pointer and the instruction
//! pointer.

use std::fs;

use super::raw::Registers;
use crate::arch;
use crate::threads::{is_kernel_worker, thread_state};

/// System calls that a thread may be left in: they wait for a device or a lock of the kernel, start no
/// thread or process, change no register but that of the result, and are not ended by the end of tracing.
/// None has the number of another call in the 32-bit interface that does.
const MAY_BE_LEFT: [i64; 24] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync,
    libc::SYS_syncfs,
    libc::SYS_sync_file_range,
    libc::SYS_msync,
    libc::SYS_truncate,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_copy_file_range,
    libc::SYS_io_submit,
    libc::SYS_openat,
    arch::SYS_UNLINK,
    arch::SYS_RENAME,
];

/// Whether threads in uninterruptible sleep are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockedThreads {
    /// They are left there if that is safe; most of their registers are unknown.
    Leave,
    /// They are waited for.
    Wait,
}

/// A thread that was left in a system call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockedThread {
    /// Only the stack pointer and the instruction pointer are known; all others are 0.
    pub(crate) registers: Registers,
}

impl BlockedThread {
    /// A thread that was seized and interrupted; `None` if it is not in uninterruptible sleep, or not in
    /// one of [`MAY_BE_LEFT`]. A worker of the kernel executes nothing of the program in any case.
    pub(super) fn of(pid: u32, tid: i32) -> Option<Self> {
        if thread_state(pid, tid) != Some(b'D') {
            return None;
        }
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
        parse(&text, is_kernel_worker(pid, tid))
    }
}

/// Parses `/proc/PID/task/TID/syscall`: number, six arguments, stack pointer, instruction pointer. Those of a
/// worker of the kernel are those of the thread that it was started for, but for both pointers, which are 0.
fn parse(text: &str, is_worker: bool) -> Option<BlockedThread> {
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    let [call, .., rsp, rip] = fields[..] else { return None };
    let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let (rsp, rip) = (number(rsp)?, number(rip)?);
    let never_returns = is_worker && (rsp, rip) == (0, 0);
    let is_left = fields.len() == 9 && (never_returns || MAY_BE_LEFT.contains(&call.parse().ok()?));
    // SAFETY: a structure of numbers.
    let zero: Registers = unsafe { std::mem::zeroed() };
    is_left.then_some(BlockedThread { registers: Registers { rip, rsp, ..zero } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_threads_in_known_system_calls_are_left() {
        let text =
            |call: &str| format!("{call} 0x3 0x0 0x0 0x0 0x0 0x0 0x7ffe00001000 0x7f0000002000\n");
        let fsync = parse(&text("74"), false).unwrap();
        assert_eq!(
            (fsync.registers.rsp, fsync.registers.rip),
            (0x7ffe_0000_1000, 0x7f00_0000_2000)
        );
        // vfork, clone, execve, a page fault.
        for call in ["58", "56", "59", "-1"] {
            assert!(parse(&text(call), false).is_none(), "{call}");
            assert!(parse(&text(call), true).is_none(), "{call}");
        }
        // io_uring_enter.
        let worker = "426 0x3 0x0 0x0 0x0 0x0 0x0 0x0 0x0\n";
        assert!(parse(worker, true).is_some() && parse(worker, false).is_none());
        for damaged in ["running\n", "", "74 0x7ffe00001000 0x7f0000002000", "74 1 2 3 4 5 6 7 8"] {
            assert!(parse(damaged, true).is_none(), "{damaged}");
        }
    }

    #[test]
    fn no_call_of_the_32_bit_interface_that_starts_or_replaces_code_is_left() {
        // fork, execve, vfork, clone, sigreturn, rt_sigreturn, clone3, execveat.
        let dangerous = [2, 11, 190, 120, 119, 173, 435, 358];
        assert!(!dangerous.iter().any(|call| MAY_BE_LEFT.contains(call)));
    }
}
