//! One dbdyno at a time changes a process, whatever its user, directory of journals or container.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use dbdyno_machine::safe_files::SafeDir;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, PROC_SUPER_MAGIC, fstatfs, major, minor, openat, statat,
};

use crate::LiveError;

/// The lock of a process: on its file `mem`, which only those who may read its memory can open, so that no other user
/// can hold it. The kernel releases it when the last process with the open file ends: dbdyno, or its watchdog.
#[derive(Debug)]
pub struct ProcessLock {
    _memory: File,
}

impl ProcessLock {
    /// # Errors
    /// [`LiveError::Locked`] if another dbdyno has it for longer than [`lock_patiently`] waits.
    pub fn take(pid: u32) -> Result<Self, LiveError> {
        let memory = memory_file(pid).map_err(LiveError::proc_file("locking", pid))?;
        match lock_patiently(&memory).map_err(LiveError::proc_file("locking", pid))? {
            true => Ok(Self { _memory: memory }),
            false => Err(LiveError::Locked { pid, by: holder(&memory) }),
        }
    }
}

/// Locks a file. Returns false if another dbdyno has it locked for 5 s: the watchdog of a killed one needs less, on a busy
/// machine seconds.
pub(crate) fn lock_patiently(file: &File) -> io::Result<bool> {
    const ATTEMPTS: u32 = 1_000;
    for _ in 0..ATTEMPTS {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(false)
}

/// The file `mem` of a process in the `/proc` that the process sees, which is the same for whoever asks in whatever
/// container; in dbdyno's own `/proc` if it sees none. Each mounted `/proc` has files and locks of its own.
fn memory_file(pid: u32) -> io::Result<File> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or("");
    // Its number in its own namespace is the last one, but it may see the `/proc` of an outer one.
    let seen = numbers.split_whitespace().rev().find_map(|number| seen_by_itself(pid, number));
    match seen {
        Some(place) => File::open(format!("/proc/self/fd/{}", place.as_raw_fd())),
        None => File::open(format!("/proc/{pid}/mem")),
    }
}

/// The file `mem`, not opened yet, if the process has this number in the `/proc` that it sees. What is at that path may be
/// of its user's making: no link is followed, and nothing but a file of a `/proc` is opened.
fn seen_by_itself(pid: u32, number: &str) -> Option<OwnedFd> {
    let process = format!("/proc/{pid}");
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = SafeDir::from(openat(CWD, format!("{process}/root"), flags, Mode::empty()).ok()?);
    let inner = root.open_beneath(&Path::new("proc").join(number), flags, Mode::empty()).ok()?;
    let is_of_proc = |file: &OwnedFd| fstatfs(file).is_ok_and(|it| it.f_type == PROC_SUPER_MAGIC);
    if !is_of_proc(&inner) {
        return None;
    }
    // In another namespace, another process has this number.
    let namespace = fs::metadata(format!("{process}/ns/pid")).ok()?.ino();
    if statat(&inner, "ns/pid", AtFlags::empty()).ok()?.st_ino != namespace {
        return None;
    }
    let place = SafeDir::from(inner).open_beneath(Path::new("mem"), OFlags::PATH, Mode::empty());
    place.ok().filter(is_of_proc)
}

/// The process that has the lock; `None` if it is in another container, or has just ended.
fn holder(memory: &File) -> Option<u32> {
    let metadata = memory.metadata().ok()?;
    let device = metadata.dev();
    let file = format!("{:02x}:{:02x}:{}", major(device), minor(device), metadata.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| holder_in(line, &file))
}

/// The process of a line of `/proc/locks` such as `1: FLOCK  ADVISORY  WRITE 31319 00:15:5032749 0 EOF`, if it is about this
/// file. Waiting processes have an arrow before `FLOCK`.
fn holder_in(line: &str, file: &str) -> Option<u32> {
    match line.split_whitespace().collect::<Vec<_>>()[..] {
        [_, "FLOCK", _, _, process, of, ..] if of == file => process.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::process::testing::KillOnDrop;

    /// A process, with namespaces of its own by these options; `None` if this user may not make them.
    fn other(options: &[&str]) -> Option<KillOnDrop> {
        let unshare = |program: &[&str]| {
            let mut command = Command::new("unshare");
            command.args(options).args(program).stderr(Stdio::null());
            command
        };
        if !unshare(&["true"]).status().unwrap().success() {
            return None;
        }
        let child = KillOnDrop(unshare(&["sleep", "1000"]).spawn().unwrap());
        let name = format!("/proc/{}/comm", child.0.id());
        while fs::read_to_string(&name).unwrap().trim() != "sleep" {
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(child)
    }

    #[test]
    fn process_is_locked_once_in_any_namespace() {
        for options in [&[][..], &["--net"], &["--mount-proc"]] {
            let Some(child) = other(options) else { continue };
            let lock = ProcessLock::take(child.0.id()).unwrap();
            let refused = ProcessLock::take(child.0.id()).unwrap_err();
            let me = std::process::id();
            assert!(
                matches!(refused, LiveError::Locked { by: Some(by), .. } if by == me),
                "{options:?}: {refused}"
            );
            drop(lock);
            ProcessLock::take(child.0.id()).unwrap();
        }
    }

    #[test]
    fn lock_is_on_the_file_that_the_process_sees() {
        let Some(child) = other(&["--mount-proc"]) else {
            return dbdyno_fuzz::skip("mount namespaces are not permitted");
        };
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        let pid = child.0.id();
        let locked = memory_file(pid).unwrap().metadata().unwrap().ino();
        assert_eq!(locked, inode(Path::new(&format!("/proc/{pid}/root/proc/{pid}/mem"))));
        assert_ne!(locked, inode(Path::new(&format!("/proc/{pid}/mem"))));
    }

    #[test]
    fn another_user_cannot_hold_the_lock() {
        if !rustix::process::geteuid().is_root() {
            return dbdyno_fuzz::skip("only root can start a process of another user");
        }
        let child = other(&[]).unwrap();
        let pid = child.0.id();
        let flock = || {
            let mut command = Command::new("flock");
            command.args(["--nonblock", &format!("/proc/{pid}/root/proc/{pid}/mem"), "true"]);
            command.stderr(Stdio::null());
            command
        };
        assert!(flock().status().unwrap().success());
        assert!(!flock().uid(65534).gid(65534).status().unwrap().success());
        let lock = ProcessLock::take(pid).unwrap();
        assert!(!flock().status().unwrap().success());
        drop(lock);
    }

    #[test]
    fn holder_is_found_by_its_file() {
        let line = "1: FLOCK  ADVISORY  WRITE 31319 00:15:5032749 0 EOF";
        assert_eq!(holder_in(line, "00:15:5032749"), Some(31319));
        assert_eq!(holder_in(line, "00:15:503274"), None);
        let waiting = "1: -> FLOCK  ADVISORY  WRITE 31320 00:15:5032749 0 EOF";
        assert_eq!(holder_in(waiting, "00:15:5032749"), None);
    }
}
