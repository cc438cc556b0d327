//! A group of processes with a limit of memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// A control group, removed on drop.
pub struct MemoryLimit {
    group: PathBuf,
    /// The files of the used memory and of the limit.
    usage: &'static str,
    limit: &'static str,
}

impl MemoryLimit {
    /// `None` where that is not permitted.
    pub fn new() -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let (root, usage, limit) = if root.join("memory").exists() {
            (root.join("memory"), "memory.usage_in_bytes", "memory.limit_in_bytes")
        } else {
            let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
            (root.to_owned(), "memory.current", "memory.max")
        };
        let group = root.join(format!("dbdyno-live-{}", std::process::id()));
        fs::create_dir(&group).ok()?;
        let made = Self { group, usage, limit };
        made.group.join(limit).exists().then_some(made)
    }

    /// A command of this program in the group.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 0 >\"$0\" && exec \"$@\""]);
        command.arg(self.group.join("cgroup.procs")).arg(program);
        command
    }

    /// Permits no more memory than is used now: the kernel kills the process when it needs more.
    pub fn tighten(&self) {
        let used = fs::read_to_string(self.group.join(self.usage)).unwrap();
        fs::write(self.group.join(self.limit), used.trim()).unwrap();
    }

    /// Permits any amount of memory again.
    pub fn lift(&self) {
        let unlimited = if self.limit == "memory.max" { "max" } else { "-1" };
        fs::write(self.group.join(self.limit), unlimited).unwrap();
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // Processes leave the group some time after their end.
        for _ in 0..100 {
            if fs::remove_dir(&self.group).is_ok() {
                break;
            }
            sleep(Duration::from_millis(10));
        }
    }
}
