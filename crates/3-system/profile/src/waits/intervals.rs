//! Looks at threads in intervals, where switches cannot be recorded: the kernel's function in which each waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fs, io, thread};

use dbdyno_machine::{ProcStat, threads_of};
use dbdyno_types::profile::WaitKind;

use super::kinds::Kinds;
use super::threads::{Thread, Wait};

/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(10);

/// What a thread did at one look.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Running,
    /// In this function of the kernel, if it is known; with whether it waits for a device.
    Waiting(Option<String>, bool),
}

/// A thread at all looks.
#[derive(Default)]
struct Looks {
    pid: u32,
    seen: Vec<Seen>,
}

type OfThreads = BTreeMap<u32, Looks>;

/// Nanoseconds on a CPU and in the queue for one, since a thread started.
type Usage = (u64, u64);

/// Looks at the threads of processes. Dropping it ends this.
#[derive(Default)]
pub(super) struct Intervals {
    pids: Vec<u32>,
    running: Option<(Arc<AtomicBool>, JoinHandle<OfThreads>)>,
    before: BTreeMap<u32, Usage>,
    ended: (OfThreads, BTreeMap<u32, Usage>),
}

impl Intervals {
    pub fn begin(&mut self, pids: Vec<u32>) -> io::Result<()> {
        self.before = usages(&pids);
        self.pids.clone_from(&pids);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let look = move || {
            let mut all = OfThreads::new();
            while !stopped.load(Ordering::Relaxed) {
                for (pid, thread) in all_threads(&pids) {
                    if let Some(seen) = seen(pid, thread) {
                        let looks = all.entry(thread).or_insert(Looks { pid, seen: Vec::new() });
                        looks.seen.push(seen);
                    }
                }
                thread::sleep(INTERVAL);
            }
            all
        };
        self.running = Some((stop, thread::Builder::new().name("waits".into()).spawn(look)?));
        Ok(())
    }

    pub fn end(&mut self) {
        self.ended = (self.stop(), usages(&self.pids));
    }

    /// What threads did between the last beginning and end, which were so many nanoseconds apart. `keep` stores a
    /// function of the kernel as a stack and returns its number.
    pub fn threads(
        &mut self,
        nanos: u64,
        kinds: &Kinds,
        mut keep: impl FnMut(&str) -> usize,
    ) -> BTreeMap<u32, Thread> {
        let (looks, after) = std::mem::take(&mut self.ended);
        let usage = |thread: &u32| {
            let (before, after) = (self.before.get(thread)?, after.get(thread)?);
            Some((after.0.saturating_sub(before.0), after.1.saturating_sub(before.1)))
        };
        let of_thread = |(number, Looks { pid, seen }): (u32, Looks)| {
            let running = seen.iter().filter(|one| **one == Seen::Running).count() as u64;
            let (cpu, queue) =
                usage(&number).unwrap_or((nanos * running / seen.len().max(1) as u64, 0));
            let (cpu, waiting) = (cpu.min(nanos), nanos.saturating_sub(cpu));
            let queue = queue.min(waiting);
            let of_each = (waiting - queue) / (seen.len() as u64 - running).max(1);
            let mut waits = vec![Wait { kind: WaitKind::Cpu, nanos: queue, stack: None }];
            for one in seen {
                let Seen::Waiting(function, of_device) = one else { continue };
                let known = function.as_deref().and_then(|name| kinds.of(true, name));
                let unknown = if of_device { WaitKind::Storage } else { WaitKind::Other };
                waits.push(Wait {
                    kind: known.unwrap_or(unknown),
                    nanos: of_each,
                    stack: function.as_deref().map(&mut keep),
                });
            }
            waits.retain(|wait| wait.nanos > 0);
            (number, Thread { pid, cpu, waits })
        };
        looks.into_iter().map(of_thread).collect()
    }

    fn stop(&mut self) -> OfThreads {
        let Some((stop, handle)) = self.running.take() else { return OfThreads::new() };
        stop.store(true, Ordering::Relaxed);
        handle.join().unwrap_or_default()
    }
}

impl Drop for Intervals {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The threads of processes, with those.
fn all_threads(pids: &[u32]) -> impl Iterator<Item = (u32, u32)> {
    pids.iter().flat_map(|pid| {
        let threads = threads_of(*pid).unwrap_or_default();
        threads.into_iter().map(move |thread| (*pid, thread))
    })
}

/// What a thread does; `None` if it has ended.
fn seen(pid: u32, thread: u32) -> Option<Seen> {
    let state = ProcStat::of_thread(pid, thread).ok()?.state;
    if state == b'R' {
        return Some(Seen::Running);
    }
    let function = fs::read_to_string(format!("/proc/{pid}/task/{thread}/wchan")).ok();
    let function = function.filter(|name| !matches!(name.as_str(), "" | "0"));
    Some(Seen::Waiting(function, state == b'D'))
}

fn usages(pids: &[u32]) -> BTreeMap<u32, Usage> {
    let of_thread = |(pid, thread): (u32, u32)| {
        let line = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).ok()?;
        let mut numbers = line.split_ascii_whitespace().map(str::parse);
        Some((thread, (numbers.next()?.ok()?, numbers.next()?.ok()?)))
    };
    all_threads(pids).filter_map(of_thread).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_that_of_the_kernel_and_looks_tell_what_the_rest_is() {
        let wait = |name: &str| Seen::Waiting(Some(name.to_owned()), false);
        let seen = vec![
            wait("futex_wait_queue"),
            Seen::Running,
            wait("do_poll.constprop.0"),
            wait("futex_wait_queue"),
            Seen::Waiting(None, true),
        ];
        let mut intervals = Intervals {
            before: BTreeMap::from([(7, (1_000, 50))]),
            ended: (
                OfThreads::from([(7, Looks { pid: 5, seen })]),
                BTreeMap::from([(7, (1_300, 150))]),
            ),
            pids: vec![5],
            running: None,
        };
        let threads = intervals.threads(1_000, &Kinds::builtin(), str::len);
        let Thread { pid, cpu, waits } = &threads[&7];
        assert_eq!((*pid, *cpu), (5, 300));
        let kinds: Vec<(WaitKind, u64)> = waits.iter().map(|one| (one.kind, one.nanos)).collect();
        let expected = [
            (WaitKind::Cpu, 100),
            (WaitKind::Lock, 150),
            (WaitKind::Client, 150),
            (WaitKind::Lock, 150),
            (WaitKind::Storage, 150),
        ];
        assert_eq!(kinds, expected);
        assert_eq!(waits[1].stack, Some("futex_wait_queue".len()));
    }
}
