//! The guard: a second process on the host that cleans up when the agent is killed.

use std::fs;
use std::io::{self, Read, stdin};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::setsid;

use crate::agent_dir::{is_of_agent, remove};

/// The argument of this program for a guard, before the agent's directory.
const ARGUMENT: &str = "--guard";

/// How long cleaning up is tried.
const TRY_FOR: Duration = Duration::from_secs(120);

/// The guard of a living agent, which waits for the end of its input.
#[derive(Debug)]
pub(crate) struct Guard {
    program: PathBuf,
    directory: PathBuf,
    /// `None` if it could not be started.
    child: Option<Child>,
}

impl Guard {
    /// Starts `program` as the guard of an agent with this directory.
    pub(crate) fn start(program: &Path, directory: &Path) -> Self {
        let (program, directory) = (program.to_owned(), directory.to_owned());
        let mut guard = Self { program, directory, child: None };
        guard.ensure();
        guard
    }

    /// Starts it again, if it was killed.
    pub(crate) fn ensure(&mut self) {
        let runs = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        if !self.child.as_mut().is_some_and(runs) {
            self.child = self.spawn().ok();
        }
    }

    fn spawn(&self) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        command.args(["agent", ARGUMENT]).arg(&self.directory).current_dir("/");
        // Its outputs are not ssh's, which would wait for it.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: `setsid` is a system call and async-signal-safe.
        unsafe { command.pre_exec(|| Ok(setsid().map(drop)?)) };
        command.spawn()
    }
}

/// Waits for the end of the agent, which holds the other end of standard input, then ends its servers and
/// removes its directory.
pub fn guard(directory: &Path) {
    // An error is an end, too.
    let _ = stdin().read_to_end(&mut Vec::new());
    let started = Instant::now();
    while is_of_agent(directory) && started.elapsed() < TRY_FOR {
        remove(directory);
        if fs::symlink_metadata(directory).is_ok() {
            thread::sleep(Duration::from_millis(200));
        }
    }
}
