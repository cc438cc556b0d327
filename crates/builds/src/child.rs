use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::compiler::clean_command;
use crate::lock::Lock;
use crate::recipe::Step;

/// How often to look whether the compiler is done: short against its seconds, long for the CPU.
const PERIOD: Duration = Duration::from_millis(10);

/// Runs a step in `dir` with its output going to `log`. `None` if it was cancelled, after the
/// compiler has been ended.
pub(crate) fn run(
    step: &Step,
    dir: &Path,
    temp_dir: &Path,
    log: &File,
    lock: &Lock,
    cancel: &AtomicBool,
) -> io::Result<Option<ExitStatus>> {
    let child = clean_command(&step.program)
        .args(&step.args)
        .current_dir(dir)
        // Its temporary files go where they are removed with everything else.
        .env("TMPDIR", temp_dir)
        .stdin(lock.as_stdin()?)
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?)
        // A group of its own: a compiler is several processes, and all must end together. Also,
        // Ctrl-C in a terminal then reaches dbdyno alone, which decides what to do.
        .process_group(0)
        .spawn()?;
    let mut running = Running { child, ended: false };
    loop {
        if let Some(status) = running.poll()? {
            return Ok(Some(status));
        }
        if cancel.load(Ordering::Relaxed) {
            return Ok(None);
        }
        thread::sleep(PERIOD);
    }
}

/// Ends the compiler and its children when dropped.
struct Running {
    child: Child,
    ended: bool,
}

impl Running {
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
        if let Ok(group) = libc::pid_t::try_from(self.child.id()) {
            // SAFETY: kill() takes no pointers. The group is the child's own, made by
            // process_group(0), and the child was not waited for yet, so that its number cannot
            // have been given to another process.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
        // It is being killed: this ends at once, and leaves nothing to do if it fails.
        let _ = self.child.wait();
    }
}
