//! Counters of what the CPU and the kernel did for a process, by perf_event_open(2).
//!
//! A [`Counters`] counts events of the threads of one or more processes, and of all threads and
//! processes that these start afterwards. A counter that cannot be opened is an [`Unavailable`]
//! with a reason and advice, never a zero.

mod unavailable;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use dbdyno_types::{Count, Counter, Counts};
use dbdyno_units::Nanos;
use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Hardware, Software};
use perf_event::{Builder, ReadFormat};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::FsRoot;
use crate::cpus::threads_of;

pub use unavailable::{Reason, Unavailable};

pub(crate) use unavailable::paranoid;

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
                Err(error) => Err(unavailable(*counter, error)),
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

    pub fn enable(&mut self) -> io::Result<()> {
        self.groups.iter_mut().try_for_each(Group::enable)
    }

    /// The counts since the counters were started, including ended threads.
    ///
    /// One system call per group and per thread that existed at the opening.
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

/// The CPU modes in which events are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// User mode only.
    User,
    /// User and kernel mode.
    UserAndKernel,
}

/// Counters that are scheduled and read together; see [`group_of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupKind {
    Work,
    Branches,
    Fetches,
    Software,
}

/// The group of a counter.
///
/// Both counters of a ratio must cover the same time. More than two hardware counters in a group
/// might not fit on the CPU's four to eight, and the kernel then counts none of them. Software
/// counters need no hardware, and one system call reads all of them.
pub(super) const fn group_of(counter: Counter) -> GroupKind {
    match counter {
        Counter::Cycles | Counter::Instructions => GroupKind::Work,
        Counter::Branches | Counter::BranchMisses => GroupKind::Branches,
        Counter::L1iMisses | Counter::ItlbMisses => GroupKind::Fetches,
        Counter::MinorFaults | Counter::MajorFaults | Counter::CpuMigrations => GroupKind::Software,
    }
}

/// Whether the event only happens in kernel mode: in user mode the count would always be 0.
pub(super) const fn is_kernel_only(counter: Counter) -> bool {
    matches!(counter, Counter::CpuMigrations)
}

/// A stopped counter of one thread (0 for the calling one) and of all threads and processes that it
/// starts after the opening.
pub(super) fn builder(counter: Counter, scope: Scope, thread: u32) -> Builder<'static> {
    const fn read_miss(which: CacheId) -> Cache {
        Cache { which, operation: CacheOp::READ, result: CacheResult::MISS }
    }
    let mut builder = match counter {
        Counter::Cycles => Builder::new(Hardware::CPU_CYCLES),
        Counter::Instructions => Builder::new(Hardware::INSTRUCTIONS),
        Counter::Branches => Builder::new(Hardware::BRANCH_INSTRUCTIONS),
        Counter::BranchMisses => Builder::new(Hardware::BRANCH_MISSES),
        Counter::L1iMisses => Builder::new(read_miss(CacheId::L1I)),
        Counter::ItlbMisses => Builder::new(read_miss(CacheId::ITLB)),
        Counter::MinorFaults => Builder::new(Software::PAGE_FAULTS_MIN),
        Counter::MajorFaults => Builder::new(Software::PAGE_FAULTS_MAJ),
        Counter::CpuMigrations => Builder::new(Software::CPU_MIGRATIONS),
    };
    let times = ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
    builder.read_format(times | ReadFormat::GROUP).inherit(true).any_cpu();
    builder.exclude_kernel(scope == Scope::User).exclude_hv(true);
    match thread {
        0 => builder.observe_self(),
        thread => builder.observe_pid(thread.cast_signed()),
    };
    builder
}

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

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::thread;

    use dbdyno_units::Nanos;

    use super::*;

    const SOFTWARE: [Counter; 3] =
        [Counter::MinorFaults, Counter::MajorFaults, Counter::CpuMigrations];
    const HARDWARE: [Counter; 6] = [
        Counter::Cycles,
        Counter::Instructions,
        Counter::Branches,
        Counter::BranchMisses,
        Counter::L1iMisses,
        Counter::ItlbMisses,
    ];

    fn count(counts: &Counts, counter: Counter) -> Option<u64> {
        counts.get(counter).map(|one| one.count)
    }

    fn touch_memory(bytes: usize) {
        let mut memory = vec![0_u8; bytes];
        memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        std::hint::black_box(memory);
    }

    #[test]
    fn software_counters_include_threads_started_later() {
        let mut counters = Counters::open(&SOFTWARE, &Target::ThisThread, Scope::UserAndKernel);
        // A sandbox may forbid the system call; then there must be a reason.
        if let Some(unavailable) = counters.unavailable().next() {
            assert!(!unavailable.reason.to_string().is_empty());
            return dbdyno_fuzz::skip(&format!("no counters: {}", unavailable.reason));
        }
        touch_memory(16 << 20);
        let stopped = counters.read().unwrap();
        assert!(stopped.iter().all(|one| one.count == 0), "counted before the start: {stopped:?}");

        counters.enable().unwrap();
        thread::spawn(|| touch_memory(16 << 20)).join().unwrap();
        let counts = counters.read().unwrap();
        // With huge pages 8 faults may be enough.
        assert!(count(&counts, Counter::MinorFaults).unwrap() >= 8, "{counts:?}");
        assert!(counts.iter().all(|one| one.enabled > Nanos::from_micros(100)), "{counts:?}");
        let difference = counts.since(&counts);
        for one in difference.iter() {
            assert_eq!((one.count, one.enabled, one.running), (0, Nanos::ZERO, Nanos::ZERO));
        }
    }

    #[test]
    fn other_process_is_counted_with_its_threads_and_children() {
        let mut child = Command::new("sh")
            .args(["-c", "read go; cat /dev/null; cat /dev/null; echo; read end"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let target = Target::Processes(vec![child.id()]);
        let mut counters = Counters::open(&[Counter::MinorFaults], &target, Scope::User);
        counters.enable().unwrap();
        io::Write::write_all(child.stdin.as_mut().unwrap(), b"go\n").unwrap();
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let counts = counters.read().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        match (counters.unavailable().next(), counts.get(Counter::MinorFaults)) {
            (None, Some(one)) => {
                assert!(one.count > 10, "{one:?}");
                assert!(one.enabled > Nanos::from_micros(100), "{one:?}");
                assert_eq!(one.running, one.enabled, "{one:?}");
            }
            (Some(unavailable), None) => assert!(!unavailable.to_string().is_empty()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn hardware_counters_are_available_or_have_a_reason() {
        let mut counters = Counters::open(&HARDWARE, &Target::ThisThread, Scope::UserAndKernel);
        counters.enable().unwrap();
        touch_memory(1 << 20);
        let counts = counters.read().unwrap();
        let counted: Vec<Counter> = counts.iter().map(|one| one.counter).collect();
        let mut known = counted.clone();
        for it in counters.unavailable() {
            assert!(it.to_string().starts_with(&format!("cannot count {}: ", it.counter)));
            known.push(it.counter);
        }
        assert!(counted.iter().all(|counter| counters.counted().any(|(it, _)| it == *counter)));
        known.sort_unstable();
        assert_eq!(known, HARDWARE);
        if let (Some(cycles), Some(instructions)) =
            (count(&counts, Counter::Cycles), count(&counts, Counter::Instructions))
        {
            assert!(cycles > 1_000 && instructions > 1_000, "{counts:?}");
        }
    }

    #[test]
    fn missing_process_is_the_reason_for_all_counters() {
        let target = Target::Processes(vec![i32::MAX.cast_unsigned()]);
        let counters = Counters::open(&SOFTWARE, &target, Scope::User);
        assert_eq!(counters.unavailable().count(), SOFTWARE.len());
        assert!(counters.unavailable().all(|it| it.reason == Reason::NoSuchProcess));
        assert_eq!(counters.read().unwrap(), Counts::default());
    }

    #[test]
    fn processes_are_counted_although_one_of_them_has_ended() {
        let counters = |pids: Vec<u32>| -> Vec<Unavailable> {
            let target = Target::Processes(pids);
            Counters::open(&SOFTWARE, &target, Scope::User).unavailable().cloned().collect()
        };
        let (own, ended) = (std::process::id(), i32::MAX.cast_unsigned());
        // A sandbox may forbid the system call.
        assert_eq!(counters(vec![ended, own]), counters(vec![own]));
        assert!(counters(vec![own]).iter().all(|it| it.reason != Reason::NoSuchProcess));
    }

    #[test]
    fn counters_of_a_group_are_assigned_to_their_own_values() {
        // Opened in another order than their groups are read in.
        let requested = [Counter::CpuMigrations, Counter::Cycles, Counter::MinorFaults];
        let mut counters = Counters::open(&requested, &Target::ThisThread, Scope::UserAndKernel);
        counters.enable().unwrap();
        touch_memory(16 << 20);
        let counts = counters.read().unwrap();
        let unavailable: Vec<Counter> = counters.unavailable().map(|it| it.counter).collect();
        for counter in requested {
            assert_eq!(counts.get(counter).is_none(), unavailable.contains(&counter), "{counter}");
        }
        if let (Some(faults), Some(migrations)) =
            (count(&counts, Counter::MinorFaults), count(&counts, Counter::CpuMigrations))
        {
            assert!(faults >= 8 && migrations < faults, "{counts:?}");
        }
    }
}
