//! Wrappers around `ptrace` and `waitpid`.
//!
//! All calls must be made on the thread that seized. When that thread ends, for whatever reason, the
//! kernel releases and resumes every thread that it had seized: `PTRACE_O_EXITKILL` is never set.

use std::{io, ptr};

use crate::arch::check;
pub(crate) use crate::arch::{Registers, registers, set_registers};

/// Why a thread is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadStop {
    /// It was interrupted by dbdyno.
    Trap,
    /// This signal is about to be delivered.
    Signal(i32),
    /// Its whole process was stopped, by SIGSTOP for instance.
    Group,
    Ended,
}

/// The event in the status of `waitpid` that `PTRACE_INTERRUPT` and group stops cause.
const EVENT_STOP: i32 = 128;

/// A request that takes a number only.
fn request(request: libc::c_uint, tid: i32, number: i32) -> io::Result<()> {
    let nothing = ptr::null_mut::<libc::c_void>();
    // SAFETY: takes numbers only.
    check(unsafe { libc::ptrace(request, tid, nothing, libc::c_long::from(number)) })
}

pub(crate) fn seize(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, tid, 0)
}

pub(crate) fn interrupt(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0)
}

/// Resumes a stopped thread, still seized.
pub(crate) fn resume(tid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, signal)
}

/// Releases a stopped thread, and delivers a signal to it unless that is 0.
pub(crate) fn detach(tid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, signal)
}

/// Not in the libc crate; from `linux/elf.h`.
const NT_X86_XSTATE: usize = 0x202;
/// Size of a buffer for the vector registers of any CPU, in bytes.
const MAX_VECTORS: usize = 64 << 10;

/// All floating-point and vector registers of a stopped thread, in the format of `XSAVE`.
pub(crate) fn vector_registers(tid: i32) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0_u8; MAX_VECTORS];
    let mut buffer = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: the kernel writes at most `iov_len` bytes to the buffer, and their number to `iov_len`.
    check(unsafe { libc::ptrace(libc::PTRACE_GETREGSET, tid, NT_X86_XSTATE, &raw mut buffer) })?;
    bytes.truncate(buffer.iov_len);
    Ok(bytes)
}

/// Sets what [`vector_registers`] returned.
pub(crate) fn set_vector_registers(tid: i32, bytes: &[u8]) -> io::Result<()> {
    let base = bytes.as_ptr().cast_mut().cast();
    let buffer = libc::iovec { iov_base: base, iov_len: bytes.len() };
    // SAFETY: the kernel only reads the buffer.
    check(unsafe { libc::ptrace(libc::PTRACE_SETREGSET, tid, NT_X86_XSTATE, &raw const buffer) })
}

/// The blocked signals of a stopped thread, as a bit mask.
pub(crate) fn signal_mask(tid: i32) -> io::Result<u64> {
    let mut mask = 0_u64;
    // SAFETY: the kernel writes the number of bytes given as the third argument.
    check(unsafe { libc::ptrace(libc::PTRACE_GETSIGMASK, tid, 8_usize, &raw mut mask) })?;
    Ok(mask)
}

pub(crate) fn set_signal_mask(tid: i32, mask: u64) -> io::Result<()> {
    // SAFETY: the kernel reads the number of bytes given as the third argument.
    check(unsafe { libc::ptrace(libc::PTRACE_SETSIGMASK, tid, 8_usize, &raw const mask) })
}

/// Not in the libc crate; from `linux/ptrace.h`.
const PTRACE_GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;

/// `struct ptrace_rseq_configuration`.
#[repr(C)]
#[derive(Default)]
struct RseqConfiguration {
    address: u64,
    size: u32,
    signature: u32,
    flags: u32,
    padding: u32,
}

/// Address of the `struct rseq` of a stopped thread; `None` if it has registered none, or if the kernel
/// does not tell (Linux before 5.13).
pub(crate) fn rseq_address(tid: i32) -> Option<u64> {
    let mut found = RseqConfiguration::default();
    let size = size_of::<RseqConfiguration>();
    // SAFETY: the kernel writes at most the number of bytes given as the third argument.
    check(unsafe { libc::ptrace(PTRACE_GET_RSEQ_CONFIGURATION, tid, size, &raw mut found) })
        .ok()?;
    Some(found.address).filter(|address| *address != 0)
}

pub(crate) use libc::sock_filter as FilterStep;

/// Not in the libc crate; from `linux/ptrace.h`.
const PTRACE_SECCOMP_GET_FILTER: libc::c_uint = 0x420c;

/// The system call filters of a stopped thread that has some.
pub(crate) fn filters(tid: i32) -> io::Result<Vec<Vec<FilterStep>>> {
    let mut filters = Vec::new();
    for index in 0_usize.. {
        let nothing = ptr::null_mut::<FilterStep>();
        // SAFETY: without an address, the kernel only returns the number of instructions.
        let count = unsafe { libc::ptrace(PTRACE_SECCOMP_GET_FILTER, tid, index, nothing) };
        let Ok(count) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::ENOENT) => break,
                _ => return Err(error),
            }
        };
        let mut steps = vec![FilterStep { code: 0, jt: 0, jf: 0, k: 0 }; count];
        // SAFETY: the kernel writes the number of instructions that it just returned: filters cannot be
        // removed, and the thread, which is stopped, adds none.
        check(unsafe { libc::ptrace(PTRACE_SECCOMP_GET_FILTER, tid, index, steps.as_mut_ptr()) })?;
        filters.push(steps);
    }
    Ok(filters)
}

/// The state of a seized thread, without waiting: `None` while it runs.
pub(crate) fn stop(tid: i32) -> io::Result<Option<ThreadStop>> {
    let mut status = 0;
    // SAFETY: the kernel writes one number.
    let got = unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL | libc::WNOHANG) };
    match got {
        0 => return Ok(None),
        -1 => {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::ECHILD) => Ok(Some(ThreadStop::Ended)),
                Some(libc::EINTR) => Ok(None),
                _ => Err(error),
            };
        }
        _ => {}
    }
    if !libc::WIFSTOPPED(status) {
        return Ok(Some(ThreadStop::Ended));
    }
    let signal = libc::WSTOPSIG(status);
    Ok(Some(match status >> 16 {
        EVENT_STOP if signal == libc::SIGTRAP => ThreadStop::Trap,
        EVENT_STOP => ThreadStop::Group,
        _ => ThreadStop::Signal(signal),
    }))
}
