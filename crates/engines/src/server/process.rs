//! Processes of servers: which one exactly, which others belong to it, and how to end them all.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::postgres_lock;

/// Poll interval while waiting for a process.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// How long killed processes may take to exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(20);

/// Identity of a process that does not match a later process with the same id: ids are reused, but
/// not for the same program started at the same tick of the clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessIdentity {
    pub(crate) pid: u32,
    /// Start time in the kernel's clock ticks since boot.
    pub(crate) started: u64,
    pub(crate) program: PathBuf,
}

impl ProcessIdentity {
    /// The process with this id now; `None` if there is none.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let stat = Stat::of(pid)?;
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        Some(Self { pid, started: stat.started, program })
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(&self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.state != 'Z')
            && Self::of(self.pid).as_ref() == Some(self)
    }
}

/// Kills what is left of a server: the process itself, and later processes of the same program that
/// work in `data`. Waits until they have exited, then removes their shared memory.
///
/// # Errors
/// A signal is not permitted, or a process does not exit.
pub(crate) fn kill_remaining(leader: &ProcessIdentity, data: &Path) -> io::Result<()> {
    let deadline = Instant::now() + KILL_TIMEOUT;
    loop {
        let mut remaining = server_processes(leader, data);
        if leader.is_alive() && !remaining.contains(leader) {
            remaining.push(leader.clone());
        }
        if remaining.is_empty() {
            postgres_lock::remove_shared_memory(data);
            return Ok(());
        }
        for process in &remaining {
            send_signal(process, Signal::KILL)?;
        }
        if Instant::now() > deadline {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("process {} does not exit", remaining[0].pid),
            ));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// The processes that run the leader's program in `data`; they may outlive the leader. Process groups
/// do not tell: each PostgreSQL process has its own.
pub(crate) fn server_processes(leader: &ProcessIdentity, data: &Path) -> Vec<ProcessIdentity> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let member = |pid: u32| {
        let stat = Stat::of(pid)?;
        if stat.state == 'Z' || stat.started < leader.started {
            return None;
        }
        let working_dir = std::fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
        let program = match std::fs::read_link(format!("/proc/{pid}/exe")) {
            // It is exiting: the program is already released, files and memory are not.
            Err(error) if error.kind() == io::ErrorKind::NotFound => leader.program.clone(),
            program => program.ok()?,
        };
        let process = ProcessIdentity { pid, started: stat.started, program };
        (process.program == leader.program && working_dir.starts_with(data)).then_some(process)
    };
    pids.filter_map(member).collect()
}

/// Sends a signal to this process and no later one with its id: the file descriptor stays with the
/// process that it was opened for, and the identity is compared after opening. Does nothing if the
/// process has exited.
pub(crate) fn send_signal(process: &ProcessIdentity, signal: Signal) -> io::Result<()> {
    let Some(pid) = Pid::from_raw(process.pid.cast_signed()) else { return Ok(()) };
    let sent = pidfd_open(pid, PidfdFlags::empty()).and_then(|descriptor| {
        if process.is_alive() { pidfd_send_signal(descriptor, signal) } else { Ok(()) }
    });
    match sent {
        Err(Errno::SRCH) => Ok(()),
        other => Ok(other?),
    }
}

struct Stat {
    state: char,
    started: u64,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(line: &str) -> Option<Self> {
        // The name in parentheses may itself contain spaces and parentheses.
        let (_, rest) = line.rsplit_once(')')?;
        let mut words = rest.split_whitespace();
        let state = words.next()?.chars().next()?;
        // The state is field 3 of proc(5), the start time field 22.
        let started = words.nth(18)?.parse().ok()?;
        Some(Self { state, started })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The identity of a child that has just been spawned: waits until it has executed its program.
    pub(crate) fn identity_of(child: &std::process::Child) -> ProcessIdentity {
        let ours = std::env::current_exe().unwrap();
        loop {
            let process = ProcessIdentity::of(child.id()).unwrap();
            if process.program != ours {
                return process;
            }
        }
    }

    #[test]
    fn stat_line_is_parsed() {
        let line = "42 (a) b ) S 1 40 40 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1000 10";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.state, stat.started), ('S', 98_765));
        assert!(Stat::parse("42 (a").is_none());
    }

    #[test]
    fn process_with_reused_id_is_not_signalled() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = identity_of(&child);
        assert!(process.is_alive());
        let other = ProcessIdentity { started: process.started + 1, ..process.clone() };
        send_signal(&other, Signal::KILL).unwrap();
        assert!(process.is_alive(), "another process was killed");
        let data = tempfile::tempdir().unwrap();
        kill_remaining(&other, data.path()).unwrap();
        assert!(process.is_alive(), "another process was killed");
        send_signal(&process, Signal::KILL).unwrap();
        child.wait().unwrap();
        assert!(!process.is_alive());
    }
}
