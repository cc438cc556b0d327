//! Counters of what the CPU and the kernel did for a process, by perf_event_open(2).
//!
//! A [`Counters`] counts events of the threads of one or more processes, and of all threads and
//! processes that these start afterwards. A counter that cannot be opened is an [`Unavailable`]
//! with a reason and advice, never a zero.

mod event;
mod group;
mod unavailable;

use std::io;

use dbdyno_types::{Counter, Counts};
use rustix::process::{Resource, getrlimit, setrlimit};

pub use event::Scope;
use event::group_of;
use group::{Group, MAX_COUNTERS};
pub(crate) use unavailable::paranoid;
pub use unavailable::{Reason, Unavailable};

use crate::pin::threads_of;

/// The threads that are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The calling thread and the threads and processes that it starts later.
    ThisThread,
    /// All threads of these processes, and the threads and processes that they start later. A
    /// process that one of them starts during the opening may be missed.
    Processes(Vec<u32>),
}

impl Target {
    /// The thread IDs for the kernel; 0 is the calling thread.
    fn threads(&self) -> io::Result<Vec<u32>> {
        let Self::Processes(pids) = self else { return Ok(vec![0]) };
        let mut threads = Vec::new();
        let mut ended = None;
        for pid in pids {
            match threads_of(*pid) {
                Ok(found) => threads.extend(found),
                Err(error) if error.kind() == io::ErrorKind::NotFound => ended = Some(error),
                Err(error) => return Err(error),
            }
        }
        // Single processes may end meanwhile; if all have ended, there is no target.
        ended.filter(|_| threads.is_empty()).map_or(Ok(threads), Err)
    }
}

/// How often the counters are opened again if threads were started or ended meanwhile.
const MAX_ATTEMPTS: u32 = 5;

/// Counters on one target. Closed when dropped.
#[derive(Debug)]
pub struct Counters {
    groups: Vec<Group>,
    unavailable: Vec<Unavailable>,
}

impl Counters {
    /// Opens the counters, all stopped.
    ///
    /// Cycles and instructions, branches and branch misses, and the two misses of instruction
    /// fetches are scheduled together, so that their ratios hold even if they are multiplexed.
    #[must_use]
    pub fn open(counters: &[Counter], target: &Target, scope: Scope) -> Self {
        let mut threads = target.threads();
        let mut attempts = 1;
        loop {
            let opened = Self::open_on(counters, &threads, scope);
            let after = target.threads();
            // A thread that was started meanwhile may or may not be counted.
            let same = matches!((&threads, &after), (Ok(before), Ok(after)) if before == after);
            if same || threads.is_err() || attempts == MAX_ATTEMPTS {
                return opened;
            }
            threads = after;
            attempts += 1;
        }
    }

    fn open_on(counters: &[Counter], threads: &io::Result<Vec<u32>>, scope: Scope) -> Self {
        let mut opened = Self { groups: Vec::new(), unavailable: Vec::new() };
        for counter in counters {
            let added = match threads {
                Ok(threads) => opened.add(*counter, threads, scope),
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                    Err(Unavailable { counter: *counter, reason: Reason::NoSuchProcess })
                }
                Err(error) => Err(group::unavailable(*counter, error)),
            };
            opened.unavailable.extend(added.err());
        }
        opened
    }

    fn add(&mut self, counter: Counter, threads: &[u32], scope: Scope) -> Result<(), Unavailable> {
        let files = (self.counted().count() + 1) * threads.len();
        if !may_open(files) {
            return Err(Unavailable { counter, reason: Reason::TooManyFiles });
        }
        let fits = |group: &&mut Group| {
            group.counters.len() < MAX_COUNTERS
                && group_of(group.counters[0].0) == group_of(counter)
        };
        if let Some(group) = self.groups.iter_mut().find(fits)
            && group.add(counter, threads, scope).is_ok()
        {
            return Ok(());
        }
        // A separate group may work: some CPUs cannot count certain events together.
        self.groups.push(Group::open(counter, threads, scope)?);
        Ok(())
    }

    /// The available counters and their scope: [`Scope::User`] also if more was requested but not
    /// permitted.
    pub fn counted(&self) -> impl Iterator<Item = (Counter, Scope)> {
        self.groups.iter().flat_map(|group| group.counters.iter().copied())
    }

    /// The unavailable counters, with reasons.
    pub fn unavailable(&self) -> impl Iterator<Item = &Unavailable> {
        self.unavailable.iter()
    }

    /// Starts all counters.
    ///
    /// # Errors
    /// The kernel's.
    pub fn enable(&mut self) -> io::Result<()> {
        self.groups.iter_mut().try_for_each(Group::enable)
    }

    /// The counts since the counters were started, including ended threads.
    ///
    /// One system call per group and per thread that existed at the opening.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&self) -> io::Result<Counts> {
        let mut counts = Vec::with_capacity(Counter::ALL.len());
        for group in &self.groups {
            counts.extend(group.read()?);
        }
        Ok(Counts::new(counts))
    }
}

/// Whether so many files may be opened for counters: at most a quarter of the limit, since
/// connections need files too. Raises the soft limit if that helps.
fn may_open(files: usize) -> bool {
    /// Enough for any server's threads times all counters.
    const RAISED: u64 = 65_536;
    let fits = |limit: Option<u64>| {
        limit.is_none_or(|limit| usize::try_from(limit / 4).is_ok_and(|most| files <= most))
    };
    let mut limit = getrlimit(Resource::Nofile);
    if fits(limit.current) {
        return true;
    }
    let raised = limit.maximum.map_or(RAISED, |maximum| maximum.min(RAISED));
    limit.current = limit.current.map(|current| current.max(raised));
    let current = limit.current;
    setrlimit(Resource::Nofile, limit).is_ok() && fits(current)
}

#[cfg(test)]
mod tests;
