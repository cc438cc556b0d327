//! Counters of what the CPU and the kernel did for a process.
//!
//! A [`Counters`] counts a list of events on the threads of one or more processes, and on all
//! threads and processes that these start afterwards. An event that cannot be counted here is an
//! [`Unavailable`] with a reason and advice, never a zero.

mod event;
mod raw;
mod unavailable;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use dbdyno_units::Nanos;
use serde::{Deserialize, Serialize};

pub use event::{Event, Scope};
pub(crate) use unavailable::paranoid;
pub use unavailable::{Reason, Unavailable};

use crate::Root;
use crate::pin::threads_of;

/// Whose events are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The calling thread and what it starts later.
    ThisThread,
    /// All threads that these processes have now, and what those start later, child processes
    /// included. A thread that is started during the opening may be missed: open when the
    /// processes are at rest.
    Processes(Vec<u32>),
}

impl Target {
    /// The thread numbers that the kernel wants; 0 is the calling thread.
    fn threads(&self) -> io::Result<Vec<u32>> {
        let Self::Processes(pids) = self else { return Ok(vec![0]) };
        let mut threads = Vec::new();
        for pid in pids {
            threads.extend(threads_of(*pid)?);
        }
        Ok(threads)
    }
}

/// One event, counted on every thread of a target. Closed when dropped.
#[derive(Debug)]
pub struct Counter {
    event: Event,
    scope: Scope,
    /// One file for each thread, in the same order for all counters of a target; `None` for a
    /// thread that ended before its file was opened.
    files: Vec<Option<OwnedFd>>,
}

impl Counter {
    /// Opens a counter, stopped.
    ///
    /// # Errors
    /// Why the event cannot be counted on this target.
    pub fn open(event: Event, target: &Target, scope: Scope) -> Result<Self, Unavailable> {
        Self::open_with(event, target, scope, None)
    }

    fn open_with(
        event: Event,
        target: &Target,
        scope: Scope,
        leader: Option<&Self>,
    ) -> Result<Self, Unavailable> {
        let threads = target.threads().map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT) => Unavailable { event, reason: Reason::NoSuchProcess },
            _ => unavailable(event, &error),
        })?;
        Self::open_on(event, &threads, scope, leader)
    }

    /// Opens on these threads. Where counting the kernel is not permitted, counts user code.
    fn open_on(
        event: Event,
        threads: &[u32],
        scope: Scope,
        leader: Option<&Self>,
    ) -> Result<Self, Unavailable> {
        let scope = if event.is_in_kernel() { Scope::UserAndKernel } else { scope };
        let error = match Self::try_open(event, threads, scope, leader) {
            Ok(files) => return Ok(Self { event, scope, files }),
            Err(error) => error,
        };
        let refused = matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM));
        if refused && event.is_in_kernel() {
            let paranoid = paranoid(&Root::this_machine());
            return Err(Unavailable { event, reason: Reason::KernelNotPermitted { paranoid } });
        }
        if refused && scope == Scope::UserAndKernel {
            return Self::open_on(event, threads, Scope::User, leader);
        }
        Err(unavailable(event, &error))
    }

    fn try_open(
        event: Event,
        threads: &[u32],
        scope: Scope,
        leader: Option<&Self>,
    ) -> io::Result<Vec<Option<OwnedFd>>> {
        let (kind, config) = event.code();
        let with_kernel = scope == Scope::UserAndKernel;
        let mut files = Vec::with_capacity(threads.len());
        let mut gone = None;
        for (position, thread) in threads.iter().enumerate() {
            let leader = leader.and_then(|leader| leader.files.get(position)?.as_ref());
            let leader = leader.map(AsFd::as_fd);
            match raw::open(kind, config, with_kernel, thread.cast_signed(), leader) {
                Ok(file) => files.push(Some(file)),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                    files.push(None);
                    gone = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        match gone {
            // Single threads may end meanwhile; all of them gone is no target.
            Some(error) if files.iter().all(Option::is_none) => Err(error),
            _ => Ok(files),
        }
    }

    /// The event.
    #[must_use]
    pub const fn event(&self) -> Event {
        self.event
    }

    /// What is in fact counted: [`Scope::User`] also where more was asked for but not permitted.
    #[must_use]
    pub const fn scope(&self) -> Scope {
        self.scope
    }

    /// Starts counting.
    ///
    /// # Errors
    /// The kernel's.
    pub fn enable(&self) -> io::Result<()> {
        self.files.iter().flatten().try_for_each(|file| raw::enable(file.as_fd()))
    }

    /// Stops counting; the count stays.
    ///
    /// # Errors
    /// The kernel's.
    pub fn disable(&self) -> io::Result<()> {
        self.files.iter().flatten().try_for_each(|file| raw::disable(file.as_fd()))
    }

    /// The count since the counter was opened, ended threads included.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&self) -> io::Result<Reading> {
        let mut reading = Reading {
            event: self.event,
            scope: self.scope,
            count: 0,
            enabled: Nanos::ZERO,
            running: Nanos::ZERO,
        };
        for file in self.files.iter().flatten() {
            let (count, enabled, running) = raw::read(file.as_fd())?;
            reading.count += count;
            reading.enabled += enabled;
            reading.running += running;
        }
        Ok(reading)
    }
}

fn unavailable(event: Event, error: &io::Error) -> Unavailable {
    let has_cycles = || {
        let (kind, config) = Event::Cycles.code();
        raw::open(kind, config, false, 0, None).is_ok()
    };
    Unavailable { event, reason: Reason::of(error, event, has_cycles) }
}

/// What a counter showed at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// The event.
    pub event: Event,
    /// In which mode of the CPU.
    pub scope: Scope,
    /// How many were seen.
    pub count: u64,
    /// For how long the counter was wanted while the threads ran, summed over the threads.
    pub enabled: Nanos,
    /// For how long of it the event was in fact counted. It is shorter where more events are
    /// wanted than the CPU has counters: they take turns.
    pub running: Nanos,
}

impl Reading {
    /// What came after the `earlier` reading of the same counter.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            count: self.count.saturating_sub(earlier.count),
            enabled: self.enabled.saturating_sub(earlier.enabled),
            running: self.running.saturating_sub(earlier.running),
            ..*self
        }
    }

    /// The count for the whole time enabled: an estimate where the counter took turns, and
    /// `None` where its turn never came.
    #[must_use]
    pub fn scaled(&self) -> Option<f64> {
        if self.running == Nanos::ZERO {
            // Threads that did not run at all have no events: known, not unknown.
            return (self.enabled == Nanos::ZERO).then_some(self.count as f64);
        }
        let turns = self.enabled.as_nanos() as f64 / self.running.as_nanos() as f64;
        Some(self.count as f64 * turns)
    }

    /// Whether [`Reading::scaled`] is the exact count.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.running >= self.enabled
    }
}

/// Counters of several events on one target.
#[derive(Debug)]
pub struct Counters(Vec<Result<Counter, Unavailable>>);

impl Counters {
    /// Opens a counter for each event, all stopped.
    ///
    /// Cycles and instructions, and branches and branch misses, are counted in the same stretches
    /// of time, so that their ratios hold where counters take turns.
    #[must_use]
    pub fn open(events: &[Event], target: &Target, scope: Scope) -> Self {
        let mut counters: Vec<Result<Counter, Unavailable>> = Vec::new();
        // All counters must see the same threads in the same order.
        let threads = target.threads();
        for event in events {
            let leader = counters.iter().flatten().find(|it| Some(it.event) == event.partner());
            let counter = match &threads {
                Ok(threads) => Counter::open_on(*event, threads, scope, leader),
                Err(_) => Counter::open_with(*event, target, scope, None),
            };
            counters.push(counter);
        }
        Self(counters)
    }

    /// The counters, in the order of the events asked for.
    pub fn iter(&self) -> impl Iterator<Item = &Result<Counter, Unavailable>> {
        self.0.iter()
    }

    /// The events that cannot be counted, and why.
    pub fn unavailable(&self) -> impl Iterator<Item = &Unavailable> {
        self.0.iter().filter_map(|counter| counter.as_ref().err())
    }

    /// Starts all.
    ///
    /// # Errors
    /// The kernel's.
    pub fn enable(&self) -> io::Result<()> {
        self.0.iter().flatten().try_for_each(Counter::enable)
    }

    /// Stops all; the counts stay.
    ///
    /// # Errors
    /// The kernel's.
    pub fn disable(&self) -> io::Result<()> {
        self.0.iter().flatten().try_for_each(Counter::disable)
    }

    /// Reads those that are available, in the order of the events asked for.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&self) -> io::Result<Vec<Reading>> {
        self.0.iter().flatten().map(Counter::read).collect()
    }
}

#[cfg(test)]
mod tests;
