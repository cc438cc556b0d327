//! The system call `perf_event_open` and what belongs to it, and no policy.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use dbdyno_units::Nanos;
use perf_event_open_sys::bindings::{
    PERF_FLAG_FD_CLOEXEC, PERF_FORMAT_GROUP, PERF_FORMAT_TOTAL_TIME_ENABLED,
    PERF_FORMAT_TOTAL_TIME_RUNNING, PERF_IOC_FLAG_GROUP, perf_event_attr,
};
use perf_event_open_sys::{ioctls, perf_event_open};

/// Opens a counter, stopped, on one thread (0 for the calling one) and on everything that
/// thread starts from now on.
///
/// `leader` is a counter of the same thread: the two are then always on the CPU together, and a
/// reading of the leader tells both. It is the first of a group itself.
pub(super) fn open(
    kind: u32,
    config: u64,
    with_kernel: bool,
    thread: libc::pid_t,
    leader: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    // An older kernel with a shorter structure takes this one, since what it lacks is zero.
    let mut attributes = perf_event_attr {
        type_: kind,
        size: size_of::<perf_event_attr>() as u32,
        config,
        read_format: u64::from(PERF_FORMAT_TOTAL_TIME_ENABLED)
            | u64::from(PERF_FORMAT_TOTAL_TIME_RUNNING)
            | u64::from(PERF_FORMAT_GROUP),
        ..perf_event_attr::default()
    };
    attributes.set_disabled(1);
    attributes.set_inherit(1);
    attributes.set_exclude_hv(1);
    attributes.set_exclude_kernel(u64::from(!with_kernel));

    const ANY_CPU: libc::c_int = -1;
    const NO_GROUP: libc::c_int = -1;
    let group = leader.map_or(NO_GROUP, |leader| leader.as_raw_fd());
    // SAFETY: `attributes` lives, is writable and says its size; it asks for counting only, so
    // that the kernel writes to no memory of ours later.
    let file = unsafe {
        perf_event_open(
            &raw mut attributes,
            thread,
            ANY_CPU,
            group,
            libc::c_ulong::from(PERF_FLAG_FD_CLOEXEC),
        )
    };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this file descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// Starts a group, by its leader.
pub(super) fn enable(leader: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the argument is a number; it makes the kernel touch no memory of ours.
    done(unsafe { ioctls::ENABLE(leader.as_raw_fd(), PERF_IOC_FLAG_GROUP) })
}

/// Stops a group, by its leader.
pub(super) fn disable(leader: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: as above.
    done(unsafe { ioctls::DISABLE(leader.as_raw_fd(), PERF_IOC_FLAG_GROUP) })
}

fn done(status: libc::c_int) -> io::Result<()> {
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The most events of a group.
pub(super) const MOST: usize = 8;

/// What a group of `events` showed, by its leader: time enabled, time in fact on the CPU's
/// counters, and the counts in the order in which the group was made.
pub(super) fn read(
    leader: BorrowedFd<'_>,
    events: usize,
) -> io::Result<(Nanos, Nanos, [u64; MOST])> {
    const BEFORE: usize = 3;
    let mut values = [0_u64; BEFORE + MOST];
    let wanted = (BEFORE + events.min(MOST)) * size_of::<u64>();
    let room = size_of_val(&values);
    // SAFETY: `values` has `room` bytes that may be written to, and any bytes are numbers.
    let got = unsafe { libc::read(leader.as_raw_fd(), values.as_mut_ptr().cast(), room) };
    match usize::try_from(got) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(got) if got == wanted && values[0] == events as u64 => {
            let [_, enabled, running, counts @ ..] = values;
            Ok((Nanos::from_nanos(enabled), Nanos::from_nanos(running), counts))
        }
        // End of file: a group that could not be scheduled.
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
