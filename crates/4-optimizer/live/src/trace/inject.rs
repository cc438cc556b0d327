//! System calls and function calls executed by a thread of the process.

use std::io;
use std::ops::Range;
use std::thread::sleep;
use std::time::{Duration, Instant};

use dbdyno_units::Nanos;

use super::raw::{self, Registers};
use super::session::{StoppedThread, UnstoppedThreads, present_call};
use super::stacks::{StackWord, Stacks};
use super::stub::{self, FunctionCall, StubData, SystemCall};
use super::system_calls::is_in_critical_section;
use super::{seccomp, system_calls};
use crate::memory::{Mapping, Maps, ProcessMemory};
use crate::module::Module;
use crate::probe::{FilterMode, Status};
use crate::process::{Process, check_alive, has_ended, is_kernel_worker, threads};
use crate::watchdog::{MIN_LIMIT, Watchdog, watched};
use crate::{LiveError, arch};

/// A thread that does not stop in this time is skipped.
const STOP_WITHIN: Duration = Duration::from_millis(20);
/// Maximum time of the search for a suitable thread.
const SEARCH_TIME: Duration = Duration::from_secs(3);
/// Maximum time of a stub. It usually takes microseconds, but a called function may wait for a lock
/// held by a thread that does not get a CPU.
const DONE_WITHIN: Duration = Duration::from_secs(5);
const ALL_SIGNALS: u64 = u64::MAX;

/// System calls in which a thread waits without holding a lock of the C library. A thread that waits
/// for a futex may hold one.
const IDLE: [i64; 18] = [
    libc::SYS_read,
    arch::SYS_POLL,
    libc::SYS_ppoll,
    arch::SYS_EPOLL_WAIT,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    arch::SYS_SELECT,
    libc::SYS_pselect6,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
    libc::SYS_wait4,
    arch::SYS_PAUSE,
];

/// Libraries that hold locks while they run, which a called function might need. So does code of other files
/// that define [`ALLOCATION`].
const RUNTIMES: [&str; 12] = [
    "libc.",
    "libc-",
    "ld-",
    "libgcc",
    "libstdc++",
    "libc++",
    "libunwind",
    "libpthread",
    "libjemalloc",
    "libtcmalloc",
    "libmimalloc",
    "[",
];

/// The function with which a called function might allocate memory.
const ALLOCATION: &str = "malloc";

/// Makes a thread execute system calls, in a stub at `address`, ignoring their results.
pub(crate) fn make_system_calls(
    process: &Process,
    address: u64,
    calls: &[SystemCall],
) -> Result<(), LiveError> {
    let build = |after: &Registers, mask| stub::system_calls(address, calls, after, mask);
    let stacks = Stacks::of(process)?;
    let task = "map memory";
    let (stacks, build) = (&stacks, &build);
    let job = ThreadJob { process, stacks, address, calls, build, task, done_within: DONE_WITHIN };
    job.run(|_| true)
}

/// Checks that the system call filters of some thread, if it has any, permit these calls. The thread is
/// stopped for that. `allow_unreadable`: filters that cannot be read permit everything.
pub(crate) fn check_filters(
    process: &Process,
    calls: &[SystemCall],
    allow_unreadable: bool,
) -> Result<(), LiveError> {
    let pid = process.pid();
    if Status::of(pid)?.filter_mode() == FilterMode::None {
        return Ok(());
    }
    let calls = [calls, &[stub::mask_call(0)]].concat();
    watched(pid, MIN_LIMIT, |watchdog| {
        let mut unstopped = UnstoppedThreads::of(pid, watchdog);
        let start = Instant::now();
        let is_over = || start.elapsed() >= SEARCH_TIME;
        while !is_over() {
            let mut refused = None;
            for tid in by_suitability(pid)?.into_iter().take_while(|_| !is_over()) {
                watchdog.beat();
                unstopped.release();
                let thread = StoppedThread::seize(pid, tid, STOP_WITHIN, &mut unstopped)?;
                let Some(thread) = thread else { continue };
                let found = seccomp::forbidden(tid, 0, &calls);
                thread.release();
                match found.or_else(|error| unreadable(pid, error, allow_unreadable))? {
                    None => return Ok(()),
                    found => refused = found,
                }
            }
            if let Some(what) = refused {
                return Err(refused_by_filter(pid, &what));
            }
            unstopped.release();
            sleep(Duration::from_millis(1));
        }
        let task = "show its system call filter";
        Err(LiveError::NoSafePoint { pid, task, waited: Nanos::from(SEARCH_TIME) })
    })
}

/// What filters forbid that cannot be read: nothing, if that is allowed.
fn unreadable(pid: u32, error: io::Error, is_allowed: bool) -> Result<Option<String>, LiveError> {
    let failed = LiveError::system("reading the system call filter of", pid);
    if is_allowed { Ok(None) } else { Err(failed(error)) }
}

fn refused_by_filter(pid: u32, what: &str) -> LiveError {
    let reason = format!("its system call filter (seccomp) {what}; nothing was changed");
    LiveError::refused(pid, reason)
}

/// Makes a thread call functions of the process, in a stub at `address`.
///
/// The thread must not hold a lock that such a function needs. Therefore it must wait for work in
/// the kernel or run code of the program itself, and must not be in a signal handler, except one
/// that interrupted such a wait. `original` maps an instruction of new code to its original.
///
/// # Errors
/// No thread could do it, or the process exited. Some of the functions may have been called; the
/// counter in `data` has their number.
pub(crate) fn call_functions(
    process: &Process,
    address: u64,
    functions: &[FunctionCall],
    data: &StubData,
    original: &(dyn Fn(u64) -> u64 + Sync),
) -> Result<(), LiveError> {
    let build = |after: &Registers, mask| stub::functions(address, functions, data, after, mask);
    let stacks = Stacks::of(process)?;
    let own_code = own_code(process)?;
    let is_own_code = |address: u64| own_code.iter().any(|range| range.contains(&address));
    let is_safe = |thread: &StoppedThread| {
        let is_at_safe_point = match thread.interrupted_call() {
            Some(call) => IDLE.contains(&call),
            None => thread.is_in_user_code() && is_own_code(original(thread.registers.rip)),
        };
        is_at_safe_point && interrupted_waits_only(process, &stacks, thread)
    };
    let task = "call a function";
    let (stacks, build, calls) = (&stacks, &build, &[]);
    let job = ThreadJob { process, stacks, address, calls, build, task, done_within: DONE_WITHIN };
    job.run(is_safe)
}

/// For [`Stacks::visit`]: only one thread is stopped, so that its stacks are read without a limit of time.
const fn unlimited() -> bool {
    false
}

/// Whether all signal handlers that a thread is in have interrupted a wait. Some servers fork
/// processes in a handler, which never leave it.
fn interrupted_waits_only(process: &Process, stacks: &Stacks<'_>, thread: &StoppedThread) -> bool {
    let memory = process.memory();
    let mut interrupted = Vec::new();
    let in_handler = stacks.visit(memory, &thread.registers, unlimited, |word, kind| {
        if kind == StackWord::SavedInstruction {
            interrupted.push(word);
        }
    });
    if in_handler == Some(false) {
        return true;
    }
    let is_known = !interrupted.is_empty();
    interrupted.retain(|address| !is_idle_call(memory, *address));
    if interrupted.is_empty() {
        return is_known;
    }
    // Remains of a finished handler look the same until they are partly overwritten; the saved
    // address is then not in code.
    let is_code =
        |maps: &Maps, address| maps.at(address).is_some_and(|mapping: &Mapping| mapping.executable);
    process.maps().is_ok_and(|maps| !interrupted.iter().any(|address| is_code(&maps, *address)))
}

/// Whether a thread that resumes at this address was in a system call of [`IDLE`]: it resumes after
/// the instruction with `EINTR`, or at the instruction to restart the call.
fn is_idle_call(memory: &ProcessMemory, address: u64) -> bool {
    // mov eax, NUMBER; syscall
    const SIZE: u64 = 7;
    [address, address + 2].into_iter().any(|end| {
        let bytes = memory.read(end.saturating_sub(SIZE), SIZE as usize).unwrap_or_default();
        let [0xb8, a, b, c, d, 0x0f, 0x05] = bytes[..] else { return false };
        IDLE.contains(&i64::from(u32::from_le_bytes([a, b, c, d])))
    })
}

/// A stub for one thread.
struct ThreadJob<'a> {
    process: &'a Process,
    stacks: &'a Stacks<'a>,
    address: u64,
    /// System calls of the stub, besides the one that restores the signal mask.
    calls: &'a [SystemCall],
    build: &'a (dyn Fn(&Registers, u64) -> Vec<u8> + Sync),
    task: &'static str,
    /// Maximum time of the stub.
    done_within: Duration,
}

/// A stub that a thread is in, and the state of the thread before.
struct EnteredStub {
    range: Range<u64>,
    registers: Registers,
    vectors: Vec<u8>,
    mask: u64,
}

impl EnteredStub {
    /// Moves a thread out of a function that waits for a lock and has had no effect yet, and one that has never
    /// run out of the stub.
    fn leave(&self, pid: u32, now: &StoppedThread) -> Result<(), LiveError> {
        let vectors = match now.interrupted_call() {
            Some(libc::SYS_futex) => raw::set_vector_registers(now.tid, &self.vectors),
            // It has not executed any instruction of the stub.
            _ if now.registers.rip == self.range.start + stub::ENTRY => Ok(()),
            _ => return Ok(()),
        };
        let restored = vectors
            .and_then(|()| raw::set_registers(now.tid, &self.registers))
            .and_then(|()| raw::set_signal_mask(now.tid, self.mask));
        restored.map_err(LiveError::system("restoring a thread of", pid))
    }
}

/// The code of a process whose threads hold no lock that a called function might need, unless they called
/// other code.
fn own_code(process: &Process) -> Result<Vec<Range<u64>>, LiveError> {
    let mut ranges = Vec::new();
    for loaded in Module::loaded(&process.maps()?) {
        let name = loaded.path.file_name().unwrap_or_default().to_string_lossy();
        if RUNTIMES.iter().any(|runtime| name.starts_with(runtime)) {
            continue;
        }
        // Unknown if it cannot be read.
        if Module::open(process, &loaded).is_ok_and(|module| !module.defines(ALLOCATION)) {
            let code = loaded.mappings.iter().filter(|mapping| mapping.executable);
            ranges.extend(code.map(|mapping| mapping.range.clone()));
        }
    }
    Ok(ranges)
}

impl ThreadJob<'_> {
    /// Runs the stub in a suitable thread.
    fn run(&self, is_suitable: impl Fn(&StoppedThread) -> bool + Send) -> Result<(), LiveError> {
        let (pid, start) = (self.process.pid(), Instant::now());
        let done = watched(pid, MIN_LIMIT, |watchdog| self.find_thread(is_suitable, watchdog));
        tracing::debug!(self.task, elapsed = ?start.elapsed(), "running code in a thread");
        done
    }

    fn find_thread(
        &self,
        is_suitable: impl Fn(&StoppedThread) -> bool,
        watchdog: &Watchdog,
    ) -> Result<(), LiveError> {
        let (pid, task) = (self.process.pid(), self.task);
        let start = Instant::now();
        let mut unstopped = UnstoppedThreads::of(pid, watchdog);
        let mut forbidden = None;
        let is_over = || start.elapsed() >= SEARCH_TIME;
        while !is_over() {
            for tid in by_suitability(pid)?.into_iter().take_while(|_| !is_over()) {
                watchdog.beat();
                unstopped.release();
                let thread = StoppedThread::seize(pid, tid, STOP_WITHIN, &mut unstopped)?;
                let Some(thread) = thread else { continue };
                let is_suitable = thread.is_plain()
                    && !is_in_critical_section(self.process.memory(), &thread)
                    && is_suitable(&thread);
                match is_suitable.then(|| self.enter(&thread)).transpose() {
                    Ok(Some(Ok(stub))) => {
                        return self.run_in(thread, &stub, &mut unstopped, watchdog);
                    }
                    Ok(Some(Err(what))) => forbidden = Some(what),
                    Ok(None) => {}
                    Err(error) => {
                        // Before `unstopped` waits for its threads.
                        thread.release();
                        return Err(error);
                    }
                }
                thread.release();
            }
            unstopped.release();
            sleep(Duration::from_millis(1));
        }
        match forbidden {
            Some(what) => Err(refused_by_filter(pid, &what)),
            None => Err(LiveError::NoSafePoint { pid, task, waited: Nanos::from(SEARCH_TIME) }),
        }
    }

    /// What the system call filters of a thread do with the stub, if they do not permit it.
    fn forbidden_in(&self, thread: &StoppedThread) -> Result<Option<String>, LiveError> {
        let calls = [self.calls, &[stub::mask_call(self.address)]].concat();
        let is_allowed = self.process.options().allow_seccomp;
        seccomp::forbidden(thread.tid, self.address, &calls)
            .or_else(|error| unreadable(self.process.pid(), error, is_allowed))
    }

    /// Writes the stub and moves a thread to it; or returns what its system call filters do, if they forbid
    /// the stub.
    fn enter(&self, thread: &StoppedThread) -> Result<Result<EnteredStub, String>, LiveError> {
        if let Some(what) = self.forbidden_in(thread)? {
            return Ok(Err(what));
        }
        let (address, tid, registers) = (self.address, thread.tid, thread.registers);
        let system = || LiveError::system("running code in a thread of", self.process.pid());
        let mask = raw::signal_mask(tid).map_err(system())?;
        let vectors = raw::vector_registers(tid).map_err(system())?;
        let code = (self.build)(&system_calls::continuation(&registers), mask);
        self.process.memory().write(address, &code)?;

        // From here on the thread no longer depends on dbdyno. The registers are set first, because
        // only the stub restores the signal mask.
        let entry = Registers { rip: address + stub::ENTRY, orig_rax: u64::MAX, ..registers };
        raw::set_registers(tid, &entry).map_err(system())?;
        raw::set_signal_mask(tid, ALL_SIGNALS).map_err(system())?;
        let range = address..address + code.len() as u64;
        Ok(Ok(EnteredStub { range, registers, vectors, mask }))
    }

    /// Waits until a thread has left the stub.
    fn run_in(
        &self,
        mut thread: StoppedThread,
        stub: &EnteredStub,
        unstopped: &mut UnstoppedThreads<'_>,
        watchdog: &Watchdog,
    ) -> Result<(), LiveError> {
        let (pid, tid) = (self.process.pid(), thread.tid);
        let start = Instant::now();
        let mut pause = Duration::from_micros(50);
        loop {
            thread.resume(pid)?;
            sleep(pause);
            // The thread may wait for a lock that one of these holds.
            unstopped.release();
            pause = (pause * 2).min(Duration::from_millis(5));
            let now = match raw::interrupt(tid) {
                Ok(()) => wait_for_stop(pid, tid, unstopped, watchdog)?,
                Err(_) if has_ended(pid, tid) => None,
                Err(error) => {
                    return Err(LiveError::system("running code in a thread of", pid)(error));
                }
            };
            let Some(now) = now else { return Err(self.lost_error(tid, unstopped)) };
            // A function called by the stub returns to it, and so may a signal handler that
            // interrupted its last instructions.
            let mut inside = stub.range.contains(&now.registers.rip);
            self.stacks.visit(self.process.memory(), &now.registers, unlimited, |word, _| {
                inside |= stub.range.contains(&word);
            });
            if !inside {
                now.release();
                return Ok(());
            }
            if start.elapsed() > self.done_within {
                let left = stub.leave(pid, &now);
                now.release();
                left?;
                let waited = Nanos::from(self.done_within);
                return Err(LiveError::NoSafePoint { pid, task: self.task, waited });
            }
            thread = now;
        }
    }

    /// The error for a thread that ended in the stub, alone or with its process.
    fn lost_error(&self, tid: i32, unstopped: &mut UnstoppedThreads<'_>) -> LiveError {
        /// Maximum time between the end of a thread and of its process.
        const EXIT_TIME: Duration = Duration::from_millis(50);
        let pid = self.process.pid();
        if has_ended(pid, tid) {
            sleep(EXIT_TIME);
        } else {
            unstopped.add(tid);
        }
        match check_alive(self.process.identity()) {
            Ok(()) => LiveError::ThreadLost { pid, task: self.task },
            Err(exited) => exited,
        }
    }
}

/// Waits until an interrupted thread is stopped. `None`: it ended, or has not stopped after
/// [`DONE_WITHIN`].
fn wait_for_stop(
    pid: u32,
    tid: i32,
    unstopped: &mut UnstoppedThreads<'_>,
    watchdog: &Watchdog,
) -> Result<Option<StoppedThread>, LiveError> {
    let start = Instant::now();
    loop {
        watchdog.beat();
        unstopped.release();
        let thread = StoppedThread::wait(pid, tid, STOP_WITHIN)?;
        let is_over = start.elapsed() > DONE_WITHIN || has_ended(pid, tid);
        if thread.is_some() || is_over {
            return Ok(thread);
        }
    }
}

/// The threads that execute code of the program, those that wait in the kernel first.
fn by_suitability(pid: u32) -> Result<Vec<i32>, LiveError> {
    let mut threads = threads(pid)?;
    threads.retain(|tid| !is_kernel_worker(pid, *tid));
    threads.sort_by_cached_key(|tid| {
        // The kernel queues ignored signals of a process while its first thread is seized: see
        // `StoppedProcess::stop`.
        let is_first = *tid == pid.cast_signed();
        let rank = match present_call(pid, *tid) {
            Some(call) if IDLE.contains(&call) => 0,
            Some(libc::SYS_futex) => 1,
            None => 2,
            Some(_) => 3,
        };
        (is_first, rank)
    });
    Ok(threads)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command, Stdio};
    use std::sync::mpsc;

    use super::*;
    use crate::process::{ProbeOptions, thread_state};
    use crate::trace::stub::find_unused_code;

    const PID: &str = "DBDYNO_TEST_PID";

    /// A process that is killed on drop.
    struct Started(Child);

    impl Started {
        fn new(command: &mut Command) -> Self {
            Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
        }

        /// A helper test of this file, in a new process.
        fn test(name: &str, pid: u32) -> Self {
            let mut command = Command::new(std::env::current_exe().unwrap());
            let name = format!("trace::inject::tests::{name}");
            Self::new(command.args(["--ignored", "--exact", &name]).env(PID, pid.to_string()))
        }

        fn pid(&self) -> u32 {
            self.0.id()
        }
    }

    impl Drop for Started {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < Duration::from_secs(60), "timed out: {what}");
            sleep(Duration::from_millis(1));
        }
    }

    /// Whether a thread of a process waits for input: its first, or another one.
    fn reads(pid: u32, is_first: bool) -> bool {
        let mut threads = threads(pid).unwrap_or_default();
        threads.retain(|tid| (*tid == pid.cast_signed()) == is_first);
        threads.into_iter().any(|tid| present_call(pid, tid) == Some(libc::SYS_read))
    }

    /// A helper process for other tests.
    #[test]
    #[ignore = "started by another test"]
    fn helper_stops_itself_while_it_holds_a_thread() {
        let Some(pid) = std::env::var(PID).ok().and_then(|pid| pid.parse().ok()) else { return };
        let process = Process::open(pid, ProbeOptions::default()).unwrap();
        let stacks = Stacks::of(&process).unwrap();
        let build = |_: &Registers, _| Vec::new();
        let task = "do nothing";
        let job = ThreadJob {
            process: &process,
            stacks: &stacks,
            address: 0,
            calls: &[],
            build: &build,
            task,
            done_within: DONE_WITHIN,
        };
        let stop = |_: &StoppedThread| {
            // SAFETY: takes numbers.
            unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
            // Another thread may handle the signal, slightly later.
            sleep(Duration::from_secs(1));
            false
        };
        job.run(stop).unwrap_err();
    }

    #[test]
    fn watchdog_kills_dbdyno_if_stopped_while_it_holds_a_thread() {
        let mut cat = Started::new(&mut Command::new("cat"));
        let pid = cat.pid();
        wait_until("cat waits for input", || reads(pid, true));
        let mut holder = Started::test("helper_stops_itself_while_it_holds_a_thread", pid);
        let own = holder.pid();
        let is_stopped = || thread_state(own, own.cast_signed()) == Some(b'T');
        wait_until("helper is stopped", || is_stopped() || holder.0.try_wait().unwrap().is_some());
        cat.0.stdin.as_mut().unwrap().write_all(b"well\n").unwrap();
        let mut output = BufReader::new(cat.0.stdout.take().unwrap());
        let (say, hear) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            output.read_line(&mut line).map(|_| say.send(line))
        });
        let answer = hear.recv_timeout(Duration::from_secs(30));
        assert_eq!(answer.as_deref(), Ok("well\n"), "its thread is still stopped");
        assert_eq!(holder.0.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    /// A helper process for other tests. It does not end with its thread.
    #[test]
    #[ignore = "started by another test"]
    fn helper_has_a_thread_that_reads() {
        if std::env::var_os(PID).is_none() {
            return;
        }
        std::thread::spawn(|| io::stdin().read_line(&mut String::new()));
        loop {
            std::thread::park();
        }
    }

    #[test]
    fn ended_thread_is_distinguished_from_exited_process() {
        let reader = Started::test("helper_has_a_thread_that_reads", 0);
        let pid = reader.pid();
        wait_until("a thread waits for input", || reads(pid, false));
        let process = Process::open(pid, ProbeOptions::default()).unwrap();
        let borrowed =
            find_unused_code(pid, process.memory(), stub::size_of_system_calls(1)).unwrap();
        let exit = SystemCall { number: libc::SYS_exit, arguments: [0; 6] };
        let error = make_system_calls(&process, borrowed.address, &[exit]).unwrap_err();
        assert!(matches!(error, LiveError::ThreadLost { .. }), "{error}");
        assert!(process.identity().is_alive());
        let end = SystemCall { number: libc::SYS_exit_group, arguments: [0; 6] };
        let error = make_system_calls(&process, borrowed.address, &[end]).unwrap_err();
        assert!(matches!(error, LiveError::Exited { .. }), "{error}");
    }

    /// A helper process for other tests, with a thread that is uninterruptible most of the time. Exits if that
    /// thread is stopped for long.
    #[test]
    #[ignore = "started by another test"]
    fn helper_has_a_thread_that_stops_late() {
        static TIME: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        const MAX_TIME: Duration = Duration::from_secs(3);
        if std::env::var_os(PID).is_none() {
            return;
        }
        std::thread::spawn(|| io::stdin().read_line(&mut String::new()));
        loop {
            let start = Instant::now();
            // SAFETY: the child has its own memory and makes system calls only; its parent waits for its end.
            unsafe {
                let flags = libc::CLONE_VFORK | libc::SIGCHLD;
                let child = libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0);
                if child == 0 {
                    libc::syscall(libc::SYS_nanosleep, &raw const TIME, 0);
                    libc::syscall(libc::SYS_exit_group, 0);
                }
                libc::waitpid(child as i32, std::ptr::null_mut(), 0);
            }
            assert!(start.elapsed() < MAX_TIME);
        }
    }

    /// Calls `test` with a job that makes a system call in a thread of the process.
    fn with_job<T>(pid: u32, call: SystemCall, test: impl FnOnce(&ThreadJob<'_>) -> T) -> T {
        let process = Process::open(pid, ProbeOptions::default()).unwrap();
        let borrowed =
            find_unused_code(pid, process.memory(), stub::size_of_system_calls(1)).unwrap();
        let (address, calls) = (borrowed.address, [call]);
        let build = |after: &Registers, mask| stub::system_calls(address, &calls, after, mask);
        test(&ThreadJob {
            process: &process,
            stacks: &Stacks::of(&process).unwrap(),
            address,
            calls: &calls,
            build: &build,
            task: "make a system call",
            done_within: DONE_WITHIN,
        })
    }

    #[test]
    fn thread_that_stops_late_is_released_while_another_one_runs_a_stub() {
        let mut helper = Started::test("helper_has_a_thread_that_stops_late", 0);
        let pid = helper.pid();
        let is_in_clone = || {
            let found = threads(pid).unwrap_or_default();
            found.into_iter().any(|tid| present_call(pid, tid) == Some(libc::SYS_clone))
        };
        wait_until("threads wait", || reads(pid, false) && is_in_clone());
        let sleep = SystemCall { number: libc::SYS_poll, arguments: [0, 0, 4_000, 0, 0, 0] };
        // Not in the first round, in which the other thread is interrupted.
        let is_second = Cell::new(false);
        with_job(pid, sleep, |job| {
            job.run(move |thread| {
                thread.interrupted_call() == Some(libc::SYS_read) && is_second.replace(true)
            })
        })
        .unwrap();
        assert!(helper.0.try_wait().unwrap().is_none(), "the other thread was stopped meanwhile");
    }

    static LOCK: u32 = 0;

    /// Overwrites a vector register and waits for a lock forever.
    extern "C" fn waits_for_a_lock() {
        // SAFETY: a system call with a live word; `xmm5` may be changed by a function.
        unsafe {
            std::arch::asm!("pcmpeqd xmm5, xmm5", out("xmm5") _);
            loop {
                let futex = (libc::SYS_futex, &raw const LOCK, libc::FUTEX_WAIT);
                libc::syscall(futex.0, futex.1, futex.2, 0, 0);
            }
        }
    }

    /// A helper process for other tests. Ends if a vector register changes.
    #[test]
    #[ignore = "started by another test"]
    fn helper_keeps_a_value_in_a_vector_register() {
        const SIZE: usize = 128 << 10;
        if std::env::var_os(PID).is_none() {
            return;
        }
        // SAFETY: new memory.
        let map = |protection| unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), SIZE, protection, flags, -1, 0) as u64
        };
        let code = map(libc::PROT_READ | libc::PROT_EXEC);
        let data = map(libc::PROT_READ | libc::PROT_WRITE);
        let function = waits_for_a_lock as *const () as u64;
        writeln!(io::stdout(), "at {function} {data} {code}").unwrap();
        let value = 0x0123_4567_89ab_cdef_u64;
        loop {
            let found: u64;
            // SAFETY: changes declared registers only.
            unsafe {
                std::arch::asm!(
                    "movq xmm5, {value}",
                    "2: dec {count}",
                    "jnz 2b",
                    "movq {found}, xmm5",
                    value = in(reg) value,
                    count = inout(reg) 1_000_000_000_u64 => _,
                    found = out(reg) found,
                    out("xmm5") _,
                );
            }
            assert_eq!(found, value);
        }
    }

    #[test]
    fn thread_taken_out_of_a_function_keeps_its_vector_registers() {
        let mut helper = Started::test("helper_keeps_a_value_in_a_vector_register", 0);
        let lines = BufReader::new(helper.0.stdout.take().unwrap()).lines();
        let line = lines.map_while(Result::ok).find(|line| line.contains("at ")).unwrap();
        let numbers = line.split(' ').filter_map(|word| word.parse().ok()).collect::<Vec<u64>>();
        let [function, data, address] = numbers[..] else { panic!("{line}") };
        let process = Process::open(helper.pid(), ProbeOptions::default()).unwrap();
        let stacks = Stacks::of(&process).unwrap();
        let functions = [FunctionCall { address: function, arguments: [0; 3] }];
        let stack_top = data + (128 << 10);
        let data = StubData { stack_top, vectors: data + (16 << 10), counter: data };
        let build =
            |after: &Registers, mask| stub::functions(address, &functions, &data, after, mask);
        let job = ThreadJob {
            process: &process,
            stacks: &stacks,
            address,
            calls: &[],
            build: &build,
            task: "call a function",
            done_within: Duration::from_millis(50),
        };
        let error = job.run(|thread| thread.is_in_user_code()).unwrap_err();
        assert!(matches!(error, LiveError::NoSafePoint { .. }), "{error}");
        // Longer than its loop.
        sleep(Duration::from_secs(1));
        assert!(helper.0.try_wait().unwrap().is_none(), "a vector register was changed");
    }

    #[test]
    fn thread_that_never_ran_is_taken_out_of_the_stub() {
        let cat = Started::new(&mut Command::new("cat"));
        let pid = cat.pid();
        wait_until("cat waits for input", || reads(pid, true));
        let nothing = SystemCall { number: libc::SYS_getpid, arguments: [0; 6] };
        with_job(pid, nothing, |job| {
            watched(pid, MIN_LIMIT, |watchdog| {
                let mut unstopped = UnstoppedThreads::of(pid, watchdog);
                let tid = pid.cast_signed();
                let before = StoppedThread::seize(pid, tid, DONE_WITHIN, &mut unstopped)?.unwrap();
                let mask = raw::signal_mask(tid).unwrap();
                let stub = job.enter(&before)?.unwrap();
                let mut inside = before.clone();
                inside.registers = raw::registers(tid).unwrap();
                assert_eq!(inside.registers.rip, job.address + stub::ENTRY);
                assert_ne!(raw::signal_mask(tid).unwrap(), mask);
                stub.leave(pid, &inside)?;
                let after = raw::registers(tid).unwrap();
                let all = |it: Registers| (it.rip, it.rsp, it.rax, it.orig_rax, it.rdi, it.eflags);
                assert_eq!(all(after), all(before.registers));
                assert_eq!(raw::signal_mask(tid).unwrap(), mask);
                before.release();
                Ok(())
            })
        })
        .unwrap();
    }
}
