//! Processes of servers: finding those that belong together, pausing and killing them.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dbdyno_machine::{ProcessIdentity, Signal};
use serde::{Deserialize, Serialize};

use super::postgres_lock;

/// Poll interval while waiting for a process.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// How long killed processes may take to exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServerProcess {
    #[serde(flatten)]
    pub(crate) identity: ProcessIdentity,
    pub(crate) program: PathBuf,
}

impl ServerProcess {
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let identity = ProcessIdentity::of(pid)?;
        let program = identity.program()?;
        Ok(Self { identity, program })
    }

    /// Kills it and the other processes of the server in `data`. Waits until they have exited, then
    /// removes their shared memory.
    pub(crate) fn kill_all(&self, data: &Path) -> io::Result<()> {
        let deadline = Instant::now() + KILL_TIMEOUT;
        loop {
            let mut remaining = self.find_all(data);
            if self.identity.is_alive() && !remaining.contains(&self.identity) {
                remaining.push(self.identity.clone());
            }
            if remaining.is_empty() {
                postgres_lock::remove_shared_memory(data);
                return Ok(());
            }
            for process in &remaining {
                process.signal(Signal::KILL)?;
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

    /// All processes that run its program in `data` and did not start before it; they may outlive
    /// it. `data` is a path without symbolic links. Process groups do not identify them: each
    /// PostgreSQL process has its own.
    pub(crate) fn find_all(&self, data: &Path) -> Vec<ProcessIdentity> {
        let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(|pid| self.find(pid, data)).collect()
    }

    fn find(&self, pid: u32, data: &Path) -> Option<ProcessIdentity> {
        let working_dir = std::fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
        let identity = ProcessIdentity::of(pid).ok()?;
        let is_same_program = match identity.program() {
            Ok(program) => unmarked(&program) == unmarked(&self.program),
            // It is exiting: the program is already released, files and memory are not.
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        let belongs = working_dir.starts_with(data)
            && identity.start_ticks >= self.identity.start_ticks
            && is_same_program;
        belongs.then_some(identity)
    }
}

/// The path of a program file without the kernel's mark for one that was removed or replaced.
fn unmarked(program: &Path) -> &Path {
    let path = program.as_os_str().as_bytes();
    Path::new(OsStr::from_bytes(path.strip_suffix(b" (deleted)").unwrap_or(path)))
}

/// Time for writes in flight to reach storage after the processes have stopped.
const WRITES_IN_FLIGHT: Duration = Duration::from_millis(100);

/// A server whose processes are all stopped (SIGSTOP), so that its files do not change. Dropping it
/// continues them.
#[derive(Debug)]
pub(crate) struct PausedServer {
    processes: Vec<ProcessIdentity>,
}

impl PausedServer {
    /// Stops the server's main process and all others that work in `data`.
    pub(crate) fn new(leader: &ServerProcess, data: &Path) -> io::Result<Self> {
        let mut paused = Self { processes: Vec::new() };
        // The main process first: it starts the others.
        let mut found = vec![leader.identity.clone()];
        while !found.is_empty() {
            for process in found {
                process.signal(Signal::STOP)?;
                paused.processes.push(process);
            }
            // More may have been started before their parent stopped.
            found = leader.find_all(data);
            found.retain(|process| !paused.processes.contains(process));
        }
        std::thread::sleep(WRITES_IN_FLIGHT);
        Ok(paused)
    }
}

impl Drop for PausedServer {
    fn drop(&mut self) {
        for process in self.processes.iter().rev() {
            // One that was killed meanwhile is noticed by its clients.
            let _ = process.signal(Signal::CONT);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::process::{Child, Command};

    use super::*;

    /// A process that sleeps in `directory`, once it has executed its program.
    pub(crate) fn sleeper(directory: &Path) -> (Child, ServerProcess) {
        let child = Command::new("/bin/sleep").arg("60").current_dir(directory).spawn().unwrap();
        let has_started = |process: &ServerProcess| {
            // The addresses are the last that exec sets.
            let (code, stack) = process.identity.image;
            process.program.ends_with("sleep") && code != 0 && stack != 0
        };
        let mut process = ServerProcess::of(child.id()).unwrap();
        while !has_started(&process) {
            process = ServerProcess::of(child.id()).unwrap();
        }
        (child, process)
    }

    #[test]
    fn process_with_reused_id_is_not_killed() {
        let data = tempfile::tempdir().unwrap();
        let (mut child, process) = sleeper(Path::new("/"));
        let mut earlier = process.clone();
        earlier.identity.start_ticks -= 1;
        earlier.kill_all(data.path()).unwrap();
        assert!(process.identity.is_alive(), "another process was killed");
        // The process itself is killed wherever it works.
        let waiter = std::thread::spawn(move || child.wait().unwrap());
        process.kill_all(data.path()).unwrap();
        waiter.join().unwrap();
        assert!(!process.identity.is_alive());
    }

    #[test]
    fn processes_of_a_removed_program_are_found() {
        let data = tempfile::tempdir().unwrap();
        let (mut child, mut process) = sleeper(data.path());
        process.program.as_mut_os_string().push(" (deleted)");
        let found = process.find_all(data.path());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, [process.identity]);
    }
}
