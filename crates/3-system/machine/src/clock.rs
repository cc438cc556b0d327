//! Clocks in nanoseconds.

use std::io;

use dbdyno_units::Nanos;

/// Monotonic time since a fixed point, for durations. A call takes about 25 ns.
pub fn monotonic() -> Nanos {
    read(libc::CLOCK_MONOTONIC)
}

/// Time since boot including suspend: the clock of process start times in `/proc`.
pub(crate) fn boottime() -> Nanos {
    read(libc::CLOCK_BOOTTIME)
}

/// CPU time of the calling thread. A system call of 100 to 300 ns.
pub fn thread_cpu() -> Nanos {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of this process, including ended threads.
pub fn process_cpu() -> Nanos {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of the process `pid`, including ended threads but not its child processes. No
/// permission is needed, even for other users' processes.
///
/// # Errors
/// `ESRCH` or `EINVAL` if there is no such process.
pub fn process_cpu_of(pid: u32) -> io::Result<Nanos> {
    // The kernel packs the ID into 29 bits of the clock ID: a larger one would refer to another
    // process without an error, and 0 to the caller.
    const HIGHEST_PID: u32 = 1 << 22;
    if !(1..=HIGHEST_PID).contains(&pid) {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    let mut clock = 0;
    // SAFETY: `clock` is valid for writing.
    match unsafe { libc::clock_getcpuclockid(pid.cast_signed(), &raw mut clock) } {
        0 => try_read(clock),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn read(clock: libc::clockid_t) -> Nanos {
    // These clocks exist since Linux 2.6.39 and cannot fail.
    try_read(clock).unwrap_or(Nanos::ZERO)
}

fn try_read(clock: libc::clockid_t) -> io::Result<Nanos> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Both fields are positive for these clocks.
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
        // A thread's CPU clock may be slightly ahead of real time, by less than 10%.
        assert!(monotonic() - time >= Nanos::from_micros(1_800));
    }

    #[test]
    fn cpu_time_of_this_process_matches_the_reading_by_id() {
        let inside = process_cpu();
        let outside = process_cpu_of(std::process::id()).unwrap();
        assert!(outside >= inside);
    }

    #[test]
    fn missing_process_is_an_error() {
        assert!(process_cpu_of(0).is_err());
        assert!(process_cpu_of(u32::MAX).is_err());
        // Without the check, this ID would refer to the caller's clock.
        assert!(process_cpu_of(i32::MAX.cast_unsigned()).is_err());
    }
}
