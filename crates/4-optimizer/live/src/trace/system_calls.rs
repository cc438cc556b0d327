//! System calls and restartable sequences of threads that are stopped, or that cannot be.
//!
//! The kernel restarts most calls when the thread resumes, and marks them with internal result codes. A few fail with
//! `EINTR` although no signal handler ran, which programs may not expect.

use std::fs;

use crate::arch;
use crate::memory::ProcessMemory;
use crate::process::{is_kernel_worker, thread_state};
use crate::trace::raw::{self, Registers};
use crate::trace::session::StoppedThread;

const EINTR: i64 = -4;
const ERESTARTSYS: i64 = -512;
const ERESTARTNOINTR: i64 = -513;
const ERESTARTNOHAND: i64 = -514;
const ERESTART_RESTARTBLOCK: i64 = -516;
/// Length of `syscall` and of `int 0x80`.
const SYSCALL_LENGTH: u64 = 2;

/// System calls that fail with `EINTR` after a stop, from signal(7): waits, reading from inotify, and
/// transfers over sockets with a timeout (`SO_RCVTIMEO`, `SO_SNDTIMEO`). They can be restarted, because
/// they have had no effect when they return `EINTR`: a transfer that was interrupted after a part returns
/// the size of that part.
const NOT_RESTARTED: [i64; 21] = [
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    arch::SYS_EPOLL_WAIT,
    libc::SYS_io_getevents,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_io_uring_enter,
];

/// The system call of a stopped thread that was interrupted, if any.
pub(crate) fn interrupted_call(registers: &Registers) -> Option<i64> {
    let call = registers.orig_rax.cast_signed();
    let result = registers.rax.cast_signed();
    let interrupted =
        matches!(result, ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND | ERESTART_RESTARTBLOCK)
            || fails_because_of_stop(registers);
    (call >= 0 && interrupted).then_some(call)
}

/// Whether a system call fails with `EINTR` after a stop.
pub(crate) fn fails_when_stopped(call: i64) -> bool {
    NOT_RESTARTED.contains(&call)
}

/// Whether the system call is about to fail with `EINTR` because of the stop.
fn fails_because_of_stop(registers: &Registers) -> bool {
    registers.rax.cast_signed() == EINTR && fails_when_stopped(registers.orig_rax.cast_signed())
}

/// The registers with which the kernel restarts a system call that would fail with `EINTR` because of
/// the stop; `None` if there is no such call. If a signal is delivered first, the program gets `EINTR`
/// as it would have without the stop.
pub(crate) fn restarted(registers: &Registers) -> Option<Registers> {
    fails_because_of_stop(registers)
        .then(|| Registers { rax: ERESTARTNOHAND.cast_unsigned(), ..*registers })
}

/// The registers with which the thread would resume: what the kernel does at the end of a stop, done
/// manually for a thread that runs a stub first.
pub(crate) fn continuation(registers: &Registers) -> Registers {
    let mut after = *registers;
    if interrupted_call(registers).is_some() {
        after.rip -= SYSCALL_LENGTH;
        after.rax = match registers.rax.cast_signed() {
            ERESTART_RESTARTBLOCK => libc::SYS_restart_syscall.cast_unsigned(),
            _ => registers.orig_rax,
        };
    }
    // For the kernel, the thread is no longer in a system call.
    after.orig_rax = u64::MAX;
    after
}

/// Offset of the pointer to the current sequence in a thread's `struct rseq`.
const CURRENT: u64 = 8;

/// Whether a thread is in a restartable sequence. False on Linux before 5.13, which does not tell.
///
/// The kernel aborts a sequence when the thread returns to user code, unless its instruction pointer was changed meanwhile.
/// A thread that runs a stub first would then continue in the middle of a sequence that another thread has invalidated.
pub(crate) fn is_in_critical_section(memory: &ProcessMemory, thread: &StoppedThread) -> bool {
    thread.is_in_user_code()
        && raw::rseq_address(thread.tid)
            .is_some_and(|area| contains(memory, area, thread.registers.rip))
}

/// Whether the current sequence of the thread with this `struct rseq` contains an address.
fn contains(memory: &ProcessMemory, area: u64, address: u64) -> bool {
    let [current] = memory.words(area.saturating_add(CURRENT), 1)[..] else { return false };
    if current == 0 {
        return false;
    }
    // Version and flags, start, size, address of the abort handler.
    match memory.words(current, 4)[..] {
        [_, start, size, _] => address.wrapping_sub(start) < size,
        _ => false,
    }
}

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

/// Whether threads in uninterruptible sleep, such as in `fsync`, which cannot be stopped, are waited for.
///
/// A thread that was seized and interrupted executes no instruction of the program before it has
/// stopped: the kernel handles the interruption when the thread returns from the kernel. So as long as
/// it is traced, a thread that is in a system call stays there, and the registers that it returns with
/// are those that it entered with. The kernel shows two of them, the stack pointer and the instruction
/// pointer.
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

    fn in_call(call: i64, result: i64) -> Registers {
        // SAFETY: a structure of numbers.
        let zero: Registers = unsafe { std::mem::zeroed() };
        Registers {
            rip: 0x1002,
            orig_rax: call.cast_unsigned(),
            rax: result.cast_unsigned(),
            ..zero
        }
    }

    #[test]
    fn interrupted_system_call_is_restarted() {
        let read = in_call(libc::SYS_read, ERESTARTSYS);
        assert_eq!(interrupted_call(&read), Some(libc::SYS_read));
        let after = continuation(&read);
        assert_eq!((after.rip, after.rax), (0x1000, libc::SYS_read as u64));
        let sleep = in_call(libc::SYS_nanosleep, ERESTART_RESTARTBLOCK);
        assert_eq!(continuation(&sleep).rax, libc::SYS_restart_syscall as u64);
        assert!(restarted(&read).is_none());
    }

    #[test]
    fn finished_system_call_is_not_restarted() {
        let results = [0, 17, -11].map(|result| (libc::SYS_read, result));
        for (call, result) in results.into_iter().chain([(libc::SYS_close, EINTR)]) {
            let finished = in_call(call, result);
            assert_eq!(interrupted_call(&finished), None);
            let after = continuation(&finished);
            assert_eq!((after.rip, after.rax), (0x1002, result.cast_unsigned()));
            assert!(restarted(&finished).is_none());
        }
        let outside = in_call(-1, ERESTARTSYS);
        assert_eq!(interrupted_call(&outside), None);
        assert_eq!(continuation(&outside).rip, 0x1002);
    }

    #[test]
    fn wait_that_a_stop_would_end_is_restarted() {
        let wait = in_call(arch::SYS_EPOLL_WAIT, EINTR);
        assert_eq!(restarted(&wait).map(|r| r.rax.cast_signed()), Some(ERESTARTNOHAND));
        assert_eq!(continuation(&wait).rip, 0x1000);
        // From a socket with a timeout.
        let read = in_call(libc::SYS_read, EINTR);
        assert_eq!(restarted(&read).map(|r| r.rax.cast_signed()), Some(ERESTARTNOHAND));
    }

    #[test]
    fn sequence_contains_its_instructions_only() {
        let memory = ProcessMemory::open(std::process::id()).unwrap();
        let sequence = Box::new([0_u64, 0x1000, 0x20, 0x2000]);
        let mut area = Box::new([0_u64; 4]);
        let is_inside = |area: &[u64; 4], at| contains(&memory, area.as_ptr() as u64, at);
        assert!(!is_inside(&area, 0x1000), "none is current");
        area[1] = sequence.as_ptr() as u64;
        assert!(is_inside(&area, 0x1000) && is_inside(&area, 0x101f));
        assert!(!is_inside(&area, 0x0fff) && !is_inside(&area, 0x1020));
        area[1] = 8;
        assert!(!is_inside(&area, 0x1000), "unreadable");
    }

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
