use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::postgres_lock;

/// A process that cannot be taken for another one: numbers of processes are used again, but
/// never for the same program started at the same tick of the clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// When it started, in the kernel's ticks since the machine did.
    pub(crate) started: u64,
    pub(crate) program: PathBuf,
}

impl Process {
    /// The process that has this number now; none where it has ended.
    pub(crate) fn now(pid: u32) -> Option<Self> {
        let stat = Stat::of(pid)?;
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        Some(Self { pid, started: stat.started, program })
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(&self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.state != 'Z')
            && Self::now(self.pid).as_ref() == Some(self)
    }
}

/// Ends what is left of a server: the process itself, and those started after it that run the
/// same program with their working directory in `home`. Waits until they are gone, and gives back
/// shared memory that outlived them.
///
/// # Errors
/// They may not be ended, or do not end.
pub(crate) fn end_remains(leader: &Process, home: &Path) -> io::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let mut remains = members(leader, home);
        if leader.is_alive() && !remains.contains(leader) {
            remains.push(leader.clone());
        }
        if remains.is_empty() {
            postgres_lock::remove_shared_memory(home);
            return Ok(());
        }
        for process in &remains {
            signal_exactly(process, libc::SIGKILL)?;
        }
        if Instant::now() > deadline {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("process {} does not end", remains[0].pid),
            ));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The processes that run the leader's program inside `home`, which may outlive it. They need not
/// be of its group: PostgreSQL's processes have groups of their own.
pub(crate) fn members(leader: &Process, home: &Path) -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let member = |pid: u32| {
        let stat = Stat::of(pid)?;
        if stat.state == 'Z' || stat.started < leader.started {
            return None;
        }
        let lives = std::fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
        let program = match std::fs::read_link(format!("/proc/{pid}/exe")) {
            // It is ending, and has let go of its program but not yet of its files and memory.
            Err(error) if error.kind() == io::ErrorKind::NotFound => leader.program.clone(),
            program => program.ok()?,
        };
        let process = Process { pid, started: stat.started, program };
        (process.program == leader.program && lives.starts_with(home)).then_some(process)
    };
    pids.filter_map(member).collect()
}

/// Sends a signal to this process and never to another one: the descriptor stays with the process
/// that had the number when it was opened, and who that is, is looked at after that.
pub(crate) fn signal_exactly(process: &Process, signal: i32) -> io::Result<()> {
    let pid = process.pid.cast_signed();
    // SAFETY: takes numbers only.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if descriptor < 0 {
        let error = io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) };
    }
    let descriptor = i32::try_from(descriptor).map_err(io::Error::other)?;
    // SAFETY: the descriptor was just opened and is owned by nobody else.
    let descriptor =
        unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(descriptor) };
    if !process.is_alive() {
        return Ok(());
    }
    // SAFETY: the descriptor is open; no details of the signal are given.
    let status = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            std::os::fd::AsRawFd::as_raw_fd(&descriptor),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    let error = io::Error::last_os_error();
    if status == 0 || error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) }
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
        // The name in parentheses may itself have spaces and parentheses.
        let (_, rest) = line.rsplit_once(')')?;
        let mut words = rest.split_whitespace();
        let state = words.next()?.chars().next()?;
        // The state is field 3 of proc(5), the start field 22.
        let started = words.nth(18)?.parse().ok()?;
        Some(Self { state, started })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The process of a child that has just been started. It may still have our program, where
    /// it was started without a step of ours between fork and exec.
    pub(crate) fn started(child: &std::process::Child) -> Process {
        let ours = std::env::current_exe().unwrap();
        loop {
            let process = Process::now(child.id()).unwrap();
            if process.program != ours {
                return process;
            }
        }
    }

    #[test]
    fn reads_a_line_of_proc() {
        let line = "42 (a) b ) S 1 40 40 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1000 10";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.state, stat.started), ('S', 98_765));
        assert!(Stat::parse("42 (a").is_none());
    }

    #[test]
    fn tells_a_process_from_another_with_its_number() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = started(&child);
        assert!(process.is_alive());
        let other = Process { started: process.started + 1, ..process.clone() };
        signal_exactly(&other, libc::SIGKILL).unwrap();
        assert!(process.is_alive(), "another process was killed");
        // Of an earlier one with its number nothing is left, and nothing lives in its home.
        let home = tempfile::tempdir().unwrap();
        end_remains(&other, home.path()).unwrap();
        assert!(process.is_alive(), "another process was killed");
        signal_exactly(&process, libc::SIGKILL).unwrap();
        child.wait().unwrap();
        assert!(!process.is_alive());
    }
}
