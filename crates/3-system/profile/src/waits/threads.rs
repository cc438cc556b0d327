//! From switches to the times in which threads ran and waited.

use std::collections::BTreeMap;
use std::ops::Range;

use dbdyno_types::profile::WaitKind;

/// What happens to a thread, with the time in nanoseconds.
pub(super) struct Event {
    pub time: u64,
    pub pid: u32,
    pub thread: u32,
    pub change: Change,
}

#[derive(Clone, Copy)]
pub(super) enum Change {
    /// It is about to lose its CPU with this stack.
    Stack(usize),
    /// It loses its CPU.
    Out(WaitKind),
    /// It gets a CPU.
    In,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub kind: WaitKind,
    pub nanos: u64,
    /// The number of its stack, if it was sampled.
    pub stack: Option<usize>,
}

/// What a thread did.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Thread {
    pub pid: u32,
    /// Nanoseconds on a CPU.
    pub cpu: u64,
    pub waits: Vec<Wait>,
}

/// What a thread does since a time.
enum State {
    Runs(u64),
    Waits(u64, WaitKind, Option<usize>),
}

/// What threads with any event did in a part of the time that was recorded.
///
/// What comes before a thread's first event is known only if it ran. If a switch was lost, the time around it is
/// missing.
pub(super) fn pair(mut events: Vec<Event>, part: &Range<u64>) -> BTreeMap<u32, Thread> {
    // The buffers of CPUs are ordered, and the order within them is kept.
    events.sort_by_key(|event| event.time);
    let inside = |from: u64, to: u64| to.min(part.end).saturating_sub(from.max(part.start));
    let mut threads: BTreeMap<u32, (Thread, State, Option<usize>)> = BTreeMap::new();
    for Event { time, pid, thread, change } in events {
        let (thread, state, sampled) = threads.entry(thread).or_insert_with(|| {
            // If it gets a CPU first, this has no effect.
            (Thread { pid, ..Thread::default() }, State::Runs(part.start), None)
        });
        match change {
            Change::Stack(number) => *sampled = Some(number),
            Change::Out(kind) => {
                if let State::Runs(since) = *state {
                    thread.cpu += inside(since, time);
                }
                *state = State::Waits(time, kind, sampled.take());
            }
            Change::In => {
                if let State::Waits(since, kind, stack) = *state {
                    thread.wait(kind, inside(since, time), stack);
                }
                *state = State::Runs(time);
            }
        }
    }
    let end = |(number, (mut thread, state, _)): (u32, (Thread, State, Option<usize>))| {
        match state {
            State::Runs(since) => thread.cpu += inside(since, part.end),
            State::Waits(since, kind, stack) => thread.wait(kind, inside(since, part.end), stack),
        }
        (number, thread)
    };
    threads.into_iter().map(end).collect()
}

impl Thread {
    fn wait(&mut self, kind: WaitKind, nanos: u64, stack: Option<usize>) {
        if nanos > 0 {
            self.waits.push(Wait { kind, nanos, stack });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(of: &[(u64, u32, Change)]) -> Vec<Event> {
        let event = |&(time, thread, change)| Event { time, pid: 1, thread, change };
        of.iter().map(event).collect()
    }

    fn wait(kind: WaitKind, nanos: u64, stack: Option<usize>) -> Wait {
        Wait { kind, nanos, stack }
    }

    #[test]
    fn switches_in_two_buffers_are_paired_within_the_part() {
        use Change::{In, Out, Stack};
        // Thread 7 moves to another CPU, whose buffer is read first.
        let threads = pair(
            events(&[
                (150, 7, In),
                (170, 7, Out(WaitKind::Client)),
                (90, 8, In),
                (95, 7, In),
                (119, 7, Stack(3)),
                (120, 7, Out(WaitKind::Lock)),
                (130, 9, Out(WaitKind::Cpu)),
            ]),
            &(100..200),
        );
        assert_eq!(threads[&7].cpu, 20 + 20);
        let expected = [wait(WaitKind::Lock, 30, Some(3)), wait(WaitKind::Client, 30, None)];
        assert_eq!(threads[&7].waits, expected);
        // One runs to the end, another was running from the start and never runs again.
        assert_eq!((threads[&8].cpu, &threads[&8].waits[..]), (100, &[][..]));
        assert_eq!(threads[&9].cpu, 30);
        assert_eq!(threads[&9].waits, [wait(WaitKind::Cpu, 70, None)]);
    }

    #[test]
    fn time_around_a_lost_switch_is_missing() {
        use Change::{In, Out};
        let threads = pair(
            events(&[
                (110, 7, In),
                (120, 7, Out(WaitKind::Lock)),
                // It got a CPU in between.
                (150, 7, Out(WaitKind::Storage)),
                (160, 7, In),
                // And lost it.
                (190, 7, In),
            ]),
            &(100..200),
        );
        assert_eq!(threads[&7].cpu, 10 + 10);
        assert_eq!(threads[&7].waits, [wait(WaitKind::Storage, 10, None)]);
    }
}
