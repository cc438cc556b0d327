//! System calls and function calls made by a thread of the process.

use std::thread;
use std::time::{Duration, Instant};

use dbdyno_units::Nanos;

use super::raw::{self, Registers};
use super::restart;
use super::session::{StoppedThread, UnstoppedThreads, present_call};
use super::stacks::Stacks;
use super::stub::{self, FunctionCall, StubData, SystemCall};
use crate::LiveError;
use crate::identity::{has_ended, threads};
use crate::maps::{Mapping, Maps};
use crate::memory::ProcessMemory;
use crate::process::Process;
use crate::watchdog::{BEAT, LEAST_LIMIT, Watchdog, watched};

/// A thread that does not stop in this time is left alone, and another is tried.
const STOP_WITHIN: Duration = Duration::from_millis(20);
/// A thread is looked for during this time.
const PATIENCE: Duration = Duration::from_secs(3);
/// A stub is done in microseconds. One that calls functions may wait for a lock, which another
/// thread may hold that does not come to run.
const DONE_WITHIN: Duration = Duration::from_secs(5);
/// All signals but the two that nobody can block, which the kernel ignores here.
const ALL_SIGNALS: u64 = u64::MAX;

/// Calls in which a thread waits for others and holds no lock of a C library. In a wait on a
/// futex it may hold one while it wants another.
const IDLE: [i64; 18] = [
    libc::SYS_read,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_select,
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
    libc::SYS_pause,
];

/// Libraries that hold locks while they run: a function called from there might want the same.
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

/// Has a thread make system calls, whatever they return, with code put at `address`.
///
/// # Errors
/// No thread could do it, or the process is gone.
pub(crate) fn make_system_calls(
    process: &Process,
    address: u64,
    calls: &[SystemCall],
) -> Result<(), LiveError> {
    let build = |after: &Registers, mask| stub::system_calls(address, calls, after, mask);
    let stacks = Stacks::of(process)?;
    let job =
        ThreadJob { process, stacks: &stacks, address, build: &build, task: "map memory for us" };
    job.done(|_| true)
}

/// Has a thread call functions of the process, with code put at `address`.
///
/// The thread is one that holds no lock that such a function could want: one that waits for work
/// in the kernel, or runs the program's own code, and is in no signal handler but one that
/// interrupted such a wait. `original` says which instruction of the program stands for one of new
/// code.
///
/// # Errors
/// No thread could do it, or the process is gone. The functions may have been called in part:
/// the workspace's counter tells.
pub(crate) fn call_functions(
    process: &Process,
    address: u64,
    functions: &[FunctionCall],
    workspace: &StubData,
    original: &(dyn Fn(u64) -> u64 + Sync),
) -> Result<(), LiveError> {
    let build =
        |after: &Registers, mask| stub::functions(address, functions, workspace, after, mask);
    let stacks = Stacks::of(process)?;
    let maps = process.maps()?;
    let safe = |standing: &StoppedThread| {
        let place = match standing.interrupted_call() {
            Some(call) => IDLE.contains(&call),
            None => {
                standing.is_in_user_code() && is_own_code(&maps, original(standing.registers.rip))
            }
        };
        place && interrupted_waits_only(process, &stacks, standing)
    };
    let job = ThreadJob {
        process,
        stacks: &stacks,
        address,
        build: &build,
        task: "call a function for us",
    };
    job.done(safe)
}

/// Whether all signal handlers that a thread is in have interrupted a wait. Some servers fork their
/// processes in a handler, and these never leave it.
fn interrupted_waits_only(
    process: &Process,
    stacks: &Stacks<'_>,
    standing: &StoppedThread,
) -> bool {
    let memory = process.memory();
    let mut places = Vec::new();
    let in_handler = stacks.visit(memory, standing, |word, is_saved| {
        if is_saved {
            places.push(word);
        }
    });
    if !in_handler {
        return true;
    }
    let is_known = !places.is_empty();
    places.retain(|place| !is_idle_call(memory, *place));
    if places.is_empty() {
        return is_known;
    }
    // What a handler left on the stack looks like one until it is overwritten in part: then it goes
    // on where no code is.
    let is_code =
        |maps: &Maps, place| maps.at(place).is_some_and(|mapping: &Mapping| mapping.executable);
    process.maps().is_ok_and(|maps| !places.iter().any(|place| is_code(&maps, *place)))
}

/// Whether a thread that goes on here was in a system call of [`IDLE`]: the kernel has it go on
/// behind the instruction with `EINTR`, or makes the call again.
fn is_idle_call(memory: &ProcessMemory, address: u64) -> bool {
    // mov eax, NUMBER; syscall
    const SIZE: u64 = 7;
    [address, address + 2].into_iter().any(|end| {
        let bytes = memory.read(end.saturating_sub(SIZE), SIZE as usize).unwrap_or_default();
        let [0xb8, a, b, c, d, 0x0f, 0x05] = bytes[..] else { return false };
        IDLE.contains(&i64::from(u32::from_le_bytes([a, b, c, d])))
    })
}

/// Something that one thread is to do.
struct ThreadJob<'a> {
    process: &'a Process,
    stacks: &'a Stacks<'a>,
    /// Where the code goes.
    address: u64,
    build: &'a (dyn Fn(&Registers, u64) -> Vec<u8> + Sync),
    task: &'static str,
}

fn is_own_code(maps: &Maps, address: u64) -> bool {
    maps.at(address).is_some_and(|mapping| {
        let name = mapping.name.rsplit('/').next().unwrap_or_default();
        mapping.inode != 0 && !RUNTIMES.iter().any(|runtime| name.starts_with(runtime))
    })
}

impl ThreadJob<'_> {
    /// Has it done by a thread that suits.
    fn done(&self, suits: impl Fn(&StoppedThread) -> bool + Send) -> Result<(), LiveError> {
        watched(self.process.pid(), LEAST_LIMIT, |watchdog| self.run(suits, watchdog))
    }

    fn run(
        &self,
        suits: impl Fn(&StoppedThread) -> bool,
        watchdog: &Watchdog,
    ) -> Result<(), LiveError> {
        let (pid, task) = (self.process.pid(), self.task);
        let start = Instant::now();
        let mut stragglers = UnstoppedThreads::of(pid, watchdog);
        while start.elapsed() < PATIENCE {
            for tid in by_suitability(pid)? {
                watchdog.beat();
                let standing = StoppedThread::seize(pid, tid, STOP_WITHIN, &mut stragglers)?;
                let Some(standing) = standing else { continue };
                if standing.is_plain() && suits(&standing) {
                    return self.run_in(standing, &mut stragglers, watchdog);
                }
                standing.release();
            }
            stragglers.release();
            thread::sleep(Duration::from_millis(1));
        }
        Err(LiveError::NoSafePoint { pid, task, waited: Nanos::from(PATIENCE) })
    }

    fn run_in(
        &self,
        standing: StoppedThread,
        stragglers: &mut UnstoppedThreads<'_>,
        watchdog: &Watchdog,
    ) -> Result<(), LiveError> {
        let (pid, address, memory) = (self.process.pid(), self.address, self.process.memory());
        let system = || LiveError::system("having a thread work in", pid);
        let tid = standing.tid;
        let registers = standing.registers;
        let mask = raw::signal_mask(tid).map_err(system())?;
        let code = (self.build)(&restart::continuation(&registers), mask);
        memory.write(address, &code)?;
        let stub = address..address + code.len() as u64;

        // From here to the stub's end the thread needs us no more. The registers come first: the
        // stub unblocks the signals again, its absence would not.
        let entry = Registers { rip: address + stub::ENTRY, orig_rax: u64::MAX, ..registers };
        raw::set_registers(tid, &entry).map_err(system())?;
        raw::set_signal_mask(tid, ALL_SIGNALS).map_err(system())?;
        let mut standing = standing;
        let start = Instant::now();
        let mut pause = Duration::from_micros(50);
        loop {
            standing.resume(pid)?;
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
            let now = match raw::interrupt(tid) {
                Ok(()) => stands_again(pid, tid, watchdog)?,
                Err(_) if has_ended(pid, tid) => None,
                Err(error) => return Err(system()(error)),
            };
            let Some(now) = now else { return Err(self.lost(tid, stragglers)) };
            // A function that the stub calls returns to it, and so may a signal handler that came
            // between the stub's last instructions.
            let mut inside = stub.contains(&now.registers.rip);
            self.stacks.visit(memory, &now, |word, _| inside |= stub.contains(&word));
            if !inside {
                now.release();
                return Ok(());
            }
            if start.elapsed() > DONE_WITHIN {
                return abandon(pid, self.task, &now, &registers, mask);
            }
            standing = now;
        }
    }

    /// Whether a thread went alone that worked for us, or its process with it.
    fn lost(&self, tid: i32, stragglers: &mut UnstoppedThreads<'_>) -> LiveError {
        /// From the end of one thread to that of the process.
        const ENDS_WITHIN: Duration = Duration::from_millis(50);
        let pid = self.process.pid();
        if has_ended(pid, tid) {
            thread::sleep(ENDS_WITHIN);
        } else {
            stragglers.add(tid);
        }
        match self.process.identity().check() {
            Ok(()) => LiveError::ThreadLost { pid, task: self.task },
            Err(gone) => gone,
        }
    }
}

/// Waits for a thread that may be in a function that takes long; `None` if it ended, or has not
/// stopped after [`DONE_WITHIN`].
fn stands_again(
    pid: u32,
    tid: i32,
    watchdog: &Watchdog,
) -> Result<Option<StoppedThread>, LiveError> {
    let start = Instant::now();
    loop {
        watchdog.beat();
        let standing = StoppedThread::wait(pid, tid, BEAT)?;
        let is_over = start.elapsed() > DONE_WITHIN || has_ended(pid, tid);
        if standing.is_some() || is_over {
            return Ok(standing);
        }
    }
}

/// Threads that wait in the kernel first, then those that run.
fn by_suitability(pid: u32) -> Result<Vec<i32>, LiveError> {
    let mut threads = threads(pid)?;
    threads.sort_by_cached_key(|tid| {
        // The kernel keeps ignored signals of a process while its first thread is seized: see
        // `StoppedProcess::stop`.
        let is_first = *tid == pid.cast_signed();
        let place = match present_call(pid, *tid) {
            Some(call) if IDLE.contains(&call) => 0,
            Some(libc::SYS_futex) => 1,
            None => 2,
            Some(_) => 3,
        };
        (is_first, place)
    });
    Ok(threads)
}

/// Takes a thread back out of a function that waits for a lock: nothing has happened in it yet.
fn abandon(
    pid: u32,
    task: &'static str,
    now: &StoppedThread,
    registers: &Registers,
    mask: u64,
) -> Result<(), LiveError> {
    let failed = LiveError::NoSafePoint { pid, task, waited: Nanos::from(DONE_WITHIN) };
    if now.interrupted_call() == Some(libc::SYS_futex) {
        let system = || LiveError::system("taking a thread back in", pid);
        raw::set_registers(now.tid, registers).map_err(system())?;
        raw::set_signal_mask(now.tid, mask).map_err(system())?;
    }
    Err(failed)
}

#[cfg(test)]
mod tests;
