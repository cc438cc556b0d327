//! Where threads of processes wait, and for what.
//!
//! The time of the threads that execute statements is CPU time and waits, without a rest. Waits end when a thread runs
//! again: they include the time until it gets a CPU.

mod intervals;
mod kinds;
mod switches;
mod threads;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;

use dbdyno_types::profile::{Frame, SliceWaits, ThreadTimes, WaitKind, WaitStack, Waits};
use dbdyno_units::Nanos;

use self::intervals::Intervals;
use self::kinds::Kinds;
use self::switches::Switches;
use self::threads::{Thread, pair};
use crate::sampler::ProfileError;
use crate::stacks::Collector;

/// Why switches are not recorded although the kernel permits it.
const NO_NAMES: &str =
    "the kernel hides the names of its functions: run as root, or sysctl kernel.kptr_restrict=0";

/// Records where processes wait in the timed parts of slices.
pub struct WaitSampler {
    source: Source,
    collector: Collector,
    kinds: Kinds,
    /// Whether a process serves no clients.
    is_other: HashMap<u32, bool>,
    /// Sampled waits, and their nanoseconds, by the kind that the kernel tells and the stack.
    sampled: HashMap<(WaitKind, Vec<Frame>), (u64, u64)>,
    waits: Waits,
}

enum Source {
    Switches(Switches),
    Intervals(Intervals),
}

impl WaitSampler {
    /// Records switches on these CPUs; where the kernel does not permit it, threads are looked at in intervals.
    pub fn open(cpus: &[usize]) -> Self {
        let collector = Collector::default();
        let (source, in_intervals) = match Switches::open(cpus) {
            Ok(switches) if !collector.kernel.is_empty() => (Source::Switches(switches), None),
            Ok(_) => (Source::Intervals(Intervals::default()), Some(NO_NAMES.to_owned())),
            Err(error) => (Source::Intervals(Intervals::default()), Some(error.to_string())),
        };
        Self {
            source,
            collector,
            kinds: Kinds::builtin(),
            is_other: HashMap::new(),
            sampled: HashMap::new(),
            waits: Waits { in_intervals, ..Waits::default() },
        }
    }

    pub fn begin(&mut self, pids: &HashSet<u32>) -> Result<(), ProfileError> {
        match &mut self.source {
            Source::Switches(switches) => switches.enable(),
            Source::Intervals(intervals) => Ok(intervals.begin(pids.iter().copied().collect())?),
        }
    }

    pub fn end(&mut self) -> Result<(), ProfileError> {
        match &mut self.source {
            Source::Switches(switches) => switches.disable()?,
            Source::Intervals(intervals) => intervals.end(),
        }
        Ok(())
    }

    /// Adds what was recorded of these processes in a slice whose timed part started at this time of the monotonic
    /// clock. `sessions` are the threads that execute statements; if `None`, those that wait most often for clients.
    pub fn add(
        &mut self,
        pids: &HashSet<u32>,
        mut slice: SliceWaits,
        started: Nanos,
        sessions: Option<&HashSet<u32>>,
    ) -> Result<(), ProfileError> {
        let Self { source, collector, kinds, waits, .. } = self;
        let mut stacks: Vec<Vec<Frame>> = Vec::new();
        let mut keep = |stack: Vec<Frame>| {
            stacks.push(stack);
            stacks.len() - 1
        };
        let threads = match source {
            Source::Switches(switches) => {
                let mut events = Vec::new();
                let all = switches.drain(pids, &collector.kernel, kinds, &mut events);
                switches.drain_stacks(pids, &mut events, |sample| keep(collector.frames(sample)));
                waits.lost += std::mem::take(&mut switches.lost);
                let records = std::mem::take(&mut switches.records);
                waits.records = Some(waits.records.unwrap_or_default() + records);
                if waits.slices.is_empty() && slice.wall > Nanos::ZERO {
                    switches.adapt(all as f64 / slice.wall.as_secs_f64())?;
                }
                pair(events, &(started.as_nanos()..(started + slice.wall).as_nanos()))
            }
            Source::Intervals(intervals) => {
                intervals.threads(slice.wall.as_nanos(), kinds, |function| {
                    keep(vec![collector.kernel_function(Some(function.to_owned()))])
                })
            }
        };
        let sessions = match sessions {
            Some(known) => known.clone(),
            None => self.sessions(&threads, slice.clients),
        };
        for (number, thread) in &threads {
            let is_session = sessions.contains(number);
            let times = if is_session { &mut slice.sessions } else { &mut slice.background };
            add(times, thread);
            for wait in thread.waits.iter().filter(|_| is_session) {
                if let Some(stack) = wait.stack {
                    let of = self.sampled.entry((wait.kind, stacks[stack].clone())).or_default();
                    *of = (of.0 + 1, of.1 + wait.nanos);
                }
            }
        }
        self.waits.slices.push(slice);
        Ok(())
    }

    /// The threads that wait most often for clients, one for each client. One that accepts connections waits for them, too,
    /// and does nothing else.
    fn sessions(&mut self, threads: &BTreeMap<u32, Thread>, clients: u32) -> HashSet<u32> {
        let waits_for_client = |thread: &Thread| {
            thread.waits.iter().filter(|wait| wait.kind == WaitKind::Client).count()
        };
        let mut is_other = |pid: u32| {
            *self.is_other.entry(pid).or_insert_with(|| {
                let title = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                serves_no_client(&String::from_utf8_lossy(&title))
            })
        };
        let serving = threads.iter().filter(|(_, thread)| thread.cpu > 0 && !is_other(thread.pid));
        let mut waiting: Vec<(usize, u32)> =
            serving.map(|(number, thread)| (waits_for_client(thread), *number)).collect();
        waiting.retain(|(count, _)| *count > 0);
        waiting.sort_unstable_by_key(|one| Reverse(*one));
        waiting.into_iter().take(clients as usize).map(|(_, number)| number).collect()
    }

    /// All that was recorded since the last call.
    pub fn take(&mut self) -> Waits {
        let functions = self.collector.take().functions;
        let sampled = self.sampled.drain().map(|((known, frames), (waits, nanos))| {
            let of_program = frames.iter().map(|frame| &functions[*frame as usize]);
            let names = of_program.filter(|function| function.module != "[k]");
            let names = names.filter_map(|function| function.name.as_deref());
            let kind = self.kinds.of_program(known, names);
            Sampled {
                known,
                stack: WaitStack { kind, frames, waits, time: Nanos::from_nanos(nanos) },
            }
        });
        let sampled: Vec<Sampled> = sampled.collect();
        let next = Waits { in_intervals: self.waits.in_intervals.clone(), ..Waits::default() };
        let mut waits = Waits { functions, ..std::mem::replace(&mut self.waits, next) };
        distribute(&mut waits, sampled);
        waits
    }
}

fn add(times: &mut ThreadTimes, thread: &Thread) {
    times.cpu += Nanos::from_nanos(thread.cpu);
    for wait in &thread.waits {
        *times.waits.entry(wait.kind).or_default() += Nanos::from_nanos(wait.nanos);
    }
}

/// A stack with the time of the sampled waits in it, and the kind that the kernel tells.
struct Sampled {
    known: WaitKind,
    stack: WaitStack,
}

/// Gives the time of each kind that the kernel tells to the sampled stacks, in proportion to the time of their waits,
/// and to the kinds of these stacks.
fn distribute(waits: &mut Waits, sampled: Vec<Sampled>) {
    let mut totals: BTreeMap<WaitKind, f64> = BTreeMap::new();
    for (kind, time) in waits.slices.iter().flat_map(|slice| &slice.sessions.waits) {
        *totals.entry(*kind).or_default() += time.as_nanos() as f64;
    }
    let mut sums: BTreeMap<WaitKind, f64> = BTreeMap::new();
    for one in &sampled {
        *sums.entry(one.known).or_default() += one.stack.time.as_nanos() as f64;
    }
    let mut shares: BTreeMap<(WaitKind, WaitKind), f64> = BTreeMap::new();
    for Sampled { known, stack } in sampled {
        let share = stack.time.as_nanos() as f64 / sums[&known];
        *shares.entry((known, stack.kind)).or_default() += share;
        let total = totals.get(&known).copied().unwrap_or_default();
        waits.stacks.push(WaitStack { time: nanos(total * share), ..stack });
    }
    waits.stacks.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.frames.cmp(&b.frames)));
    for slice in &mut waits.slices {
        for (known, time) in std::mem::take(&mut slice.sessions.waits) {
            let of_known = shares.iter().filter(|((from, _), _)| *from == known);
            let mut parts: Vec<(WaitKind, Nanos)> = of_known
                .map(|((_, kind), share)| (*kind, nanos(time.as_nanos() as f64 * share)))
                .collect();
            if parts.is_empty() {
                parts.push((known, time));
            }
            for (kind, time) in parts {
                *slice.sessions.waits.entry(kind).or_default() += time;
            }
        }
    }
}

fn nanos(value: f64) -> Nanos {
    Nanos::from_nanos(value.round() as u64)
}

/// Whether a process with this title serves no clients. PostgreSQL's processes say what they are; those of clients name
/// them, as `[local]` or `HOST(PORT)`.
fn serves_no_client(title: &str) -> bool {
    title.starts_with("postgres:") && !title.contains("[local]") && !title.contains('(')
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write, pipe};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};

    use super::threads::Wait;
    use super::*;

    fn now() -> Nanos {
        let time = clock_gettime(ClockId::Monotonic);
        Nanos::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    fn own_number() -> u32 {
        let path = fs::read_link("/proc/thread-self").unwrap();
        path.file_name().unwrap().to_str().unwrap().parse().unwrap()
    }

    /// Waits until a thread has stored its number and sleeps.
    fn wait_for(thread: &AtomicU32) {
        let sleeps = |number: u32| {
            let line = fs::read_to_string(format!("/proc/self/task/{number}/stat"));
            line.unwrap_or_default().contains(") S ")
        };
        while !sleeps(thread.load(Ordering::Acquire)) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn waits_of_own_threads_are_recorded_by_kind() {
        let cpus: Vec<usize> = (0..thread::available_parallelism().unwrap().get()).collect();
        let mut sampler = WaitSampler::open(&cpus);
        if let Some(reason) = &sampler.waits.in_intervals {
            return dbdyno_fuzz::skip(reason);
        }
        let own = HashSet::from([std::process::id()]);
        let numbers: [AtomicU32; 3] = Default::default();
        let mutex = Mutex::new(());
        let (mut reader, mut writer) = pipe().unwrap();
        let started = now();
        sampler.begin(&own).unwrap();
        thread::scope(|scope| {
            let held = mutex.lock().unwrap();
            scope.spawn(|| {
                numbers[0].store(own_number(), Ordering::Release);
                drop(mutex.lock().unwrap());
            });
            scope.spawn(|| {
                numbers[1].store(own_number(), Ordering::Release);
                reader.read_exact(&mut [0]).unwrap();
            });
            scope.spawn(|| {
                numbers[2].store(own_number(), Ordering::Release);
                thread::sleep(Duration::from_millis(50));
            });
            numbers[..2].iter().for_each(wait_for);
            thread::sleep(Duration::from_millis(50));
            writer.write_all(&[1]).unwrap();
            drop(held);
        });
        let wall = now() - started;
        sampler.end().unwrap();
        let threads = HashSet::from(numbers.map(AtomicU32::into_inner));
        let slice = SliceWaits { clients: 3, wall, ..SliceWaits::default() };
        sampler.add(&own, slice, started, Some(&threads)).unwrap();
        let waits = sampler.take();
        assert!(waits.records.is_none_or(|records| records > 0), "{waits:?}");
        if waits.lost > 0 {
            return dbdyno_fuzz::skip("records of switches were lost: the machine is too busy");
        }
        for kind in [WaitKind::Lock, WaitKind::Sleep, WaitKind::Other] {
            let time = waits.slices[0].sessions.waits.get(&kind).copied().unwrap_or_default();
            assert!(time > Nanos::from_millis(45), "{kind:?}: {waits:?}");
        }
        // The main thread is none of them.
        assert!(waits.slices[0].background.cpu > Nanos::ZERO, "{waits:?}");
    }

    #[test]
    fn threads_that_wait_for_clients_most_often_execute_statements() {
        let wait = |kind, count: usize| {
            let wait = Wait { kind, nanos: 1, stack: None };
            Thread { cpu: 1, waits: vec![wait; count], ..Thread::default() }
        };
        let threads = BTreeMap::from([
            (1, wait(WaitKind::Client, 1)),
            (2, wait(WaitKind::Client, 90)),
            (3, wait(WaitKind::Lock, 500)),
            (4, wait(WaitKind::Client, 110)),
            // Accepts connections.
            (5, Thread { cpu: 0, ..wait(WaitKind::Client, 900) }),
        ]);
        let mut sampler = WaitSampler::open(&[]);
        assert_eq!(sampler.sessions(&threads, 2), HashSet::from([2, 4]));
        assert_eq!(sampler.sessions(&threads, 9), HashSet::from([1, 2, 4]));
    }

    #[test]
    fn processes_of_postgresql_that_serve_clients_name_them() {
        for (title, is_other) in [
            ("postgres: 15/main: walwriter ", true),
            ("postgres: autovacuum launcher ", true),
            ("postgres: me dbdyno [local] idle", false),
            ("postgres: me dbdyno 127.0.0.1(53412) UPDATE", false),
            ("/usr/sbin/mariadbd\0--no-defaults", false),
        ] {
            assert_eq!(serves_no_client(title), is_other, "{title}");
        }
    }

    #[test]
    fn sampled_stacks_share_the_whole_time_of_their_kind() {
        let micros = Nanos::from_micros;
        let slice = |client: u64, storage: u64| {
            let waits = [(WaitKind::Client, micros(client)), (WaitKind::Storage, micros(storage))];
            let sessions = ThreadTimes { cpu: micros(5), waits: waits.into_iter().collect() };
            SliceWaits { sessions, ..SliceWaits::default() }
        };
        let mut waits = Waits { slices: vec![slice(100, 7), slice(300, 9)], ..Waits::default() };
        let sampled = |kind, frames, time| {
            let stack = WaitStack { kind, frames, waits: 2, time: micros(time) };
            Sampled { known: WaitKind::Client, stack }
        };
        let of_samples =
            vec![sampled(WaitKind::Client, vec![1], 15), sampled(WaitKind::Lock, vec![2], 5)];
        distribute(&mut waits, of_samples);
        let times: Vec<_> = waits.stacks.iter().map(|one| (one.kind, one.time)).collect();
        assert_eq!(times, [(WaitKind::Client, micros(300)), (WaitKind::Lock, micros(100))]);
        let expected = [
            (WaitKind::Lock, micros(25)),
            (WaitKind::Storage, micros(7)),
            (WaitKind::Client, micros(75)),
        ];
        assert_eq!(waits.slices[0].sessions.waits, expected.into_iter().collect());
        assert_eq!(waits.slices[1].sessions.cpu, micros(5));
    }
}
