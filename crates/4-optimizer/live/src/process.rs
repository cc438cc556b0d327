//! A process to be optimized and its threads, probed without a change.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use dbdyno_machine::{ProcStat, ProcessIdentity, process_ids, threads_of};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::LiveError;
use crate::memory::{Maps, ProcessMemory};

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

impl ProbeOptions {
    /// For a process that executes no call for dbdyno, so that its system call filter does not matter.
    pub const WITHOUT_CALLS: Self = Self { allow_seccomp: true, unmap: false };
    /// For servers that run known programs and are optimized many times.
    pub const UNMAP: Self = Self { allow_seccomp: false, unmap: true };
}

impl Process {
    /// Opens a process without a check whether it can be optimized.
    pub(crate) fn open_unchecked(
        identity: &ProcessIdentity,
        program: &Path,
        options: ProbeOptions,
    ) -> Result<Self, LiveError> {
        let memory = ProcessMemory::open(identity.pid)?;
        check_alive(identity)?;
        Ok(Self {
            identity: identity.clone(),
            memory,
            program: program.to_owned(),
            journal_directory: None,
            options,
            signal_returns: OnceLock::new(),
        })
    }

    pub fn pid(&self) -> u32 {
        self.identity.pid
    }

    /// Identity, which distinguishes it from later processes with the same ID.
    pub fn identity(&self) -> &ProcessIdentity {
        &self.identity
    }

    pub fn memory(&self) -> &ProcessMemory {
        &self.memory
    }

    /// Path of its program in its own file system.
    pub fn program(&self) -> &Path {
        &self.program
    }

    pub(crate) fn options(&self) -> ProbeOptions {
        self.options
    }

    pub(crate) fn journal_directory(&self) -> Option<&Path> {
        self.journal_directory.as_deref()
    }

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

    pub fn maps(&self) -> Result<Maps, LiveError> {
        Maps::of(self.pid())
    }
}

/// The code of glibc and musl that signal handlers return to: `mov $15, %rax; syscall`.
const PATTERNS: [&[u8]; 2] =
    [&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05], &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05]];

/// The addresses in a process's C library that signal handlers return to, ascending.
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

/// The identity of a running process.
pub(crate) fn identify(pid: u32) -> Result<ProcessIdentity, LiveError> {
    ProcessIdentity::of(pid).map_err(LiveError::proc_file("reading the state of", pid))
}

/// Checks that a process still runs, and still the same program.
pub(crate) fn check_alive(identity: &ProcessIdentity) -> Result<(), LiveError> {
    if identity.is_alive() {
        return Ok(());
    }
    identify(identity.pid)?;
    Err(LiveError::Exited { pid: identity.pid })
}

/// The IDs of a process's threads, without ended ones.
pub(crate) fn threads(pid: u32) -> Result<Vec<i32>, LiveError> {
    let threads = threads_of(pid).map_err(LiveError::proc_file("listing the threads of", pid))?;
    Ok(threads.into_iter().map(u32::cast_signed).collect())
}

/// The state of a thread as one letter; `None` if it has ended.
pub(crate) fn thread_state(pid: u32, tid: i32) -> Option<u8> {
    ProcStat::of_thread(pid, tid.cast_unsigned()).ok().map(|stat| stat.state)
}

/// Whether a thread has ended; a zombie has.
pub(crate) fn has_ended(pid: u32, tid: i32) -> bool {
    matches!(thread_state(pid, tid), None | Some(b'Z' | b'X'))
}

/// Whether a thread is one of the kernel's for the process, such as a worker of io_uring: it is listed like
/// the others, but never executes code of the program.
pub(crate) fn is_kernel_worker(pid: u32, tid: i32) -> bool {
    let stat = ProcStat::of_thread(pid, tid.cast_unsigned());
    stat.is_ok_and(|stat| stat.flags & KERNEL_WORKER != 0)
}

/// Whether a process is a thread of the kernel.
pub(crate) fn is_kernel_thread(pid: u32) -> bool {
    ProcStat::of_process(pid).is_ok_and(|stat| stat.flags & KERNEL_THREAD != 0)
}

/// `PF_KTHREAD` from `linux/sched.h`.
const KERNEL_THREAD: u64 = 0x20_0000;

/// `PF_IO_WORKER`, and `PF_USER_WORKER` of Linux 6.4 and later, from `linux/sched.h`.
const KERNEL_WORKER: u64 = 0x10 | 0x4000;

/// The highest priority of threads without real-time scheduling.
pub(crate) const HIGHEST_PRIORITY: libc::c_int = -20;

/// To Linux, the thread that calls.
const THIS_THREAD: i32 = 0;

/// Runs `work` on a new thread and waits for it.
///
/// Tracing is bound to the thread that started it. When that thread ends, the kernel releases all
/// threads that it has seized, whatever their state: so `work` cannot leave a thread stopped.
pub(crate) fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let outcome = thread::scope(|scope| {
        scope
            .spawn(|| {
                raise_priority();
                use_real_time();
                work()
            })
            .join()
    });
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Gives this thread the highest priority, if permitted, and makes its short sleeps exact: for work while
/// other threads are stopped, or that must not wait for them on a busy machine.
pub fn raise_priority() {
    set_priority(THIS_THREAD, HIGHEST_PRIORITY);
    dbdyno_machine::set_minimal_timer_slack();
}

/// Lets this thread run before all threads without real-time scheduling, if permitted. The highest nice
/// value is not enough: Linux divides CPU time between sessions first (`CONFIG_SCHED_AUTOGROUP`), and
/// nice values count within a session only.
fn use_real_time() {
    let lowest = libc::sched_param { sched_priority: 1 };
    // Processes and threads that it starts do not inherit it.
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the structure lives during the call. rustix does not support this.
    unsafe { libc::sched_setscheduler(THIS_THREAD, policy, &raw const lowest) };
}

/// Sets the nice value of a thread, if permitted.
pub(crate) fn set_priority(tid: i32, nice: i32) {
    // SAFETY: takes numbers. rustix supports this for processes only, and would reject the thread
    // ID.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, tid.cast_unsigned(), nice) };
}

const RETRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(150);

/// Calls `operation` until it succeeds or fails with an error that is not transient, with a limited
/// number of retries. Also returns the number of retries.
pub fn retry_while_busy<T, E>(
    mut operation: impl FnMut() -> Result<T, E>,
    is_transient: impl Fn(&E) -> bool,
) -> (Result<T, E>, u32) {
    for retries in 0..RETRIES {
        match operation() {
            Err(error) if is_transient(&error) => thread::sleep(PAUSE),
            outcome => return (outcome, retries),
        }
    }
    (operation(), RETRIES)
}

/// A process and its descendants.
pub fn family_of(root: u32) -> HashSet<u32> {
    let parent = |pid| Some((pid, ProcStat::of_process(pid).ok()?.parent));
    let parents: BTreeMap<u32, u32> = process_ids().filter_map(parent).collect();
    let mut family = HashSet::from([root]);
    loop {
        let before = family.len();
        let children = parents.iter().filter(|(_, parent)| family.contains(parent));
        let children: Vec<u32> = children.map(|(pid, _)| *pid).collect();
        family.extend(children);
        if family.len() == before {
            return family;
        }
    }
}

/// Permits as many open files as possible: an attached process needs two, and a server may have thousands of
/// sessions; sampling without permission for all threads needs one per thread and CPU.
pub(crate) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If it fails, what needs more files reports it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

#[cfg(test)]
pub(crate) mod testing {
    use std::process::{Child, Command};
    use std::time::Duration;
    use std::{fs, thread};

    /// Kills a process at the end of a test.
    pub(crate) struct KillOnDrop(pub(crate) Child);

    impl KillOnDrop {
        /// Starts a process that sleeps. `spawn` returns before the kernel has mapped the program.
        pub(crate) fn sleep() -> Self {
            let child = Self(Command::new("sleep").arg("60").spawn().unwrap());
            let arguments = format!("/proc/{}/cmdline", child.0.id());
            while !fs::read(&arguments).unwrap().starts_with(b"sleep\0") {
                thread::sleep(Duration::from_millis(1));
            }
            child
        }
    }

    impl Drop for KillOnDrop {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::process::testing::KillOnDrop;

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
        let child = KillOnDrop::sleep();
        let pid = child.0.id();
        let opened = Process::open(pid, ProbeOptions::default()).unwrap();
        assert!(opened.program().ends_with("sleep"));
        assert_eq!(opened.pid(), pid);
        // SAFETY: takes numbers; the child is ours and has not been waited for.
        unsafe { libc::kill(pid.cast_signed(), libc::SIGSTOP) };
        loop {
            match Process::open(pid, ProbeOptions::default()) {
                Err(error) => {
                    break assert!(error.to_string().contains("it is stopped"), "{error}");
                }
                Ok(_) => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    #[test]
    fn main_thread_is_not_a_kernel_thread() {
        let me = std::process::id();
        assert!(!is_kernel_worker(me, me.cast_signed()) && !is_kernel_thread(me));
    }

    #[test]
    fn earlier_process_with_the_same_id_has_exited() {
        let identity = identify(std::process::id()).unwrap();
        check_alive(&identity).unwrap();
        let earlier = ProcessIdentity { start_ticks: identity.start_ticks - 1, ..identity };
        assert!(matches!(check_alive(&earlier), Err(LiveError::Exited { .. })));
        assert!(matches!(identify(0x7fff_fff0), Err(LiveError::Exited { .. })));
    }

    fn policy() -> libc::c_int {
        // SAFETY: takes a number.
        unsafe { libc::sched_getscheduler(THIS_THREAD) }
    }

    #[test]
    fn own_thread_is_real_time_where_permitted_and_threads_that_it_starts_are_not() {
        let lowest = libc::sched_param { sched_priority: 1 };
        // SAFETY: the structure lives during the call.
        let is_permitted = thread::spawn(move || unsafe {
            libc::sched_setscheduler(THIS_THREAD, libc::SCHED_FIFO, &raw const lowest) == 0
        });
        let [own, started] = on_own_thread(|| [policy(), thread::spawn(policy).join().unwrap()]);
        if is_permitted.join().unwrap() {
            assert_eq!(own, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK);
        }
        assert_eq!([policy(), started], [libc::SCHED_OTHER; 2]);
    }

    #[test]
    fn transient_errors_are_retried_and_others_are_not() {
        let mut left = 2;
        let mut operation = || {
            left -= 1;
            if left > 0 { Err("busy") } else { Ok(left) }
        };
        assert_eq!(retry_while_busy(&mut operation, |error| *error == "busy"), (Ok(0), 1));
        let failing = || Err::<(), _>("exited");
        assert_eq!(retry_while_busy(failing, |error| *error == "busy"), (Err("exited"), 0));
    }
}
