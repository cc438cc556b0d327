//! All threads of a process, standing still.

use std::thread;
use std::time::{Duration, Instant};

use dbdyno_units::Nanos;

use super::raw::{self, Registers, ThreadStop};
use super::restart;
use crate::LiveError;
use crate::identity::{has_ended, thread_state, threads};
use crate::watchdog::Watchdog;

/// Between two looks at threads that are about to stop.
const LOOK_EVERY: Duration = Duration::from_micros(20);

/// Runs `work` on a thread of its own, and waits for it.
///
/// Tracing belongs to the thread that began it. When that thread ends the kernel lets go of all
/// it had seized, whatever state they are in: no way out of `work` leaves a thread stopped.
pub(crate) fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let outcome = thread::scope(|scope| {
        scope
            .spawn(|| {
                hurry();
                work()
            })
            .join()
    });
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Others wait while this thread works: it comes first, where that is permitted, and its short
/// sleeps are short.
fn hurry() {
    const THIS_THREAD: i32 = 0;
    set_nice(THIS_THREAD, FIRST);
    dbdyno_machine::set_minimal_timer_slack();
}

/// One thread that stands still.
#[derive(Clone, Debug)]
pub(crate) struct StoppedThread {
    pub(crate) tid: i32,
    stop: ThreadStop,
    pub(crate) registers: Registers,
}

impl StoppedThread {
    /// Seizes and stops one thread; `None` if it did not stop in time, which puts it among the
    /// stragglers, or is gone.
    pub(crate) fn seize(
        pid: u32,
        tid: i32,
        max_pause: Duration,
        stragglers: &mut UnstoppedThreads<'_>,
    ) -> Result<Option<Self>, LiveError> {
        if let Some(index) = stragglers.tids.iter().position(|known| *known == tid) {
            // Asked before; by now it may have stopped.
            stragglers.tids.swap_remove(index);
        } else if !begin(pid, tid)? {
            return Ok(None);
        }
        let standing = Self::wait(pid, tid, max_pause)?;
        if standing.is_none() && thread_state(pid, tid).is_some() {
            stragglers.add(tid);
        }
        Ok(standing)
    }

    /// Waits until a seized thread stands still.
    pub(crate) fn wait(pid: u32, tid: i32, max_pause: Duration) -> Result<Option<Self>, LiveError> {
        let start = Instant::now();
        loop {
            let stop = raw::stop(tid).map_err(LiveError::system("waiting for a thread of", pid))?;
            match stop {
                Some(ThreadStop::Ended) => return Ok(None),
                Some(stop) => return Self::at(pid, tid, stop),
                None if start.elapsed() > max_pause => return Ok(None),
                None => thread::sleep(LOOK_EVERY),
            }
        }
    }

    fn at(pid: u32, tid: i32, stop: ThreadStop) -> Result<Option<Self>, LiveError> {
        // Mended at once, not at the release: should we be killed, the kernel alone releases it.
        let mend = |registers: Registers| match restart::mended(&registers) {
            Some(mended) => raw::set_registers(tid, &mended).map(|()| mended),
            None => Ok(registers),
        };
        match raw::registers(tid).and_then(mend) {
            Ok(registers) => Ok(Some(Self { tid, stop, registers })),
            // Killed a moment ago.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
            Err(error) => Err(LiveError::system("reading registers of", pid)(error)),
        }
    }

    /// Stopped by us alone, with no signal on its way.
    pub(crate) fn is_plain(&self) -> bool {
        self.stop == ThreadStop::Trap
    }

    /// The system call that the stop interrupted.
    pub(crate) fn interrupted_call(&self) -> Option<i64> {
        restart::interrupted_call(&self.registers)
    }

    /// Whether it runs code of the program at this moment, not of the kernel.
    pub(crate) fn is_in_user_code(&self) -> bool {
        self.registers.orig_rax.cast_signed() < 0
    }

    /// Lets it run on, as if it had never been stopped.
    pub(crate) fn release(self) {
        let signal = match self.stop {
            ThreadStop::Signal(signal) => signal,
            _ => 0,
        };
        // A thread that was killed meanwhile cannot be let go, and need not be.
        let _ = raw::detach(self.tid, signal);
    }

    /// Lets it run on for a while, still seized.
    pub(crate) fn resume(&self, pid: u32) -> Result<(), LiveError> {
        let signal = match self.stop {
            ThreadStop::Signal(signal) => signal,
            _ => 0,
        };
        raw::resume(self.tid, signal).map_err(LiveError::system("resuming a thread of", pid))
    }
}

/// A thread that has not stopped after this time is not on a CPU.
const WAITS_FOR_CPU: Duration = Duration::from_micros(500);

/// Threads that were put before all others for a moment. The watchdog knows, and puts them back
/// should we be killed.
#[derive(Debug)]
struct PriorityBoosts<'a> {
    watchdog: &'a Watchdog,
    /// With how nice they were.
    tids: Vec<(i32, i32)>,
}

impl PriorityBoosts<'_> {
    fn boost(&mut self, tid: i32) {
        if self.tids.iter().any(|(known, _)| *known == tid) {
            return;
        }
        // SAFETY: takes numbers.
        let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, tid.cast_unsigned()) };
        // Where the watchdog cannot be told, patience has to do.
        if self.watchdog.boosted(tid, nice).is_ok() {
            set_nice(tid, FIRST);
            self.tids.push((tid, nice));
        }
    }

    fn end(&mut self) {
        for (tid, nice) in self.tids.drain(..) {
            set_nice(tid, nice);
        }
    }
}

/// Comes before all others that have no real-time priority.
const FIRST: libc::c_int = -20;

fn set_nice(tid: i32, nice: i32) {
    // SAFETY: takes numbers. Where it is not permitted, things just take longer.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, tid.cast_unsigned(), nice) };
}

/// Threads that were asked to stop and did not in time. They will, and then have to be released
/// properly: the kernel alone would let some of their system calls end with `EINTR`.
#[derive(Debug)]
pub(crate) struct UnstoppedThreads<'a> {
    pid: u32,
    tids: Vec<i32>,
    watchdog: &'a Watchdog,
}

/// A thread that does not get to stop in this time hangs in the kernel, in a call that nothing
/// interrupts, and can be left to it.
const STRAGGLE: Duration = Duration::from_secs(2);

impl<'a> UnstoppedThreads<'a> {
    pub(crate) fn of(pid: u32, watchdog: &'a Watchdog) -> Self {
        Self { pid, tids: Vec::new(), watchdog }
    }

    /// Takes one that was asked to stop.
    pub(crate) fn add(&mut self, tid: i32) {
        self.tids.push(tid);
    }

    /// Releases those that have stopped by now.
    pub(crate) fn release(&mut self) {
        self.tids.retain(|tid| match StoppedThread::wait(self.pid, *tid, Duration::ZERO) {
            Ok(Some(standing)) => {
                standing.release();
                false
            }
            Ok(None) => thread_state(self.pid, *tid).is_some(),
            Err(_) => false,
        });
    }
}

impl Drop for UnstoppedThreads<'_> {
    fn drop(&mut self) {
        let start = Instant::now();
        while !self.tids.is_empty() && start.elapsed() < STRAGGLE {
            // Nobody stands for longer than until the next look.
            self.watchdog.beat();
            self.release();
            if !self.tids.is_empty() {
                thread::sleep(LOOK_EVERY * 10);
            }
        }
    }
}

/// Seizes a thread and asks it to stop; false if it is gone.
fn begin(pid: u32, tid: i32) -> Result<bool, LiveError> {
    let done = raw::seize(tid).and_then(|()| raw::interrupt(tid));
    match done {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
        // The first thread stays as a corpse when it ends before the others.
        Err(_) if has_ended(pid, tid) => Ok(false),
        Err(error) => Err(LiveError::system("seizing a thread of", pid)(error)),
    }
}

/// A process of which every thread stands still.
#[derive(Debug)]
pub(crate) struct StoppedProcess<'a> {
    pub(crate) pid: u32,
    pub(crate) threads: Vec<StoppedThread>,
    stragglers: UnstoppedThreads<'a>,
    boosts: PriorityBoosts<'a>,
    since: Instant,
    max_pause: Duration,
}

impl Drop for StoppedProcess<'_> {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl<'a> StoppedProcess<'a> {
    /// Stops all threads, those included that are started meanwhile. To be called
    /// [`on_own_thread`], which has to end soon when this fails.
    ///
    /// # Errors
    /// [`LiveError::NotStopped`] if that takes longer than `bound`.
    pub(crate) fn stop(
        pid: u32,
        max_pause: Duration,
        watchdog: &'a Watchdog,
    ) -> Result<Self, LiveError> {
        // While some thread is seized the kernel keeps signals for it that the process ignores,
        // such as those of children that end, and wakes others for them. So threads whose wait
        // would end with `EINTR` then are seized first and released last.
        let sensitive: Vec<i32> = threads(pid)?
            .into_iter()
            .filter(|tid| present_call(pid, *tid).is_some_and(restart::ends_when_stopped))
            .collect();
        let mut stopped = Self {
            pid,
            boosts: PriorityBoosts { watchdog, tids: Vec::new() },
            threads: Vec::new(),
            stragglers: UnstoppedThreads::of(pid, watchdog),
            since: Instant::now(),
            max_pause,
        };
        let mut known: Vec<i32> = Vec::new();
        loop {
            // A thread is started by one that runs. So when a list is read while all that are on
            // it stand still, there is none beside it.
            let all_stood = !known.is_empty();
            let mut new = threads(pid)?;
            new.retain(|tid| !known.contains(tid));
            new.sort_by_key(|tid| !sensitive.contains(tid));
            if all_stood && new.is_empty() {
                break;
            }
            for tid in new {
                known.push(tid);
                if begin(pid, tid)? {
                    stopped.stragglers.add(tid);
                }
            }
            stopped.collect()?;
        }
        if stopped.threads.is_empty() {
            return Err(LiveError::Gone { pid });
        }
        Ok(stopped)
    }

    /// Waits until all that were asked to stop stand still.
    fn collect(&mut self) -> Result<(), LiveError> {
        loop {
            let mut still = Vec::new();
            for tid in std::mem::take(&mut self.stragglers.tids) {
                match raw::stop(tid).map_err(LiveError::system("stopping", self.pid))? {
                    None => still.push(tid),
                    Some(ThreadStop::Ended) => {}
                    Some(stop) => self.threads.extend(StoppedThread::at(self.pid, tid, stop)?),
                }
            }
            self.stragglers.tids = still;
            if self.stragglers.tids.is_empty() {
                return Ok(());
            }
            if self.since.elapsed() > WAITS_FOR_CPU {
                self.boost();
            }
            self.check_max_pause(self.stragglers.tids.len())?;
            thread::sleep(LOOK_EVERY);
        }
    }

    /// For `?` before anything is changed.
    ///
    /// # Errors
    /// It has been standing for longer than its bound.
    pub(crate) fn check_max_pause(&self, missing: usize) -> Result<(), LiveError> {
        if self.since.elapsed() <= self.max_pause {
            return Ok(());
        }
        let max_pause = Nanos::from(self.max_pause);
        Err(LiveError::NotStopped { pid: self.pid, max_pause, missing })
    }

    /// Moves a thread that stands in user code to another place with the same meaning.
    ///
    /// # Errors
    /// The process is gone.
    pub(crate) fn move_thread(&mut self, index: usize, to: u64) -> Result<(), LiveError> {
        let standing = &mut self.threads[index];
        let moved = Registers { rip: to, ..standing.registers };
        raw::set_registers(standing.tid, &moved)
            .map_err(LiveError::system("moving a thread of", self.pid))?;
        standing.registers = moved;
        Ok(())
    }

    /// Lets all threads run on; returns for how long they stood.
    pub(crate) fn release(mut self) -> Nanos {
        self.let_go();
        Nanos::from(self.since.elapsed())
    }

    /// Has those threads come to a CPU, and so to their stop, that wait for one behind others.
    fn boost(&mut self) {
        for tid in &self.stragglers.tids {
            self.boosts.boost(*tid);
        }
    }

    fn let_go(&mut self) {
        let is_sensitive = |standing: &StoppedThread| {
            standing.interrupted_call().is_some_and(restart::ends_when_stopped)
        };
        let (sensitive, others): (Vec<_>, Vec<_>) = self.threads.drain(..).partition(is_sensitive);
        let others_went_first = !sensitive.is_empty() && !others.is_empty();
        for standing in others {
            standing.release();
        }
        if others_went_first {
            await_ignored_signals(self.pid);
        }
        for standing in sensitive {
            standing.release();
        }
        self.boosts.end();
    }
}

/// The system call that a thread is in.
pub(super) fn present_call(pid: u32, tid: i32) -> Option<i64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// Waits a moment until running threads have taken the signals that wait for nobody but are
/// ignored.
fn await_ignored_signals(pid: u32) {
    // SIGCHLD, SIGURG, SIGWINCH; SIGCONT is another matter.
    const IGNORED: u64 = 1 << (17 - 1) | 1 << (23 - 1) | 1 << (28 - 1);
    const PATIENCE: Duration = Duration::from_millis(2);
    let waiting = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let mask = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            u64::from_str_radix(line.trim(), 16).ok()
        };
        Some(mask("ShdPnd:")? & IGNORED & !mask("SigCgt:")?)
    };
    let start = Instant::now();
    while waiting().is_some_and(|signals| signals != 0) && start.elapsed() < PATIENCE {
        thread::sleep(LOOK_EVERY);
    }
}
