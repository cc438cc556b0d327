//! Pausing a server whole, so that its files stand still.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::process::{Process, members, signal_exactly};

/// What was on its way to storage when the processes stopped is there after this.
const UNDER_WAY: Duration = Duration::from_millis(100);

/// The processes of a server, stopped. Dropping this lets them go on.
#[derive(Debug)]
pub(crate) struct Paused {
    processes: Vec<Process>,
}

impl Paused {
    /// Stops the server's first process and all others that work in `home`.
    ///
    /// # Errors
    /// A process may not be stopped. Those that were stopped go on.
    pub(crate) fn new(leader: &Process, home: &Path) -> io::Result<Self> {
        let mut paused = Self { processes: Vec::new() };
        // The first one stops first: it starts the others.
        let mut found = vec![leader.clone()];
        while !found.is_empty() {
            for process in found {
                signal_exactly(&process, libc::SIGSTOP)?;
                paused.processes.push(process);
            }
            // One may have been started before its parent stopped.
            found = members(leader, home);
            found.retain(|process| !paused.processes.contains(process));
        }
        std::thread::sleep(UNDER_WAY);
        Ok(paused)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        for process in self.processes.iter().rev() {
            // One that was killed meanwhile does not go on, which its clients will notice.
            let _ = signal_exactly(process, libc::SIGCONT);
        }
    }
}
