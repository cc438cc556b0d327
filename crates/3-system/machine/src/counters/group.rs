//! Counters that are scheduled together on every thread of a target.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use dbdyno_types::{Count, Counter};
use dbdyno_units::Nanos;

use super::event::{Scope, builder, is_kernel_only};
use super::unavailable::{Reason, Unavailable, paranoid};
use crate::FsRoot;

/// The most counters of a group.
pub(super) const MAX_COUNTERS: usize = 8;

/// A group of counters on each of several threads. Closed when dropped.
#[derive(Debug)]
pub(super) struct Group {
    /// In the order in which they were added, which is the order in which the kernel returns them.
    pub(super) counters: Vec<(Counter, Scope)>,
    /// Per thread its open counters, the group leader first; `None` for a thread that ended
    /// before they were opened.
    threads: Vec<Option<Vec<perf_event::Counter>>>,
}

impl Group {
    /// A stopped group of one counter.
    pub(super) fn open(
        counter: Counter,
        threads: &[u32],
        scope: Scope,
    ) -> Result<Self, Unavailable> {
        let threads_open = threads.iter().map(|_| Some(Vec::new())).collect();
        let mut group = Self { counters: Vec::new(), threads: threads_open };
        group.add(counter, threads, scope)?;
        Ok(group)
    }

    /// Adds a counter. If counting kernel mode is not permitted, it counts user mode.
    pub(super) fn add(
        &mut self,
        counter: Counter,
        threads: &[u32],
        scope: Scope,
    ) -> Result<(), Unavailable> {
        let scope = if is_kernel_only(counter) { Scope::UserAndKernel } else { scope };
        let Err(error) = self.try_add(counter, threads, scope) else { return Ok(()) };
        let refused = matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM));
        if refused && is_kernel_only(counter) {
            let paranoid = paranoid(&FsRoot::this_machine());
            return Err(Unavailable { counter, reason: Reason::KernelNotPermitted { paranoid } });
        }
        if refused && scope == Scope::UserAndKernel {
            return self.add(counter, threads, Scope::User);
        }
        Err(unavailable(counter, &error))
    }

    fn try_add(&mut self, counter: Counter, threads: &[u32], scope: Scope) -> io::Result<()> {
        let mut opened = Vec::with_capacity(threads.len());
        let mut ended = None;
        for (thread, group) in threads.iter().zip(&mut self.threads) {
            let Some(group) = group else {
                opened.push(None);
                continue;
            };
            match open_counter(counter, scope, *thread, group.first_mut()) {
                Ok(counter) => opened.push(Some(counter)),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                    opened.push(None);
                    ended = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        // Single threads may end meanwhile; if all have ended, there is no target.
        if let Some(error) = ended.filter(|_| opened.iter().all(Option::is_none)) {
            return Err(error);
        }
        for (group, counter) in self.threads.iter_mut().zip(opened) {
            match (&mut *group, counter) {
                (Some(group), Some(counter)) => group.push(counter),
                (group, _) => *group = None,
            }
        }
        self.counters.push((counter, scope));
        Ok(())
    }

    /// Starts the group on all threads.
    pub(super) fn enable(&mut self) -> io::Result<()> {
        let mut leaders = self.threads.iter_mut().flatten().filter_map(|group| group.first_mut());
        leaders.try_for_each(perf_event::Counter::enable_group)
    }

    /// The values of all counters, summed over the threads.
    pub(super) fn read(&self) -> io::Result<impl Iterator<Item = Count>> {
        let (mut enabled, mut running) = (Nanos::ZERO, Nanos::ZERO);
        let mut sums = [0_u64; MAX_COUNTERS];
        for leader in self.threads.iter().flatten().filter_map(|group| group.first()) {
            let [thread_enabled, thread_running, values @ ..] =
                read_group(leader, self.counters.len())?;
            enabled += Nanos::from_nanos(thread_enabled);
            running += Nanos::from_nanos(thread_running);
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += value;
            }
        }
        let counters = self.counters.iter().zip(sums);
        Ok(counters.map(move |(&(counter, _), count)| Count { counter, count, enabled, running }))
    }
}

fn open_counter(
    counter: Counter,
    scope: Scope,
    thread: u32,
    leader: Option<&mut perf_event::Counter>,
) -> io::Result<perf_event::Counter> {
    let builder = builder(counter, scope, thread);
    let opened = match leader {
        Some(leader) => builder.build_with_group(leader),
        None => builder.build(),
    };
    opened.map_err(|error| match error.kind() {
        // The library replaces E2BIG by an error without the kernel's number.
        io::ErrorKind::Unsupported if error.raw_os_error().is_none() => {
            io::Error::from_raw_os_error(libc::E2BIG)
        }
        _ => error,
    })
}

/// The time enabled, the time running and the counts of a group, in the order of its counters.
///
/// Not [`perf_event::Counter::read_group`], which allocates twice: this runs between slices, once
/// per thread of a server.
fn read_group(
    leader: &perf_event::Counter,
    counters: usize,
) -> io::Result<[u64; 2 + MAX_COUNTERS]> {
    // The number of counters and the two times, then value and ID of each counter.
    let mut bytes = [0_u8; (3 + 2 * MAX_COUNTERS) * size_of::<u64>()];
    // SAFETY: the descriptor stays open while its counter is borrowed.
    let file = unsafe { BorrowedFd::borrow_raw(leader.as_raw_fd()) };
    let length = rustix::io::read(file, &mut bytes)?;
    let number =
        |index: usize| bytes.as_chunks().0.get(index).map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    // An empty reading is a group that could not be scheduled.
    if length != (3 + 2 * counters) * size_of::<u64>() || number(0) != counters as u64 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(std::array::from_fn(
        |index| if index < 2 { number(1 + index) } else { number(2 * index - 1) },
    ))
}

/// Why a counter cannot be opened on the target.
pub(super) fn unavailable(counter: Counter, error: &io::Error) -> Unavailable {
    let has_cycles = || open_counter(Counter::Cycles, Scope::User, 0, None).is_ok();
    Unavailable { counter, reason: Reason::of(error, counter, has_cycles) }
}
