//! The threads of a process.

use std::fs;

use dbdyno_machine::{ProcStat, ProcessIdentity};

use crate::LiveError;

/// The identity of a running process.
///
/// # Errors
/// There is none with this ID.
pub(crate) fn identify(pid: u32) -> Result<ProcessIdentity, LiveError> {
    ProcessIdentity::of(pid).map_err(|_| LiveError::Exited { pid })
}

/// Checks that a process still runs, and still the same program.
///
/// # Errors
/// It exited or executed another program.
pub(crate) fn check_alive(identity: &ProcessIdentity) -> Result<(), LiveError> {
    if identity.is_alive() { Ok(()) } else { Err(LiveError::Exited { pid: identity.pid }) }
}

/// The IDs of a process's threads, without ended ones.
pub(crate) fn threads(pid: u32) -> Result<Vec<i32>, LiveError> {
    let entries = match fs::read_dir(format!("/proc/{pid}/task")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(LiveError::Exited { pid });
        }
        Err(error) => return Err(LiveError::system("listing the threads of", pid)(error)),
    };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_process_with_the_same_id_has_exited() {
        let identity = identify(std::process::id()).unwrap();
        check_alive(&identity).unwrap();
        let earlier = ProcessIdentity { start_ticks: identity.start_ticks - 1, ..identity };
        assert!(matches!(check_alive(&earlier), Err(LiveError::Exited { .. })));
        assert!(matches!(identify(0x7fff_fff0), Err(LiveError::Exited { .. })));
    }
}
