//! Stopping all threads of a process.

use std::collections::HashSet;
use std::time::{Duration, Instant};
use std::{io, thread};

use dbdyno_units::Nanos;

use super::priorities::PriorityBoosts;
use super::raw::{self, Registers, ThreadStop};
use super::system_calls::{self, BlockedThread, BlockedThreads};
use crate::LiveError;
use crate::probe::Status;
use crate::process::{Process, has_ended, thread_state, threads};
use crate::watchdog::Watchdog;

/// Poll interval for threads that are about to stop.
const POLL_INTERVAL: Duration = Duration::from_micros(20);

#[derive(Clone, Debug)]
pub(crate) struct StoppedThread {
    pub(crate) tid: i32,
    stop: ThreadStop,
    pub(crate) registers: Registers,
}

impl StoppedThread {
    /// Seizes and stops a thread. `None`: it ended, or did not stop in time and was added to
    /// `unstopped`.
    pub(crate) fn seize(
        pid: u32,
        tid: i32,
        max_pause: Duration,
        unstopped: &mut UnstoppedThreads<'_>,
    ) -> Result<Option<Self>, LiveError> {
        if let Some(index) = unstopped.tids.iter().position(|known| *known == tid) {
            // Interrupted before; it may have stopped meanwhile.
            unstopped.tids.swap_remove(index);
        } else if !seize(pid, tid)? || !interrupt(pid, tid)? {
            return Ok(None);
        }
        let thread = Self::wait(pid, tid, max_pause)?;
        if thread.is_none() && thread_state(pid, tid).is_some() {
            unstopped.add(tid);
        }
        Ok(thread)
    }

    /// Waits until a seized thread is stopped. `None`: it ended, or did not stop in time.
    pub(crate) fn wait(pid: u32, tid: i32, max_pause: Duration) -> Result<Option<Self>, LiveError> {
        let start = Instant::now();
        loop {
            let stop = raw::stop(tid).map_err(LiveError::system("waiting for a thread of", pid))?;
            match stop {
                Some(ThreadStop::Ended) => return Ok(None),
                Some(stop) => return Self::at(pid, tid, stop),
                None if start.elapsed() > max_pause => return Ok(None),
                None => thread::sleep(POLL_INTERVAL),
            }
        }
    }

    fn at(pid: u32, tid: i32, stop: ThreadStop) -> Result<Option<Self>, LiveError> {
        // Immediately, not at the release: if dbdyno is killed, the kernel releases it.
        let fix = |registers: Registers| match system_calls::restarted(&registers) {
            Some(fixed) => raw::set_registers(tid, &fixed).map(|()| fixed),
            None => Ok(registers),
        };
        match raw::registers(tid).and_then(fix) {
            Ok(registers) => Ok(Some(Self { tid, stop, registers })),
            // It was killed meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
            Err(error) => Err(LiveError::system("reading registers of", pid)(error)),
        }
    }

    /// Whether it was stopped by dbdyno only, without a signal to deliver.
    pub(crate) fn is_plain(&self) -> bool {
        self.stop == ThreadStop::Trap
    }

    /// The system call that was interrupted by the stop.
    pub(crate) fn interrupted_call(&self) -> Option<i64> {
        system_calls::interrupted_call(&self.registers)
    }

    /// Whether it is in user code, not in the kernel.
    pub(crate) fn is_in_user_code(&self) -> bool {
        self.registers.orig_rax.cast_signed() < 0
    }

    /// Resumes and releases it, as if it had never been stopped.
    pub(crate) fn release(self) {
        // Fails only if the thread was killed meanwhile.
        let _ = raw::detach(self.tid, self.signal());
    }

    /// Resumes it, still seized.
    pub(crate) fn resume(&self, pid: u32) -> Result<(), LiveError> {
        raw::resume(self.tid, self.signal()).map_err(LiveError::system("resuming a thread of", pid))
    }

    /// The signal to deliver, or 0.
    fn signal(&self) -> i32 {
        match self.stop {
            ThreadStop::Signal(signal) => signal,
            _ => 0,
        }
    }
}

/// A thread that has not stopped after this time is waiting for a CPU.
const BOOST_AFTER: Duration = Duration::from_micros(500);

/// Threads that were interrupted and have not stopped yet. They will stop later, and then have to be
/// released properly: if the kernel did it, some of their system calls would fail with `EINTR`.
#[derive(Debug)]
pub(crate) struct UnstoppedThreads<'a> {
    pid: u32,
    tids: Vec<i32>,
    /// Threads that are seized but not interrupted: they run, and the kernel releases them. Only a signal stops one.
    seized: Vec<i32>,
    watchdog: &'a Watchdog,
}

/// Number of threads that are interrupted or resumed together: each wakes up, and with thousands at the same time,
/// other processes would wait for them.
const THREADS_AT_ONCE: usize = 256;

/// A thread that has not stopped after this time is in an uninterruptible system call; the kernel
/// releases it later.
const MAX_WAIT: Duration = Duration::from_secs(2);

impl<'a> UnstoppedThreads<'a> {
    pub(crate) fn of(pid: u32, watchdog: &'a Watchdog) -> Self {
        Self { pid, tids: Vec::new(), seized: Vec::new(), watchdog }
    }

    /// Adds an interrupted thread.
    pub(crate) fn add(&mut self, tid: i32) {
        self.tids.push(tid);
    }

    /// Seizes threads, which run on.
    fn seize(&mut self, tids: &[i32]) -> Result<(), LiveError> {
        for tid in tids {
            self.watchdog.beat();
            if seize(self.pid, *tid)? {
                self.seized.push(*tid);
            }
        }
        Ok(())
    }

    /// Interrupts the next part of the seized threads.
    fn interrupt_part(&mut self) -> Result<(), LiveError> {
        let size = self.seized.len().min(THREADS_AT_ONCE);
        for tid in self.seized.drain(..size) {
            if interrupt(self.pid, tid)? {
                self.tids.push(tid);
            }
        }
        Ok(())
    }

    /// Releases the threads that have stopped meanwhile.
    pub(crate) fn release(&mut self) {
        let pid = self.pid;
        let is_unstopped = |tid: &i32| match raw::stop(*tid) {
            Ok(None) => true,
            Ok(Some(ThreadStop::Ended)) | Err(_) => false,
            Ok(Some(stop)) => match StoppedThread::at(pid, *tid, stop) {
                Ok(Some(thread)) => {
                    thread.release();
                    false
                }
                // Its end follows.
                Ok(None) => true,
                Err(_) => false,
            },
        };
        self.tids.retain(is_unstopped);
        self.seized.retain(is_unstopped);
    }
}

impl Drop for UnstoppedThreads<'_> {
    fn drop(&mut self) {
        let start = Instant::now();
        // Those that run on are released if a signal has stopped them meanwhile.
        while !(self.tids.is_empty() && self.seized.is_empty()) && start.elapsed() < MAX_WAIT {
            // Each thread is stopped for one poll interval at most.
            self.watchdog.beat();
            let before = self.tids.len();
            self.release();
            if self.tids.len() == before {
                // The kernel may release these when the tracing thread ends: their call does not fail.
                self.tids.retain(|tid| BlockedThread::of(self.pid, *tid).is_none());
            }
            if self.tids.is_empty() {
                break;
            }
            thread::sleep(POLL_INTERVAL * 10);
        }
    }
}

/// Seizes a thread, which runs on; false if it has ended.
fn seize(pid: u32, tid: i32) -> Result<bool, LiveError> {
    unless_ended(pid, tid, raw::seize(tid))
}

/// Interrupts a seized thread; false if it has ended.
fn interrupt(pid: u32, tid: i32) -> Result<bool, LiveError> {
    unless_ended(pid, tid, raw::interrupt(tid))
}

/// Whether a request was made to a thread; false if the thread has ended.
fn unless_ended(pid: u32, tid: i32, done: io::Result<()>) -> Result<bool, LiveError> {
    match done {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
        // The first thread becomes a zombie if it ends before the others.
        Err(_) if has_ended(pid, tid) => Ok(false),
        Err(error) => Err(LiveError::system("seizing a thread of", pid)(error)),
    }
}

/// A process with all threads stopped, or left in a system call.
#[derive(Debug)]
pub(crate) struct StoppedProcess<'a> {
    pub(crate) pid: u32,
    pub(crate) threads: Vec<StoppedThread>,
    /// Threads that were left in a system call: they execute nothing of the program before this is
    /// dropped.
    pub(crate) blocked: Vec<BlockedThread>,
    leave: BlockedThreads,
    unstopped: UnstoppedThreads<'a>,
    boosts: PriorityBoosts<'a>,
    /// When the first thread was seized. From then on, a signal stops a seized thread.
    seized: Instant,
    /// When the first thread was interrupted.
    pub(crate) since: Instant,
    max_pause: Duration,
}

impl Drop for StoppedProcess<'_> {
    fn drop(&mut self) {
        self.resume_all();
    }
}

impl<'a> StoppedProcess<'a> {
    /// Stops all threads, including those started meanwhile. Must be called on the thread of
    /// [`crate::process::on_own_thread`], which must end soon if this fails: at its end, the kernel
    /// releases threads that were left in a system call.
    ///
    /// # Errors
    /// [`LiveError::NotStopped`] if that takes longer than the maximum pause.
    pub(crate) fn stop(
        process: &'a Process,
        max_pause: Duration,
        leave: BlockedThreads,
        watchdog: &'a Watchdog,
    ) -> Result<Self, LiveError> {
        let pid = process.pid();
        // While a thread is seized, the kernel queues signals that the process ignores, such as
        // SIGCHLD, and wakes other threads for them. So threads whose system call would then fail
        // with `EINTR` are seized first and released last; one that is woken before it is interrupted
        // stops for that signal, and its call is restarted as after an interruption.
        let sensitive: HashSet<i32> = threads(pid)?
            .into_iter()
            .inspect(|_| watchdog.beat())
            .filter(|tid| present_call(pid, *tid).is_some_and(system_calls::fails_when_stopped))
            .collect();
        let mut stopped = Self {
            pid,
            boosts: PriorityBoosts::new(pid, watchdog, process.journal_directory()),
            threads: Vec::new(),
            blocked: Vec::new(),
            leave,
            unstopped: UnstoppedThreads::of(pid, watchdog),
            seized: Instant::now(),
            since: Instant::now(),
            max_pause,
        };
        let mut known = HashSet::new();
        loop {
            // Only running threads start threads. So a list that is read while all threads on it are
            // stopped is complete.
            let all_stopped = !known.is_empty();
            let mut new = threads(pid)?;
            new.retain(|tid| known.insert(*tid));
            new.sort_by_key(|tid| !sensitive.contains(tid));
            if all_stopped && new.is_empty() {
                break;
            }
            let seized = Instant::now();
            stopped.unstopped.seize(&new)?;
            if !all_stopped {
                (stopped.seized, stopped.since) = (seized, Instant::now());
            }
            stopped.interrupt_seized()?;
        }
        if stopped.threads.is_empty() && stopped.blocked.is_empty() {
            return Err(LiveError::Exited { pid });
        }
        // None of them needs a CPU any more. So no thread of the process runs with a raised priority,
        // except if dbdyno and the watchdog are killed before this.
        stopped.boosts.end();
        Ok(stopped)
    }

    /// Interrupts all seized threads in parts, and waits for each part.
    fn interrupt_seized(&mut self) -> Result<(), LiveError> {
        while !self.unstopped.seized.is_empty() {
            self.unstopped.interrupt_part()?;
            let left = self.unstopped.seized.len();
            self.collect(left)?;
            if left > 0 {
                self.check_max_pause(left)?;
            }
        }
        Ok(())
    }

    /// Waits until all interrupted threads are stopped. `left` were not interrupted yet.
    fn collect(&mut self, left: usize) -> Result<(), LiveError> {
        loop {
            let mut unstopped = Vec::new();
            for tid in std::mem::take(&mut self.unstopped.tids) {
                match raw::stop(tid).map_err(LiveError::system("stopping", self.pid))? {
                    None => unstopped.push(tid),
                    Some(ThreadStop::Ended) => {}
                    Some(stop) => self.threads.extend(StoppedThread::at(self.pid, tid, stop)?),
                }
            }
            self.unstopped.tids = unstopped;
            if self.unstopped.tids.is_empty() {
                return Ok(());
            }
            if self.since.elapsed() > BOOST_AFTER {
                if self.leave_blocked() {
                    return Ok(());
                }
                self.boosts.raise(&self.unstopped.tids);
            }
            self.check_max_pause(self.unstopped.tids.len() + left)?;
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Leaves all threads that have not stopped in their system calls, if that is safe for all of them.
    fn leave_blocked(&mut self) -> bool {
        if self.leave == BlockedThreads::Wait {
            return false;
        }
        let blocked = self.unstopped.tids.iter().map(|tid| BlockedThread::of(self.pid, *tid));
        let Some(blocked) = blocked.collect::<Option<Vec<_>>>() else { return false };
        self.blocked.extend(blocked);
        self.unstopped.tids.clear();
        true
    }

    /// Registers of all threads; of those in a system call at least stack and instruction pointer.
    fn registers(&self) -> Vec<Registers> {
        let stopped = self.threads.iter().map(|thread| thread.registers);
        stopped.chain(self.blocked.iter().map(|thread| thread.registers)).collect()
    }

    /// Searches the stacks of all threads, at most until the maximum pause is over; to be called before anything is
    /// changed. `search` gets the registers of the threads and whether the time is over.
    ///
    /// # Errors
    /// [`LiveError::StacksNotRead`] if the time was over before, or `search` returned `None`.
    pub(crate) fn search_stacks<T>(
        &self,
        search: impl FnOnce(&[Registers], &dyn Fn() -> bool) -> Option<T>,
    ) -> Result<T, LiveError> {
        let is_over = || self.since.elapsed() > self.max_pause;
        let found = search(&self.registers(), &is_over).filter(|_| !is_over());
        let max_pause = Nanos::from(self.max_pause);
        found.ok_or(LiveError::StacksNotRead { pid: self.pid, max_pause })
    }

    fn check_max_pause(&self, missing: usize) -> Result<(), LiveError> {
        if self.since.elapsed() <= self.max_pause {
            return Ok(());
        }
        let max_pause = Nanos::from(self.max_pause);
        Err(LiveError::NotStopped { pid: self.pid, max_pause, missing })
    }

    /// Moves a thread in user code to an equivalent address.
    pub(crate) fn move_thread(&mut self, index: usize, to: u64) -> Result<(), LiveError> {
        let thread = &mut self.threads[index];
        let moved = Registers { rip: to, ..thread.registers };
        raw::set_registers(thread.tid, &moved)
            .map_err(LiveError::system("moving a thread of", self.pid))?;
        thread.registers = moved;
        Ok(())
    }

    /// Resumes all threads. Returns for how long they were stopped at most.
    pub(crate) fn release(mut self) -> Nanos {
        let stops: Vec<_> = self.threads.iter().map(|thread| thread.stop).collect();
        let since = stopped_since(&stops, self.seized, self.since);
        self.resume_all();
        Nanos::from(since.elapsed())
    }

    fn resume_all(&mut self) {
        let is_sensitive = |thread: &StoppedThread| {
            thread.interrupted_call().is_some_and(system_calls::fails_when_stopped)
        };
        let (sensitive, others): (Vec<_>, Vec<_>) = self.threads.drain(..).partition(is_sensitive);
        let others_are_first = !sensitive.is_empty() && !others.is_empty();
        self.release_in_parts(others);
        if others_are_first {
            wait_for_ignored_signals(self.pid);
        }
        self.release_in_parts(sensitive);
        self.boosts.end();
    }

    /// Releases threads in parts, and waits after each but the last one until it has had the CPUs.
    fn release_in_parts(&self, mut threads: Vec<StoppedThread>) {
        while !threads.is_empty() {
            let part: Vec<_> = threads.drain(..threads.len().min(THREADS_AT_ONCE)).collect();
            let last = part.last().map(|thread| thread.tid);
            part.into_iter().for_each(StoppedThread::release);
            if let (Some(tid), false) = (last, threads.is_empty()) {
                self.wait_while_runnable(tid);
            }
        }
    }

    /// Waits briefly until a resumed thread sleeps again; not if the maximum pause is over.
    fn wait_while_runnable(&self, tid: i32) {
        const MAX_WAIT: Duration = Duration::from_millis(1);
        let start = Instant::now();
        let has_time = || start.elapsed() < MAX_WAIT && self.since.elapsed() < self.max_pause;
        while has_time() && thread_state(self.pid, tid) == Some(b'R') {
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Since when threads may have been stopped: those that a signal stopped, maybe as soon as they were seized.
fn stopped_since(stops: &[ThreadStop], seized: Instant, interrupted: Instant) -> Instant {
    let by_signal = stops.iter().any(|stop| matches!(stop, ThreadStop::Signal(_)));
    if by_signal { seized } else { interrupted }
}

/// The system call that a thread is executing.
pub(super) fn present_call(pid: u32, tid: i32) -> Option<i64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// Waits briefly until running threads have discarded pending signals that are ignored by default.
fn wait_for_ignored_signals(pid: u32) {
    // SIGCHLD, SIGURG and SIGWINCH. Not SIGCONT, which also resumes.
    const IGNORED: u64 = 1 << (17 - 1) | 1 << (23 - 1) | 1 << (28 - 1);
    const MAX_WAIT_FOR_SIGNALS: Duration = Duration::from_millis(2);
    let pending = || {
        let status = Status::of(pid).ok()?;
        let mask = |name: &str| u64::from_str_radix(status.field(name)?, 16).ok();
        Some(mask("ShdPnd")? & IGNORED & !mask("SigCgt")?)
    };
    let start = Instant::now();
    while pending().is_some_and(|signals| signals != 0) && start.elapsed() < MAX_WAIT_FOR_SIGNALS {
        thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watchdog::{MIN_LIMIT, watched};

    #[test]
    fn pause_counts_from_the_seizure_if_a_signal_stopped_a_thread() {
        let seized = Instant::now();
        let interrupted = seized + Duration::from_secs(1);
        let since = |stops: &[ThreadStop]| stopped_since(stops, seized, interrupted);
        assert_eq!(since(&[ThreadStop::Trap, ThreadStop::Signal(10)]), seized);
        assert_eq!(since(&[ThreadStop::Trap, ThreadStop::Group]), interrupted);
    }

    #[test]
    fn all_threads_are_interrupted_in_parts() {
        let pid = std::process::id();
        watched(pid, MIN_LIMIT, |watchdog| {
            let mut unstopped = UnstoppedThreads::of(pid, watchdog);
            // No thread has such a number: it counts as one that has ended meanwhile.
            unstopped.seized = (i32::MAX - 600..i32::MAX).collect();
            let mut left = Vec::new();
            while !unstopped.seized.is_empty() {
                unstopped.interrupt_part()?;
                left.push(unstopped.seized.len());
            }
            assert_eq!(left, [600 - THREADS_AT_ONCE, 600 - 2 * THREADS_AT_ONCE, 0]);
            Ok(())
        })
        .unwrap();
    }
}
