use std::path::PathBuf;
use std::process::{Child, ExitStatus};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};

use super::process::ServerProcess;

/// A child process and its descendants. Dropping it kills them and waits.
#[derive(Debug)]
pub(crate) struct ChildGuard {
    child: Child,
    /// `None` if the child exited before it could be identified.
    pub(crate) process: Option<ServerProcess>,
    data: PathBuf,
    status: Option<ExitStatus>,
}

impl ChildGuard {
    /// Takes over a child that leads a process group and works in `data`.
    pub(crate) fn new(child: Child, data: PathBuf) -> Self {
        let process = ServerProcess::of(child.id()).ok();
        Self { child, process, data, status: None }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The child's exit status, if it has exited; its descendants are killed then.
    pub(crate) fn try_wait(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() && self.has_exited() {
            self.kill();
        }
        self.status
    }

    /// Sends a signal to the child and not to its descendants.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            // The child was not waited for, so the id is still its own. It may have exited.
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Kills all processes that are left, and waits.
    pub(crate) fn kill(&mut self) {
        if self.status.is_some() {
            return;
        }
        // The child was not waited for, so the group is still its own. It may be empty.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        self.status = self.child.wait().ok();
        if let Some(process) = &self.process {
            // If one cannot be killed, the next start finds the data locked.
            let _ = process.kill_all(&self.data);
        }
    }

    /// Whether the child has exited, without releasing its id as `Child::try_wait` does.
    fn has_exited(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        loop {
            match waitid(WaitId::Pid(Pid::from_child(&self.child)), options) {
                Err(Errno::INTR) => {}
                Ok(status) => return status.is_some(),
                Err(_) => return true,
            }
        }
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        self.kill();
    }
}
