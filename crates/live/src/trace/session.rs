//! All threads of a process, standing still.

use std::thread;
use std::time::{Duration, Instant};

use dbdyno_units::Nanos;

use super::raw::{self, Registers, Stop};
use super::restart;
use crate::LiveError;
use crate::identity::{thread_state, threads};

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
    const FIRST: libc::c_int = -20;
    // SAFETY: take numbers; 0 is the calling thread. It is no loss where they are refused.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, FIRST);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
    }
}

/// One thread that stands still.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) tid: i32,
    stop: Stop,
    pub(crate) registers: Registers,
}

impl Standing {
    /// Seizes and stops one thread; `None` if it did not stop in time, or is gone.
    ///
    /// On `None` it may still be seized, until the calling thread ends.
    pub(crate) fn seize(pid: u32, tid: i32, bound: Duration) -> Result<Option<Self>, LiveError> {
        if !begin(pid, tid)? {
            return Ok(None);
        }
        Self::wait(pid, tid, bound)
    }

    /// Waits until a seized thread stands still.
    pub(crate) fn wait(pid: u32, tid: i32, bound: Duration) -> Result<Option<Self>, LiveError> {
        let start = Instant::now();
        loop {
            let stop = raw::stop(tid).map_err(LiveError::system("waiting for a thread of", pid))?;
            match stop {
                Some(Stop::Ended) => return Ok(None),
                Some(stop) => return Self::at(pid, tid, stop),
                None if start.elapsed() > bound => return Ok(None),
                None => thread::sleep(LOOK_EVERY),
            }
        }
    }

    fn at(pid: u32, tid: i32, stop: Stop) -> Result<Option<Self>, LiveError> {
        match raw::registers(tid) {
            Ok(registers) => Ok(Some(Self { tid, stop, registers })),
            // Killed a moment ago.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
            Err(error) => Err(LiveError::system("reading registers of", pid)(error)),
        }
    }

    /// Stopped by us alone, with no signal on its way.
    pub(crate) fn is_plain(&self) -> bool {
        self.stop == Stop::Trap
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
            Stop::Signal(signal) => signal,
            _ => 0,
        };
        // A thread that was killed meanwhile cannot be mended or let go, and need not be.
        if let Some(mended) = restart::mended(&self.registers) {
            let _ = raw::set_registers(self.tid, &mended);
        }
        let _ = raw::detach(self.tid, signal);
    }

    /// Lets it run on for a while, still seized.
    pub(crate) fn resume(&self, pid: u32) -> Result<(), LiveError> {
        let signal = match self.stop {
            Stop::Signal(signal) => signal,
            _ => 0,
        };
        raw::resume(self.tid, signal).map_err(LiveError::system("resuming a thread of", pid))
    }
}

/// Seizes a thread and asks it to stop; false if it is gone.
fn begin(pid: u32, tid: i32) -> Result<bool, LiveError> {
    let done = raw::seize(tid).and_then(|()| raw::interrupt(tid));
    match done {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
        // The first thread stays as a corpse when it ends before the others.
        Err(_) if matches!(thread_state(pid, tid), None | Some(b'Z' | b'X')) => Ok(false),
        Err(error) => Err(LiveError::system("seizing a thread of", pid)(error)),
    }
}

/// A process of which every thread stands still.
#[derive(Debug)]
pub(crate) struct StoppedProcess {
    pub(crate) pid: u32,
    pub(crate) threads: Vec<Standing>,
    since: Instant,
    bound: Duration,
}

impl StoppedProcess {
    /// Stops all threads, those included that are started meanwhile. To be called
    /// [`on_own_thread`], which has to end soon when this fails.
    ///
    /// # Errors
    /// [`LiveError::NotStopped`] if that takes longer than `bound`.
    pub(crate) fn stop(pid: u32, bound: Duration) -> Result<Self, LiveError> {
        let mut stopped = Self { pid, threads: Vec::new(), since: Instant::now(), bound };
        let mut known: Vec<i32> = Vec::new();
        let mut waiting: Vec<i32> = Vec::new();
        loop {
            // A thread is started by one that runs. So when a list is read while all that are on
            // it stand still, there is none beside it.
            let all_stood = waiting.is_empty() && !known.is_empty();
            let mut new = threads(pid)?;
            new.retain(|tid| !known.contains(tid));
            if all_stood && new.is_empty() {
                break;
            }
            for tid in new {
                known.push(tid);
                if begin(pid, tid)? {
                    waiting.push(tid);
                }
            }
            stopped.collect(&mut waiting)?;
        }
        if stopped.threads.is_empty() {
            return Err(LiveError::Gone { pid });
        }
        Ok(stopped)
    }

    fn collect(&mut self, waiting: &mut Vec<i32>) -> Result<(), LiveError> {
        loop {
            let mut still = Vec::new();
            for tid in waiting.drain(..) {
                let stop = raw::stop(tid);
                match stop.map_err(LiveError::system("stopping", self.pid))? {
                    None => still.push(tid),
                    Some(Stop::Ended) => {}
                    Some(stop) => self.threads.extend(Standing::at(self.pid, tid, stop)?),
                }
            }
            *waiting = still;
            if waiting.is_empty() {
                return Ok(());
            }
            self.check_bound(waiting.len())?;
            thread::sleep(LOOK_EVERY);
        }
    }

    /// For `?` before anything is changed.
    ///
    /// # Errors
    /// It has been standing for longer than its bound.
    pub(crate) fn check_bound(&self, missing: usize) -> Result<(), LiveError> {
        if self.since.elapsed() <= self.bound {
            return Ok(());
        }
        let bound = Nanos::from(self.bound);
        Err(LiveError::NotStopped { pid: self.pid, bound, missing })
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
    pub(crate) fn release(self) -> Nanos {
        for standing in self.threads {
            standing.release();
        }
        Nanos::from(self.since.elapsed())
    }
}
