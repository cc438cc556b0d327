//! dbdyno in the background, its workers, and signals.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::{Finished, TIMEOUT, pause_after};

/// A running dbdyno. Killed on drop.
pub struct Background {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Background {
    /// Starts the command with its output in files, because pipes would fill up.
    pub fn start(mut command: Command, dir: &Path) -> Self {
        let (out, err) = (dir.join("stdout"), dir.join("stderr"));
        command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
        Self { child: command.spawn().unwrap(), out, err }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a condition while dbdyno is still running.
    #[track_caller]
    pub fn wait_until(&mut self, what: &str, mut is_so: impl FnMut() -> bool) {
        let start = Instant::now();
        loop {
            let asked = Instant::now();
            if is_so() {
                break;
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("{what}: it ended before ({status})\n{}", self.read(&self.err));
            }
            assert!(start.elapsed() < TIMEOUT, "timed out: {what}\n{}", self.read(&self.err));
            pause_after(asked);
        }
    }

    /// Sends dbdyno a signal.
    pub fn signal(&self, signal: i32) {
        send(self.pid(), signal);
    }

    /// Waits until it exits.
    #[track_caller]
    pub fn end(mut self) -> Finished {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < TIMEOUT, "it does not exit\n{}", self.read(&self.err));
            std::thread::sleep(Duration::from_millis(5));
        };
        let finished =
            Finished { code: status.code(), out: self.read(&self.out), err: self.read(&self.err) };
        finished.assert_no_panic();
        finished
    }

    fn read(&self, file: &Path) -> String {
        String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a process that this test started.
pub fn send(pid: u32, signal: i32) {
    // SAFETY: takes two numbers and touches no memory.
    let sent = unsafe { libc::kill(pid.cast_signed(), signal) };
    assert_eq!(sent, 0, "signal {signal} to {pid}: {}", std::io::Error::last_os_error());
}

/// The child processes that are still alive.
pub fn children(parent: u32) -> Vec<u32> {
    let is_child = |pid: &u32| stat(*pid).is_some_and(|(_, of)| of == parent);
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(is_child)
        .collect()
}

/// Whether a process has exited; zombies count as exited.
pub fn is_gone(pid: u32) -> bool {
    stat(pid).is_none_or(|(state, _)| matches!(state, 'Z' | 'X'))
}

/// A process's state and parent.
fn stat(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may contain spaces and parentheses.
    let mut rest = stat[stat.rfind(')')? + 1..].split_whitespace();
    Some((rest.next()?.chars().next()?, rest.next()?.parse().ok()?))
}

/// The worker of one candidate: the child that has the candidate's data open.
pub fn worker_of(dbdyno: u32, run: &Path, candidate: &str) -> Option<u32> {
    let data = run.canonicalize().ok()?.join("data").join(candidate);
    children(dbdyno).into_iter().find(|pid| {
        let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        files
            .filter_map(|file| file.ok()?.path().read_link().ok())
            .any(|target| target.starts_with(&data))
    })
}
