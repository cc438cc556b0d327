//! The threads of a process.

use std::fs;

use dbdyno_machine::{ProcStat, ProcessIdentity};

use crate::LiveError;

/// The identity of a running process.
///
/// # Errors
/// There is none with this ID, or it cannot be read, without a free file descriptor for instance.
pub(crate) fn identify(pid: u32) -> Result<ProcessIdentity, LiveError> {
    ProcessIdentity::of(pid).map_err(LiveError::proc_file("reading the state of", pid))
}

/// Checks that a process still runs, and still the same program.
///
/// # Errors
/// It exited or executed another program, or this cannot be read.
pub(crate) fn check_alive(identity: &ProcessIdentity) -> Result<(), LiveError> {
    if identity.is_alive() {
        return Ok(());
    }
    identify(identity.pid)?;
    Err(LiveError::Exited { pid: identity.pid })
}

/// The IDs of a process's threads, without ended ones.
pub(crate) fn threads(pid: u32) -> Result<Vec<i32>, LiveError> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"))
        .map_err(LiveError::proc_file("listing the threads of", pid))?;
    Ok(entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()))
        .collect())
}

/// The state of a thread as one letter; `None` if it has ended.
pub(crate) fn thread_state(pid: u32, tid: i32) -> Option<u8> {
    ProcStat::of_thread(pid, tid.cast_unsigned()).ok().map(|stat| stat.state)
}

/// Whether a thread has ended; a zombie has.
pub(crate) fn has_ended(pid: u32, tid: i32) -> bool {
    matches!(thread_state(pid, tid), None | Some(b'Z' | b'X'))
}

/// Whether a thread is one of the kernel's for the process, such as a worker of io_uring: it is listed like
/// the others, but never executes code of the program.
pub(crate) fn is_kernel_worker(pid: u32, tid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat"))
        .is_ok_and(|stat| flags(&stat).is_some_and(|flags| flags & KERNEL_WORKER != 0))
}

/// Whether a process is a thread of the kernel.
pub(crate) fn is_kernel_thread(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| flags(&stat).is_some_and(|flags| flags & KERNEL_THREAD != 0))
}

/// `PF_KTHREAD` from `linux/sched.h`.
const KERNEL_THREAD: u64 = 0x20_0000;

/// `PF_IO_WORKER`, and `PF_USER_WORKER` of Linux 6.4 and later, from `linux/sched.h`.
const KERNEL_WORKER: u64 = 0x10 | 0x4000;

/// The kernel's flags of a thread: field 9 of its `stat`, whose second field is a name in parentheses.
fn flags(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(9 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_after_a_name_with_spaces() {
        let stat = "11 (iou) wrk-10) S 9 10 10 0 -1 4210768 1 2 3";
        assert_eq!(flags(stat), Some(0x0040_4050));
        assert_eq!(flags("11 (a) S 9"), None);
        let me = std::process::id();
        assert!(!is_kernel_worker(me, me.cast_signed()));
    }

    #[test]
    fn earlier_process_with_the_same_id_has_exited() {
        let identity = identify(std::process::id()).unwrap();
        check_alive(&identity).unwrap();
        let earlier = ProcessIdentity { start_ticks: identity.start_ticks - 1, ..identity };
        assert!(matches!(check_alive(&earlier), Err(LiveError::Exited { .. })));
        assert!(matches!(identify(0x7fff_fff0), Err(LiveError::Exited { .. })));
    }
}
