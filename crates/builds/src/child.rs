use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::compiler::clean_command;
use crate::lock::Lock;
use crate::recipe::Step;

/// How often to look whether a program is done: short against its seconds, long for the CPU.
const PERIOD: Duration = Duration::from_millis(10);

/// What a step runs with, besides its own words.
pub(crate) struct Surroundings<'a> {
    /// Where relative paths start.
    pub(crate) dir: &'a Path,
    /// Where its temporary files go, to be removed with everything else.
    pub(crate) temp_dir: &'a Path,
    /// Where its output goes.
    pub(crate) log: &'a File,
    pub(crate) lock: &'a Lock,
    pub(crate) cancel: &'a AtomicBool,
}

/// Runs a step, and calls `watch` every now and then meanwhile. `None` if it was cancelled, after
/// the program has been ended.
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
        // A group of its own: a compiler is several processes, and all must end together. Also,
        // Ctrl-C in a terminal then reaches dbdyno alone, which decides what to do.
        .process_group(0);
    wait(Running::new(command.spawn()?), around.cancel, watch)
}

/// Waits for the end of a program that leads a process group.
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

/// A program that leads a process group. Ends it and its children when dropped.
pub(crate) struct Running {
    child: Child,
    ended: bool,
}

impl Running {
    /// The child must have been started with a process group of its own.
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
        // The group is the child's own, made by process_group(0). The child was not waited for yet,
        // so its id has not been reused.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        // It is being killed: this ends at once, and leaves nothing to do if it fails.
        let _ = self.child.wait();
    }
}
