//! Probing a process without changing it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use rustix::process::geteuid;

use crate::memory::ProcessMemory;
use crate::signal_returns::signal_returns;
use crate::threads::{check_alive, identify};
use crate::{LiveError, Maps};
use dbdyno_machine::ProcessIdentity;

/// A process that can be optimized, according to a probe that does not change it.
#[derive(Debug)]
pub struct Process {
    identity: ProcessIdentity,
    memory: ProcessMemory,
    program: PathBuf,
    signal_returns: OnceLock<Vec<u64>>,
}

/// Options of a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeOptions {
    /// Accept a process with a system call filter (seccomp), which might kill it for mapping memory.
    pub allow_seccomp: bool,
}

impl Process {
    /// Probes the process with this ID.
    ///
    /// # Errors
    /// It exited or cannot be optimized, with the reason and what to try. It was not changed.
    pub fn open(pid: u32, probe: ProbeOptions) -> Result<Self, LiveError> {
        let identity = identify(pid)?;
        if pid == std::process::id() {
            return Err(LiveError::refused(pid, "it is dbdyno itself"));
        }
        let program =
            fs::read_link(format!("/proc/{pid}/exe")).map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => LiveError::refused(pid, "it is a kernel thread"),
                std::io::ErrorKind::PermissionDenied => {
                    let owner = fs::metadata(format!("/proc/{pid}")).map(|it| it.uid()).ok();
                    LiveError::refused(pid, inaccessible(owner, geteuid().as_raw()))
                }
                _ => LiveError::system("reading the program path of", pid)(error),
            })?;
        check_status(pid, probe)?;
        check_ptrace_scope(pid)?;
        check_executable(pid)?;
        let memory = ProcessMemory::open(pid)?;
        check_alive(&identity)?;
        Ok(Self { identity, memory, program, signal_returns: OnceLock::new() })
    }

    /// Process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.identity.pid
    }

    /// Identity, which distinguishes it from later processes with the same ID.
    #[must_use]
    pub fn identity(&self) -> &ProcessIdentity {
        &self.identity
    }

    /// Memory.
    #[must_use]
    pub fn memory(&self) -> &ProcessMemory {
        &self.memory
    }

    /// Path of its program in its own file system.
    #[must_use]
    pub fn program(&self) -> &std::path::Path {
        &self.program
    }

    /// Addresses that signal handlers return to, ascending.
    pub(crate) fn signal_returns(&self) -> Result<&[u64], LiveError> {
        if let Some(found) = self.signal_returns.get() {
            return Ok(found);
        }
        let found = signal_returns(self.pid(), &self.memory)?;
        Ok(self.signal_returns.get_or_init(|| found))
    }

    /// Current mappings.
    ///
    /// # Errors
    /// It exited.
    pub fn maps(&self) -> Result<Maps, LiveError> {
        Maps::of(self.pid())
    }
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

fn check_status(pid: u32, probe: ProbeOptions) -> Result<(), LiveError> {
    let status =
        fs::read_to_string(format!("/proc/{pid}/status")).map_err(|_| LiveError::Exited { pid })?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(|rest| rest.trim_start_matches(':').trim())
    };
    let tracer: u32 = field("TracerPid").and_then(|text| text.parse().ok()).unwrap_or(0);
    if tracer != 0 {
        let name = fs::read_to_string(format!("/proc/{tracer}/comm")).unwrap_or_default();
        return Err(LiveError::refused(
            pid,
            format!("process {tracer} ({}) traces it; detach that debugger or tracer", name.trim()),
        ));
    }
    if field("State").is_some_and(|state| state.starts_with(['T', 't'])) {
        return Err(LiveError::refused(
            pid,
            format!("it is stopped; resume it with: kill -CONT {pid}"),
        ));
    }
    if !probe.allow_seccomp && field("Seccomp").is_some_and(|mode| mode != "0") {
        return Err(LiveError::refused(
            pid,
            "it has a system call filter (seccomp), which may kill it for mapping memory; if the \
             filter permits mmap, munmap and madvise, use --allow-seccomp",
        ));
    }
    Ok(())
}

/// Checks whether the security module Yama permits tracing.
fn check_ptrace_scope(pid: u32) -> Result<(), LiveError> {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let may_trace = fs::read_to_string("/proc/self/status").ok().and_then(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        let capabilities = u64::from_str_radix(line.trim(), 16).ok()?;
        const CAP_SYS_PTRACE: u32 = 19;
        Some(capabilities >> CAP_SYS_PTRACE & 1 == 1)
    });
    match (scope.trim(), may_trace) {
        ("3", _) => Err(LiveError::refused(
            pid,
            "kernel.yama.ptrace_scope is 3, which prohibits tracing until the next boot",
        )),
        ("1" | "2", Some(false)) => Err(LiveError::refused(
            pid,
            format!(
                "kernel.yama.ptrace_scope is {}, which permits only root to trace; run as root, or: \
                 sysctl kernel.yama.ptrace_scope=0",
                scope.trim()
            ),
        )),
        _ => Ok(()),
    }
}

/// Checks that the program is for x86-64 and dynamically linked.
fn check_executable(pid: u32) -> Result<(), LiveError> {
    let path = format!("/proc/{pid}/exe");
    let file = fs::File::open(&path).map_err(LiveError::system("opening the program of", pid))?;
    let mut header = [0_u8; 4096];
    let got = std::os::unix::fs::FileExt::read_at(&file, &mut header, 0)
        .map_err(LiveError::system("reading the program of", pid))?;
    let header = &header[..got];
    if header.len() < 64 || header[..4] != *b"\x7fELF" {
        return Err(LiveError::refused(pid, "its program is not an ELF file"));
    }
    const CLASS_64: u8 = 2;
    const X86_64: [u8; 2] = [62, 0];
    if header[4] != CLASS_64 {
        return Err(LiveError::refused(pid, "it is a 32-bit program; only x86-64 is supported"));
    }
    if header[18..20] != X86_64 {
        return Err(LiveError::refused(pid, "it is not a program for x86-64"));
    }
    const PT_INTERP: u8 = 3;
    let table = usize::from(header[32]) | usize::from(header[33]) << 8;
    let count = usize::from(header[56]) | usize::from(header[57]) << 8;
    let mut kinds = (0..count).filter_map(|index| header.get(table + index * 56));
    if !kinds.any(|kind| *kind == PT_INTERP) {
        return Err(LiveError::refused(
            pid,
            "it is statically linked; only dynamically linked programs are supported",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    struct KillOnDrop(Child);

    impl Drop for KillOnDrop {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn refusal(pid: u32) -> String {
        Process::open(pid, ProbeOptions::default()).unwrap_err().to_string()
    }

    #[test]
    fn unsupported_processes_are_refused_with_a_reason() {
        assert!(refusal(std::process::id()).contains("dbdyno itself"));
        // A PID namespace has no kernel threads.
        if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
            assert!(refusal(2).contains("kernel thread"), "{}", refusal(2));
        }
        assert!(refusal(0x7fff_fff0).contains("does not exist"));
    }

    #[test]
    fn process_of_another_user_is_refused_with_both_users() {
        let text = inaccessible(Some(105), 1_000);
        assert!(text.contains("user with ID 105, and dbdyno runs as user 1000"), "{text}");
        assert!(inaccessible(Some(0), 0).contains("privileges"));
        assert!(inaccessible(None, 1_000).contains("run dbdyno as root"));
    }

    #[test]
    fn stopped_process_is_refused_and_running_one_is_not() {
        let child = KillOnDrop(Command::new("sleep").arg("60").spawn().unwrap());
        let pid = child.0.id();
        let opened = loop {
            // Until the child has executed `sleep`.
            match Process::open(pid, ProbeOptions::default()) {
                Ok(process) if process.program().ends_with("sleep") => break process,
                Ok(_) | Err(_) => std::thread::sleep(std::time::Duration::from_millis(5)),
            }
        };
        assert_eq!(opened.pid(), pid);
        // SAFETY: takes numbers; the child is ours and has not been waited for.
        unsafe { libc::kill(pid.cast_signed(), libc::SIGSTOP) };
        loop {
            match Process::open(pid, ProbeOptions::default()) {
                Err(error) => {
                    break assert!(error.to_string().contains("it is stopped"), "{error}");
                }
                Ok(_) => std::thread::sleep(std::time::Duration::from_millis(5)),
            }
        }
    }
}
