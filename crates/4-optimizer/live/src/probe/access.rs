//! Permissions: of the process, of the kernel, of security modules.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::process::geteuid;

use super::{Found, note, ok};
use crate::LiveError;
use crate::memory::ProcessMemory;
use crate::threads::{has_ended, identify, is_kernel_thread};

/// Path of a process's program.
///
/// # Errors
/// The process has none, or this user may not read it.
pub(crate) fn program(pid: u32) -> Result<PathBuf, LiveError> {
    if pid == std::process::id() {
        return Err(LiveError::refused(pid, "it is dbdyno itself"));
    }
    fs::read_link(format!("/proc/{pid}/exe")).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound if is_kernel_thread(pid) => {
            LiveError::refused(pid, "it is a kernel thread")
        }
        std::io::ErrorKind::NotFound if has_no_main_thread(pid) => {
            LiveError::refused(pid, "its main thread has ended")
        }
        // While it ends, and as a zombie, it has no program.
        std::io::ErrorKind::NotFound => LiveError::Exited { pid },
        std::io::ErrorKind::PermissionDenied => {
            let owner = fs::metadata(format!("/proc/{pid}")).map(|it| it.uid()).ok();
            LiveError::refused(pid, inaccessible(owner, geteuid().as_raw()))
        }
        _ => LiveError::system("reading the program path of", pid)(error),
    })
}

/// Whether the main thread of a process has ended, and others run.
fn has_no_main_thread(pid: u32) -> bool {
    identify(pid).is_ok() && has_ended(pid, pid.cast_signed())
}

/// Why this user may not read a process.
fn inaccessible(owner: Option<u32>, own: u32) -> String {
    match owner {
        Some(owner) if owner != own => format!(
            "it belongs to the user with ID {owner}, and dbdyno runs as user {own}; run dbdyno as \
             root or as that user"
        ),
        // Such as a program with capabilities.
        _ => "it has privileges that this user does not have; run dbdyno as root".to_owned(),
    }
}

/// Checks the permission to trace. The kernel requires the same for access to the memory.
pub(super) fn check(pid: u32) -> Result<Found, LiveError> {
    check_ptrace_scope(pid)?;
    ProcessMemory::open(pid)?;
    ok("this user may trace it")
}

/// Checks whether the security module Yama permits tracing.
pub(crate) fn check_ptrace_scope(pid: u32) -> Result<(), LiveError> {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let may_trace = fs::read_to_string("/proc/self/status").ok().and_then(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        let capabilities = u64::from_str_radix(line.trim(), 16).ok()?;
        const CAP_SYS_PTRACE: u32 = 19;
        Some(capabilities >> CAP_SYS_PTRACE & 1 == 1)
    });
    // The kernel asks Yama for access to the memory, too.
    let is_permitted = || ProcessMemory::open(pid).is_ok();
    refused_by_yama(scope.trim(), may_trace, is_permitted)
        .map_or(Ok(()), |what| Err(LiveError::refused(pid, what)))
}

/// Why Yama forbids to trace. `may_trace`: whether dbdyno has the capability. `is_permitted`: whether it may trace
/// this process in particular: with 1, its own descendants, and those that permit it.
fn refused_by_yama(
    scope: &str,
    may_trace: Option<bool>,
    is_permitted: impl FnOnce() -> bool,
) -> Option<String> {
    match (scope, may_trace) {
        ("3", _) => Some(
            "kernel.yama.ptrace_scope is 3, which prohibits tracing until the next boot".to_owned(),
        ),
        ("1", Some(false)) if is_permitted() => None,
        ("1" | "2", Some(false)) => Some(format!(
            "kernel.yama.ptrace_scope is {scope}, which permits only root to trace; run as root, or: \
             sysctl kernel.yama.ptrace_scope=0"
        )),
        _ => None,
    }
}

/// Checks whether the kernel permits writing to code through `/proc/PID/mem`, by writing to a
/// read-only page of dbdyno itself.
///
/// # Errors
/// It does not (`proc_mem.force_override`).
pub(crate) fn check_memory_writes(pid: u32) -> Result<(), LiveError> {
    const SIZE: usize = 4096;
    let failed = || LiveError::system("testing writes to read-only memory, before changing", pid);
    // SAFETY: a new mapping at an address that the kernel chooses.
    let page = unsafe {
        mmap_anonymous(std::ptr::null_mut(), SIZE, ProtFlags::READ, MapFlags::PRIVATE)
            .map_err(|error| failed()(error.into()))?
    };
    let written = File::options()
        .write(true)
        .open("/proc/self/mem")
        .and_then(|memory| memory.write_all_at(&[1], page as u64));
    // SAFETY: the mapping above, which nothing else uses. If it fails, one page stays.
    let _ = unsafe { munmap(page, SIZE) };
    written.map_err(|error| {
        LiveError::refused(
            pid,
            format!(
                "the kernel does not permit writing to code of other processes ({error}); start it \
                 with proc_mem.force_override=always"
            ),
        )
    })
}

/// Checks whether SELinux may forbid new executable memory.
pub(super) fn check_security_module(pid: u32) -> Result<Found, LiveError> {
    let context = fs::read_to_string(format!("/proc/{pid}/attr/current")).unwrap_or_default();
    selinux(Path::new("/sys/fs/selinux"), context.trim_end_matches(['\0', '\n']))
}

/// `root`: the directory of SELinux.
fn selinux(root: &Path, context: &str) -> Result<Found, LiveError> {
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_default();
    if read("enforce").trim() != "1" {
        return ok("SELinux does not forbid anything");
    }
    let denied = read("booleans/deny_execmem").starts_with('1');
    let what = if denied { "the boolean deny_execmem forbids" } else { "its policy may forbid" };
    note(format!(
        "SELinux is enforcing, and the process runs as `{context}`: {what} executable memory without a \
         file (execmem); if so, the optimization is refused before anything is redirected"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::CheckResult;
    use super::*;

    #[test]
    fn zombie_has_exited() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        while !has_ended(pid, pid.cast_signed()) {
            std::thread::yield_now();
        }
        let found = program(pid);
        child.wait().unwrap();
        assert!(matches!(found, Err(LiveError::Exited { .. })), "{found:?}");
    }

    #[test]
    fn process_of_another_user_is_refused_with_both_users() {
        let text = inaccessible(Some(105), 1_000);
        assert!(text.contains("user with ID 105, and dbdyno runs as user 1000"), "{text}");
        assert!(inaccessible(Some(0), 0).contains("privileges"));
        assert!(inaccessible(None, 1_000).contains("run dbdyno as root"));
    }

    #[test]
    fn yama_forbids_without_the_capability_or_in_any_case() {
        let refused = |scope, may_trace| refused_by_yama(scope, may_trace, || false);
        assert_eq!(refused("", Some(false)), None);
        assert_eq!(refused("0", Some(false)), None);
        assert_eq!(refused("1", Some(true)), None);
        assert!(refused("1", Some(false)).unwrap().contains("ptrace_scope=0"));
        assert!(refused("3", Some(true)).unwrap().contains("until the next boot"));
    }

    #[test]
    fn yama_permits_tracing_of_own_descendants_only_in_scope_1() {
        let is_refused = |scope| refused_by_yama(scope, Some(false), || true).is_some();
        assert_eq!(["1", "2", "3"].map(is_refused), [false, true, true]);
    }

    #[test]
    fn selinux_is_noted_only_while_it_is_enforcing() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let result = || selinux(root, "system_u:system_r:mysqld_t:s0").unwrap();
        assert_eq!(result().0, CheckResult::Ok);
        fs::write(root.join("enforce"), "1").unwrap();
        assert_eq!(result().0, CheckResult::Note);
        assert!(result().1.contains("`system_u:system_r:mysqld_t:s0`: its policy may forbid"));
        fs::create_dir(root.join("booleans")).unwrap();
        fs::write(root.join("booleans/deny_execmem"), "1 1").unwrap();
        assert!(result().1.contains("deny_execmem forbids"));
        fs::write(root.join("enforce"), "0").unwrap();
        assert_eq!(result().0, CheckResult::Ok);
    }

    #[test]
    fn read_only_memory_is_writable_from_outside() {
        check_memory_writes(1).unwrap();
    }
}
