//! Counters of what the CPU and the kernel did for a process.
//!
//! A [`Counters`] counts a list of events on the threads of one or more processes, and on all
//! threads and processes that these start afterwards. An event that cannot be counted here is an
//! [`Unavailable`] with a reason and advice, never a zero.

mod event;
mod raw;
mod unavailable;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use dbdyno_units::Nanos;
use serde::{Deserialize, Serialize};

pub use event::{Event, Scope};
pub(crate) use unavailable::paranoid;
pub use unavailable::{Reason, Unavailable};

use crate::FsRoot;
use crate::pin::threads_of;

/// Whose events are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The calling thread and what it starts later.
    ThisThread,
    /// All threads that these processes have now, and what those start later, child processes
    /// included. A process that one of them starts during the opening may be missed.
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

/// How often counters are opened anew when threads were started or ended meanwhile.
const ATTEMPTS: u32 = 5;

/// Events that are counted together on every thread of a target. Closed when dropped.
#[derive(Debug)]
struct Group {
    /// In the order in which the kernel tells their counts.
    events: Vec<(Event, Scope)>,
    /// For each thread a file per event, the leader's first; `None` for a thread that ended
    /// before its files were opened.
    threads: Vec<Option<Vec<OwnedFd>>>,
}

impl Group {
    /// A group of one event, stopped.
    fn open(event: Event, threads: &[u32], scope: Scope) -> Result<Self, Unavailable> {
        let mut group =
            Self { events: Vec::new(), threads: threads.iter().map(|_| Some(vec![])).collect() };
        group.add(event, threads, scope)?;
        Ok(group)
    }

    /// Adds an event. Where counting the kernel is not permitted, it counts user code.
    fn add(&mut self, event: Event, threads: &[u32], scope: Scope) -> Result<(), Unavailable> {
        let scope = if event.is_in_kernel() { Scope::UserAndKernel } else { scope };
        let Err(error) = self.try_add(event, threads, scope) else { return Ok(()) };
        let refused = matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM));
        if refused && event.is_in_kernel() {
            let paranoid = paranoid(&FsRoot::this_machine());
            return Err(Unavailable { event, reason: Reason::KernelNotPermitted { paranoid } });
        }
        if refused && scope == Scope::UserAndKernel {
            return self.add(event, threads, Scope::User);
        }
        Err(unavailable(event, &error))
    }

    fn try_add(&mut self, event: Event, threads: &[u32], scope: Scope) -> io::Result<()> {
        let (kind, config) = event.code();
        let with_kernel = scope == Scope::UserAndKernel;
        let mut opened = Vec::with_capacity(threads.len());
        let mut gone = None;
        for (thread, files) in threads.iter().zip(&self.threads) {
            let Some(files) = files else {
                opened.push(None);
                continue;
            };
            let leader = files.first().map(AsFd::as_fd);
            match raw::open(kind, config, with_kernel, thread.cast_signed(), leader) {
                Ok(file) => opened.push(Some(file)),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                    opened.push(None);
                    gone = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(error) = gone.filter(|_| opened.iter().all(Option::is_none)) {
            // Single threads may end meanwhile; all of them gone is no target.
            return Err(error);
        }
        for (files, file) in self.threads.iter_mut().zip(opened) {
            match (&mut *files, file) {
                (Some(files), Some(file)) => files.push(file),
                (files, _) => *files = None,
            }
        }
        self.events.push((event, scope));
        Ok(())
    }

    fn leaders(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.threads.iter().flatten().filter_map(|files| files.first()).map(AsFd::as_fd)
    }

    fn read(&self) -> io::Result<impl Iterator<Item = Reading>> {
        let (mut enabled, mut running) = (Nanos::ZERO, Nanos::ZERO);
        let mut counts = [0_u64; raw::MOST];
        for leader in self.leaders() {
            let (wanted, counted, values) = raw::read(leader, self.events.len())?;
            enabled += wanted;
            running += counted;
            for (sum, value) in counts.iter_mut().zip(values) {
                *sum += value;
            }
        }
        let events = self.events.iter().zip(counts);
        Ok(events.map(move |(&(event, scope), count)| Reading {
            event,
            scope,
            count,
            enabled,
            running,
        }))
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
}

/// Counters of several events on one target. Closed when dropped.
#[derive(Debug)]
pub struct Counters {
    groups: Vec<Group>,
    unavailable: Vec<Unavailable>,
    /// What was asked for.
    order: Vec<Event>,
}

impl Counters {
    /// Opens a counter for each event, all stopped.
    ///
    /// Cycles and instructions, branches and branch misses, and misses of instruction fetches are
    /// counted in the same stretches of time, so that their ratios hold where counters take turns.
    #[must_use]
    pub fn open(events: &[Event], target: &Target, scope: Scope) -> Self {
        let mut threads = target.threads();
        let mut attempts = 1;
        loop {
            let counters = Self::open_on(events, &threads, scope);
            let after = target.threads();
            // One that was started meanwhile is counted, or not: nobody can say.
            let same = matches!((&threads, &after), (Ok(before), Ok(after)) if before == after);
            if same || threads.is_err() || attempts == ATTEMPTS {
                return counters;
            }
            threads = after;
            attempts += 1;
        }
    }

    fn open_on(events: &[Event], threads: &io::Result<Vec<u32>>, scope: Scope) -> Self {
        let mut counters =
            Self { groups: Vec::new(), unavailable: Vec::new(), order: events.to_vec() };
        let threads = match threads {
            Ok(threads) => threads,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                counters.refuse(Reason::NoSuchProcess);
                return counters;
            }
            Err(error) => {
                counters.unavailable = events.iter().map(|it| unavailable(*it, error)).collect();
                return counters;
            }
        };
        for event in events {
            if let Err(unavailable) = counters.add(*event, threads, scope) {
                counters.unavailable.push(unavailable);
            }
        }
        counters
    }

    fn refuse(&mut self, reason: Reason) {
        let refused = |event: &Event| Unavailable { event: *event, reason: reason.clone() };
        self.unavailable = self.order.iter().map(refused).collect();
    }

    fn add(&mut self, event: Event, threads: &[u32], scope: Scope) -> Result<(), Unavailable> {
        let files = (self.counted().count() + 1) * threads.len();
        if !may_take(files) {
            return Err(Unavailable { event, reason: Reason::TooManyFiles });
        }
        let companion = |group: &&mut Group| {
            group.events.len() < raw::MOST && group.events[0].0.group() == event.group()
        };
        if let Some(group) = self.groups.iter_mut().find(companion)
            && group.add(event, threads, scope).is_ok()
        {
            return Ok(());
        }
        // Alone it may be possible: not every CPU can count any two events at once.
        self.groups.push(Group::open(event, threads, scope)?);
        Ok(())
    }

    /// The events that are counted, and in which mode of the CPU: [`Scope::User`] also where more
    /// was asked for but not permitted.
    pub fn counted(&self) -> impl Iterator<Item = (Event, Scope)> {
        self.groups.iter().flat_map(|group| group.events.iter().copied())
    }

    /// The events that cannot be counted, and why.
    pub fn unavailable(&self) -> impl Iterator<Item = &Unavailable> {
        self.unavailable.iter()
    }

    /// Starts all.
    ///
    /// # Errors
    /// The kernel's.
    pub fn enable(&self) -> io::Result<()> {
        self.leaders().try_for_each(raw::enable)
    }

    /// Stops all; the counts stay.
    ///
    /// # Errors
    /// The kernel's.
    pub fn disable(&self) -> io::Result<()> {
        self.leaders().try_for_each(raw::disable)
    }

    fn leaders(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.groups.iter().flat_map(Group::leaders)
    }

    /// The counts since the counters were opened, ended threads included, of those that are
    /// available, in the order of the events asked for.
    ///
    /// Takes a system call per group of events and thread that was there at the opening.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&self) -> io::Result<Vec<Reading>> {
        let mut readings = Vec::with_capacity(self.order.len());
        for group in &self.groups {
            readings.extend(group.read()?);
        }
        let place = |reading: &Reading| self.order.iter().position(|it| *it == reading.event);
        readings.sort_by_key(place);
        Ok(readings)
    }
}

/// Whether counters may take so many files: a quarter of those that this process may have, since
/// it needs some for its connections. The limit is raised where that helps.
fn may_take(files: usize) -> bool {
    /// More than any server has threads and events that are worth counting.
    const RAISED: libc::rlim_t = 65_536;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` lives and may be written to.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return false;
    }
    let fits = |limit: libc::rlim_t| usize::try_from(limit / 4).is_ok_and(|most| files <= most);
    if fits(limit.rlim_cur) {
        return true;
    }
    limit.rlim_cur = limit.rlim_max.min(RAISED).max(limit.rlim_cur);
    // SAFETY: `limit` lives and is only read.
    let raised = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } == 0;
    raised && fits(limit.rlim_cur)
}

#[cfg(test)]
mod tests;
