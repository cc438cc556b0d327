//! Clocks in nanoseconds.

use std::io;

use dbdyno_units::Nanos;

/// Time since some fixed moment, never set back: for durations. About 25 ns a call.
#[must_use]
pub fn monotonic() -> Nanos {
    read(libc::CLOCK_MONOTONIC)
}

/// Time since the start of 1970, in UTC: for labels. It can jump; do not subtract it.
#[must_use]
pub fn realtime() -> Nanos {
    read(libc::CLOCK_REALTIME)
}

/// Time since the machine started, sleep included: what `/proc` counts starts of processes in.
pub(crate) fn boottime() -> Nanos {
    read(libc::CLOCK_BOOTTIME)
}

/// CPU time of the calling thread. A system call, some 100 to 300 ns.
#[must_use]
pub fn thread_cpu() -> Nanos {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of this process: all its threads, those that ended included.
#[must_use]
pub fn process_cpu() -> Nanos {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of the process `pid`: all its threads, those that ended included, but not its
/// child processes. Needs no permission, also for another user's process.
///
/// # Errors
/// `ESRCH` or `EINVAL` where there is no such process (any more).
pub fn process_cpu_of(pid: u32) -> io::Result<Nanos> {
    // The kernel packs the number into 29 bits of the clock's: a larger one would silently name
    // another process, and 0 the caller.
    const HIGHEST_PID: u32 = 1 << 22;
    if !(1..=HIGHEST_PID).contains(&pid) {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    let mut clock = 0;
    // SAFETY: `clock` lives and may be written to.
    match unsafe { libc::clock_getcpuclockid(pid.cast_signed(), &raw mut clock) } {
        0 => try_read(clock),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn read(clock: libc::clockid_t) -> Nanos {
    // The clocks asked for here exist on every Linux since 2.6.39 and cannot fail.
    try_read(clock).unwrap_or(Nanos::ZERO)
}

fn try_read(clock: libc::clockid_t) -> io::Result<Nanos> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives and may be written to.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Both parts of these clocks are positive.
    Ok(Nanos::from_nanos(
        time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burn(time: Nanos) {
        let start = thread_cpu();
        while thread_cpu() - start < time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn clocks_advance() {
        let (time, thread, process) = (monotonic(), thread_cpu(), process_cpu());
        burn(Nanos::from_millis(2));
        assert!(thread_cpu() - thread >= Nanos::from_millis(2));
        assert!(process_cpu() - process >= Nanos::from_millis(2));
        // A thread's CPU clock may run a little ahead of real time, never by a tenth.
        assert!(monotonic() - time >= Nanos::from_micros(1_800));
        assert!(realtime() > Nanos::from_secs(1_700_000_000));
    }

    #[test]
    fn this_process_read_from_outside_is_this_process() {
        let inside = process_cpu();
        let outside = process_cpu_of(std::process::id()).unwrap();
        assert!(outside >= inside);
    }

    #[test]
    fn no_such_process_is_an_error() {
        assert!(process_cpu_of(0).is_err());
        assert!(process_cpu_of(u32::MAX).is_err());
        // Without the check, this one is the caller's own clock.
        assert!(process_cpu_of(i32::MAX.cast_unsigned()).is_err());
    }
}
