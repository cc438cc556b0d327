//! A look at a process before anything in it is touched.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::identity::{Identity, Stat};
use crate::memory::ProcessMemory;
use crate::{LiveError, Maps};

/// A process that can be optimized, as far as can be seen from outside.
#[derive(Debug)]
pub struct Process {
    identity: Identity,
    memory: ProcessMemory,
    program: PathBuf,
    restorers: OnceLock<Vec<u64>>,
}

/// What is taken as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeOptions {
    /// Go on although a filter of system calls is in force, which might kill the process for a
    /// call that it does not expect.
    pub seccomp: bool,
}

impl Process {
    /// Looks at the process with this number.
    ///
    /// # Errors
    /// It is gone, or why it cannot be optimized and what to try. Nothing was touched.
    pub fn open(pid: u32, probe: ProbeOptions) -> Result<Self, LiveError> {
        let identity = Identity::of(pid)?;
        if pid == std::process::id() {
            return Err(LiveError::refused(pid, "it is dbdyno itself"));
        }
        let program =
            fs::read_link(format!("/proc/{pid}/exe")).map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => {
                    LiveError::refused(pid, "it is a thread of the kernel")
                }
                _ => LiveError::system("looking at the program of", pid)(error),
            })?;
        check_status(pid, probe)?;
        check_scope(pid)?;
        check_program(pid)?;
        let memory = ProcessMemory::open(pid)?;
        identity.check()?;
        Ok(Self { identity, memory, program, restorers: OnceLock::new() })
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.identity.pid
    }

    /// Which process it is, for good.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Its memory.
    #[must_use]
    pub fn memory(&self) -> &ProcessMemory {
        &self.memory
    }

    /// The file of its program, by the name in its own file system.
    #[must_use]
    pub fn program(&self) -> &std::path::Path {
        &self.program
    }

    /// The process that started it.
    #[must_use]
    pub fn parent(&self) -> Option<u32> {
        Stat::of(&format!("/proc/{}/stat", self.pid())).map(|stat| stat.parent)
    }

    /// Where its signal handlers return to, ascending.
    pub(crate) fn restorers(&self) -> Result<&[u64], LiveError> {
        if let Some(found) = self.restorers.get() {
            return Ok(found);
        }
        let found = crate::trace::restorers(self.pid(), &self.memory)?;
        Ok(self.restorers.get_or_init(|| found))
    }

    /// Its present mappings.
    ///
    /// # Errors
    /// It is gone.
    pub fn maps(&self) -> Result<Maps, LiveError> {
        Maps::of(self.pid())
    }
}

fn check_status(pid: u32, probe: ProbeOptions) -> Result<(), LiveError> {
    let status =
        fs::read_to_string(format!("/proc/{pid}/status")).map_err(|_| LiveError::Gone { pid })?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(|rest| rest.trim_start_matches(':').trim())
    };
    let tracer: u32 = field("TracerPid").and_then(|text| text.parse().ok()).unwrap_or(0);
    if tracer != 0 {
        let name = fs::read_to_string(format!("/proc/{tracer}/comm")).unwrap_or_default();
        return Err(LiveError::refused(
            pid,
            format!("process {tracer} ({}) traces it; end that debugger or tracer", name.trim()),
        ));
    }
    if field("State").is_some_and(|state| state.starts_with(['T', 't'])) {
        return Err(LiveError::refused(
            pid,
            format!("it is stopped; let it run with: kill -CONT {pid}"),
        ));
    }
    if !probe.seccomp && field("Seccomp").is_some_and(|mode| mode != "0") {
        return Err(LiveError::refused(
            pid,
            "a filter of system calls (seccomp) is in force, which may kill it for mapping \
             memory; if its filter permits mmap, munmap and madvise, say --allow-seccomp",
        ));
    }
    Ok(())
}

/// The security module Yama may keep processes from tracing each other.
fn check_scope(pid: u32) -> Result<(), LiveError> {
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
            "kernel.yama.ptrace_scope is 3: nobody may trace until the machine is started anew",
        )),
        ("1" | "2", Some(false)) => Err(LiveError::refused(
            pid,
            format!(
                "kernel.yama.ptrace_scope is {}, which lets only root trace others; try as root, \
                 or: sysctl kernel.yama.ptrace_scope=0",
                scope.trim()
            ),
        )),
        _ => Ok(()),
    }
}

/// 64-bit x86, linked dynamically.
fn check_program(pid: u32) -> Result<(), LiveError> {
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
        return Err(LiveError::refused(pid, "it is a 32-bit program; only x86-64 is understood"));
    }
    if header[18..20] != X86_64 {
        return Err(LiveError::refused(pid, "it is no program for x86-64"));
    }
    const PT_INTERP: u8 = 3;
    let table = usize::from(header[32]) | usize::from(header[33]) << 8;
    let count = usize::from(header[56]) | usize::from(header[57]) << 8;
    let mut kinds = (0..count).filter_map(|index| header.get(table + index * 56));
    if !kinds.any(|kind| *kind == PT_INTERP) {
        return Err(LiveError::refused(
            pid,
            "it is linked statically; only dynamically linked programs are understood",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    struct Ended(Child);

    impl Drop for Ended {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn refusal(pid: u32) -> String {
        Process::open(pid, ProbeOptions::default()).unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_be_optimized_is_refused_with_a_reason() {
        assert!(refusal(std::process::id()).contains("dbdyno itself"));
        assert!(refusal(2).contains("thread of the kernel"), "{}", refusal(2));
        assert!(refusal(0x7fff_fff0).contains("does not exist"));
    }

    #[test]
    fn a_stopped_process_is_refused_and_a_running_one_is_not() {
        let child = Ended(Command::new("sleep").arg("60").spawn().unwrap());
        let pid = child.0.id();
        let opened = loop {
            // Until the new process has become `sleep`.
            match Process::open(pid, ProbeOptions::default()) {
                Ok(process) if process.program().ends_with("sleep") => break process,
                Ok(_) | Err(_) => std::thread::sleep(std::time::Duration::from_millis(5)),
            }
        };
        assert_eq!(opened.parent(), Some(std::process::id()));
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
