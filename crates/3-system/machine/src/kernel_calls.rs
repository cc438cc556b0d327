//! Small wrappers around system calls that several crates need.

use std::io;
use std::num::NonZeroU64;
use std::path::Path;
use std::process::Child;

use dbdyno_units::Bytes;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getppid, set_parent_process_death_signal, waitid,
};

/// Has the kernel send `signal` to the calling process when the thread that started it ends.
///
/// Async-signal-safe, for [`std::os::unix::process::CommandExt::pre_exec`]. Call it after a change
/// of user, which clears the setting. `parent` is the starting process's ID: it may have ended
/// before this call.
///
/// # Errors
/// The kernel's; `ESRCH` if `parent` has already ended.
pub fn die_with_parent(signal: Signal, parent: u32) -> io::Result<()> {
    set_parent_process_death_signal(Some(signal))?;
    let is_child =
        getppid().is_some_and(|pid| pid.as_raw_nonzero().get().cast_unsigned() == parent);
    if is_child { Ok(()) } else { Err(Errno::SRCH.into()) }
}

/// Whether a child has exited, without releasing its id as [`Child::try_wait`] does.
pub fn has_exited(child: &Child) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    loop {
        match waitid(WaitId::Pid(Pid::from_child(child)), options) {
            Err(Errno::INTR) => {}
            Ok(status) => return status.is_some(),
            Err(_) => return true,
        }
    }
}

/// Lets sleeps of the calling thread end on time; by default the kernel may add up to 50 µs.
pub fn set_minimal_timer_slack() {
    // It only fails for a value of 0, which means the default.
    let _ = rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystemSpace {
    /// Free space for unprivileged users.
    pub free: Bytes,
    pub total: Bytes,
}

impl FileSystemSpace {
    pub fn of(path: &Path) -> io::Result<Self> {
        let stat = rustix::fs::statvfs(path)?;
        let size = |blocks: u64| Bytes::from_bytes(blocks.saturating_mul(stat.f_frsize));
        Ok(Self { free: size(stat.f_bavail), total: size(stat.f_blocks) })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn child_of_the_given_parent_starts_and_of_another_does_not() {
        let start = |parent: u32| {
            let mut command = Command::new("true");
            // SAFETY: `die_with_parent` is async-signal-safe.
            unsafe { command.pre_exec(move || die_with_parent(Signal::KILL, parent)) };
            command.status()
        };
        assert!(start(std::process::id()).unwrap().success());
        let error = start(std::process::id() + 1).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn free_space_is_part_of_the_total() {
        let space = FileSystemSpace::of(Path::new("/tmp")).unwrap();
        assert!(space.total >= space.free && space.total.as_bytes() > 0, "{space:?}");
        assert!(FileSystemSpace::of(Path::new("/no/such/path")).is_err());
    }

    #[test]
    fn timer_slack_is_one_nanosecond() {
        std::thread::spawn(|| {
            set_minimal_timer_slack();
            assert_eq!(rustix::thread::current_timer_slack().unwrap(), 1);
        })
        .join()
        .unwrap();
    }
}
