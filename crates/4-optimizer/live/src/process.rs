//! Probing a process without changing it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use dbdyno_machine::ProcessIdentity;

use crate::arch::check_platform;
use crate::memory::{Maps, ProcessMemory};
use crate::probe::Status;
use crate::threads::{check_alive, identify};
use crate::{LiveError, probe};

/// A process that can be optimized, according to a probe that does not change it.
#[derive(Debug)]
pub struct Process {
    identity: ProcessIdentity,
    memory: ProcessMemory,
    program: PathBuf,
    /// Directory of its journal, once that is open.
    journal_directory: Option<PathBuf>,
    options: ProbeOptions,
    signal_returns: OnceLock<Vec<u64>>,
}

/// Options of a probe and of what follows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeOptions {
    /// Accept a system call filter (seccomp) that cannot be read, and that might kill the process for
    /// mapping memory.
    pub allow_seccomp: bool,
    /// Unmap replaced code that no thread is known to use. By default it is kept: a stack that dbdyno does
    /// not know, such as that of a coroutine on the heap, may still lead to it.
    pub unmap: bool,
}

impl Process {
    /// Probes the process with this ID.
    ///
    /// # Errors
    /// It exited or cannot be optimized, with the reason and what to try. It was not changed.
    pub fn open(pid: u32, options: ProbeOptions) -> Result<Self, LiveError> {
        check_platform()?;
        let identity = identify(pid)?;
        let program = probe::program(pid)?;
        let status = Status::of(pid)?;
        status.check_tracer(pid)?;
        status.check_state(pid)?;
        status.check_filter(pid, options)?;
        probe::check_ptrace_scope(pid)?;
        probe::check_executable(pid)?;
        probe::check_memory_writes(pid)?;
        Ok(Self { options, ..Self::open_unchecked(&identity, &program)? })
    }

    /// Opens a process without a check whether it can be optimized.
    ///
    /// # Errors
    /// It exited, or its memory cannot be accessed.
    pub(crate) fn open_unchecked(
        identity: &ProcessIdentity,
        program: &Path,
    ) -> Result<Self, LiveError> {
        let memory = ProcessMemory::open(identity.pid)?;
        check_alive(identity)?;
        Ok(Self {
            identity: identity.clone(),
            memory,
            program: program.to_owned(),
            journal_directory: None,
            options: ProbeOptions::default(),
            signal_returns: OnceLock::new(),
        })
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
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The options that it was opened with.
    pub(crate) fn options(&self) -> ProbeOptions {
        self.options
    }

    /// Directory of its journal; `None` before that is open.
    pub(crate) fn journal_directory(&self) -> Option<&Path> {
        self.journal_directory.as_deref()
    }

    /// Sets the directory of its journal.
    pub(crate) fn set_journal_directory(&mut self, directory: &Path) {
        self.journal_directory = Some(directory.to_owned());
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

/// The code of glibc and musl that signal handlers return to: `mov $15, %rax; syscall`.
const PATTERNS: [&[u8]; 2] =
    [&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05], &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05]];

/// The addresses in a process's C library that signal handlers return to, ascending.
///
/// # Errors
/// The process exited.
pub(crate) fn signal_returns(pid: u32, memory: &ProcessMemory) -> Result<Vec<u64>, LiveError> {
    let maps = Maps::of(pid)?;
    let mut found = Vec::new();
    let code = maps
        .all()
        .iter()
        .filter(|mapping| mapping.executable && mapping.readable && is_c_library(&mapping.name));
    for mapping in code {
        let size = usize::try_from(mapping.range.end - mapping.range.start).unwrap_or(usize::MAX);
        let bytes = memory.read(mapping.range.start, size)?;
        let system_calls = bytes.windows(2).enumerate().filter(|(_, pair)| **pair == [0x0f, 0x05]);
        for (offset, _) in system_calls {
            let end = offset + 2;
            let starts = PATTERNS.iter().filter_map(|pattern| {
                let start = end.checked_sub(pattern.len())?;
                (bytes[start..end] == **pattern).then_some(mapping.range.start + start as u64)
            });
            found.extend(starts);
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn is_c_library(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or_default();
    ["libc.so", "libc-2", "libpthread", "ld-musl", "libc.musl"]
        .iter()
        .any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use crate::testing::KillOnDrop;

    use super::*;

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
