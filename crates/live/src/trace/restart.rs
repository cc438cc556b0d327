//! System calls that a stop has interrupted.
//!
//! The kernel restarts most of them by itself when the thread runs on: they show one of its
//! internal codes. A few it ends with `EINTR` although no signal handler ran; a program need not
//! expect that.

use super::raw::Registers;

const EINTR: i64 = -4;
const ERESTARTSYS: i64 = -512;
const ERESTARTNOINTR: i64 = -513;
const ERESTARTNOHAND: i64 = -514;
const ERESTART_RESTARTBLOCK: i64 = -516;
/// Both `syscall` and `int 0x80` have two bytes.
const SYSCALL_LENGTH: u64 = 2;

/// Calls that end with `EINTR` when they are merely stopped; signal(7) lists them. They can be
/// made again as they were: they have done nothing when they say `EINTR`.
const NOT_RESTARTED: [i64; 16] = [
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_epoll_wait,
    libc::SYS_io_getevents,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_io_uring_enter,
];

/// The system call that a stopped thread was interrupted in, if any.
pub(crate) fn interrupted_call(registers: &Registers) -> Option<i64> {
    let call = registers.orig_rax.cast_signed();
    let result = registers.rax.cast_signed();
    let interrupted =
        matches!(result, ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND | ERESTART_RESTARTBLOCK)
            || ends_without_reason(registers);
    (call >= 0 && interrupted).then_some(call)
}

/// Whether a call would end with `EINTR` for a stop alone.
pub(crate) fn ends_when_stopped(call: i64) -> bool {
    NOT_RESTARTED.contains(&call)
}

/// Whether the call is about to end with `EINTR` because of our stop.
fn ends_without_reason(registers: &Registers) -> bool {
    registers.rax.cast_signed() == EINTR && ends_when_stopped(registers.orig_rax.cast_signed())
}

/// The registers with which the kernel makes a call again that would end with `EINTR` for our
/// stop alone; `None` where nothing is to be mended. Should a signal be delivered before, the
/// program gets its `EINTR` as it would have.
pub(crate) fn mended(registers: &Registers) -> Option<Registers> {
    ends_without_reason(registers)
        .then(|| Registers { rax: ERESTARTNOHAND.cast_unsigned(), ..*registers })
}

/// Where and with which `rax` the thread would run on: what the kernel does at the end of a stop,
/// done by hand for a thread that takes a way round first.
pub(crate) fn continuation(registers: &Registers) -> Registers {
    let mut after = *registers;
    if interrupted_call(registers).is_some() {
        after.rip -= SYSCALL_LENGTH;
        after.rax = match registers.rax.cast_signed() {
            ERESTART_RESTARTBLOCK => libc::SYS_restart_syscall.cast_unsigned(),
            _ => registers.orig_rax,
        };
    }
    // No call is under way any more, as far as the kernel is concerned.
    after.orig_rax = u64::MAX;
    after
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
    fn an_interrupted_call_is_made_again() {
        let read = in_call(libc::SYS_read, ERESTARTSYS);
        assert_eq!(interrupted_call(&read), Some(libc::SYS_read));
        let after = continuation(&read);
        assert_eq!((after.rip, after.rax), (0x1000, libc::SYS_read as u64));
        let sleep = in_call(libc::SYS_nanosleep, ERESTART_RESTARTBLOCK);
        assert_eq!(continuation(&sleep).rax, libc::SYS_restart_syscall as u64);
        assert!(mended(&read).is_none());
    }

    #[test]
    fn a_call_that_has_ended_is_not() {
        for result in [0, 17, -11, EINTR] {
            let read = in_call(libc::SYS_read, result);
            assert_eq!(interrupted_call(&read), None);
            let after = continuation(&read);
            assert_eq!((after.rip, after.rax), (0x1002, result.cast_unsigned()));
            assert!(mended(&read).is_none());
        }
        let outside = in_call(-1, ERESTARTSYS);
        assert_eq!(interrupted_call(&outside), None);
        assert_eq!(continuation(&outside).rip, 0x1002);
    }

    #[test]
    fn a_wait_that_a_stop_would_end_goes_on() {
        let wait = in_call(libc::SYS_epoll_wait, EINTR);
        assert_eq!(mended(&wait).map(|r| r.rax.cast_signed()), Some(ERESTARTNOHAND));
        assert_eq!(continuation(&wait).rip, 0x1000);
    }
}
