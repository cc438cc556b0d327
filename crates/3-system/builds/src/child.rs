use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::command::clean_command;
use crate::lock::Lock;
use crate::recipe::Step;

/// Poll interval for the end of a program: short compared with its run time of seconds, long enough
/// to use little CPU time.
const PERIOD: Duration = Duration::from_millis(10);

/// The environment of a step.
pub(crate) struct Surroundings<'a> {
    /// The working directory.
    pub(crate) dir: &'a Path,
    /// The directory for temporary files, removed with the build.
    pub(crate) temp_dir: &'a Path,
    /// The file for its output.
    pub(crate) log: &'a File,
    pub(crate) lock: &'a Lock,
    pub(crate) cancel: &'a AtomicBool,
}

/// Runs a step and calls `watch` periodically. `None` if it was cancelled; the program is killed.
pub(crate) fn run(
    step: &Step,
    around: &Surroundings<'_>,
    watch: impl FnMut(),
) -> io::Result<Option<ExitStatus>> {
    let mut command = clean_command(&step.program);
    command
        .args(&step.args)
        .envs(step.env.iter().map(|(name, value)| (name, value)))
        .current_dir(around.dir)
        .env("TMPDIR", around.temp_dir)
        .stdin(around.lock.as_stdin()?)
        .stdout(around.log.try_clone()?)
        .stderr(around.log.try_clone()?)
        // A separate process group, because a compiler consists of several processes that must all
        // be killed together. It also means that Ctrl-C in a terminal reaches only dbdyno, which
        // decides what to do.
        .process_group(0);
    wait(Running::new(command.spawn()?), around.cancel, watch)
}

/// Waits until a program that leads a process group exits. `None` if cancelled.
pub(crate) fn wait(
    mut running: Running,
    cancel: &AtomicBool,
    mut watch: impl FnMut(),
) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = running.poll()? {
            watch();
            return Ok(Some(status));
        }
        if cancel.load(Ordering::Relaxed) {
            return Ok(None);
        }
        thread::sleep(PERIOD);
        watch();
    }
}

/// A program that leads a process group. Kills the group when dropped.
pub(crate) struct Running {
    child: Child,
    ended: bool,
}

impl Running {
    /// The child must lead its own process group.
    pub(crate) const fn new(child: Child) -> Self {
        Self { child, ended: false }
    }

    fn poll(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        self.ended = status.is_some();
        Ok(status)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // The group was created by process_group(0). The child was not waited for yet, so its id
        // has not been reused.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        // It is being killed, so this returns soon. An error needs no handling.
        let _ = self.child.wait();
    }
}
