use std::io;
use std::path::Path;
use std::time::Duration;

use dbdyno_machine::{ProcessIdentity, Signal};

use super::process::ServerProcess;

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
    ///
    /// # Errors
    /// Stopping a process is not permitted. Those already stopped continue.
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
