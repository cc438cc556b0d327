//! An injected delay of known size, to verify that dbdyno reports it.

use dbdyno_machine::tsc::TickSource;
use dbdyno_units::Share;
use dbdyno_workloads::events::Events;

use crate::client_context::SliceCounts;
use crate::error::RequestError;

/// Makes slices longer by a fixed share, with work of the same kind: after a share of the events,
/// another one is run in the same slice and not counted.
///
/// Waiting after events would let caches and branch predictors cool down, and so slow down the events
/// that follow. Only the part of an event that remains is waited for, once, at the end of the slice. If
/// events write, all of the delay is waited for there, as more events would change the data.
pub(crate) struct Delay {
    share: f64,
    /// The additional events: a stream of their own, so that the counted ones stay the same. `None`
    /// if events write.
    events: Option<Events>,
    /// Events that are owed.
    owed: f64,
    /// Number of additional events in this slice.
    added: u64,
    /// Counts of the additional events.
    counts: SliceCounts,
}

impl Delay {
    /// A delay of these events.
    pub fn new(share: Share, of: &Events) -> Self {
        let events = (!of.program().writes).then(|| of.clone());
        Self { events, ..Self::waiting(share) }
    }

    /// A delay of a script's events, which is waited for.
    pub fn waiting(share: Share) -> Self {
        Self {
            share: share.as_fraction(),
            events: None,
            owed: 0.0,
            added: 0,
            counts: SliceCounts::default(),
        }
    }

    pub fn start_block(&mut self, seed: u64, microbenchmark: u32, block: u32) {
        if let Some(events) = &mut self.events {
            events.start_block(!seed, microbenchmark, block);
        }
        (self.owed, self.added, self.counts) = (0.0, 0, SliceCounts::default());
    }

    /// Adds the delay of an event that ended at the tick `end`: runs more events with `run` if whole
    /// ones are owed. Returns the current tick.
    #[inline]
    pub fn after_event<T: TickSource>(
        &mut self,
        end: u64,
        mut run: impl FnMut(&mut Events, &mut SliceCounts) -> Result<(), RequestError>,
    ) -> Result<u64, RequestError> {
        self.owed += self.share;
        let Some(events) = self.events.as_mut().filter(|_| self.owed >= 1.0) else {
            return Ok(end);
        };
        while self.owed >= 1.0 {
            run(events, &mut self.counts)?;
            self.owed -= 1.0;
            self.added += 1;
        }
        Ok(T::now())
    }

    /// Ends a slice of `counted` events that began and ended at these ticks: waits for what is still
    /// owed. Returns the counts of the additional events.
    pub fn settle<T: TickSource>(&mut self, counted: u64, start: u64, end: u64) -> SliceCounts {
        let per_event = end.saturating_sub(start) as f64 / (counted + self.added).max(1) as f64;
        let until = end + (self.owed * per_event) as u64;
        while T::now() < until {}
        std::mem::take(&mut self.counts)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use dbdyno_workloads::catalog::Catalog;
    use dbdyno_workloads::events::ParameterSink;
    use dbdyno_workloads::program::{Program, Tables};

    use super::*;

    thread_local!(static TIME: Cell<u64> = const { Cell::new(0) });

    /// A clock that advances by 1 whenever it is read.
    #[derive(Clone, Copy)]
    struct Fake;

    impl TickSource for Fake {
        fn now() -> u64 {
            TIME.set(TIME.get() + 1);
            TIME.get()
        }
    }

    #[derive(Default)]
    struct Keys(Vec<i64>);

    impl ParameterSink for Keys {
        fn int(&mut self, value: i64) {
            self.0.push(value);
        }

        fn text(&mut self, _: &[u8]) {}
    }

    fn events(microbenchmark: &str) -> Events {
        let catalog = Catalog::builtin();
        let tables = Tables { count: 1, rows: 1_000_000 };
        Events::new(Program::new(catalog.get(microbenchmark).unwrap(), tables).unwrap(), 0)
    }

    /// Ticks of an event.
    const EVENT: u64 = 10_000;

    /// Runs a slice of this many events, and returns its length in events, the number of additional
    /// events, and the keys of the counted and the additional ones.
    fn slice(delay: &mut Delay, counted: &mut Events, number: u64) -> (f64, u64, [Keys; 2]) {
        let [mut own, mut additional] = [Keys::default(), Keys::default()];
        counted.start_block(5, 2, 3);
        delay.start_block(5, 2, 3);
        let start = TIME.get();
        let mut end = start;
        for _ in 0..number {
            counted.draw(0, &mut own);
            TIME.set(TIME.get() + EVENT);
            end = delay
                .after_event::<Fake>(TIME.get(), |events, counts| {
                    events.draw(0, &mut additional);
                    counts.statements += 1;
                    TIME.set(TIME.get() + EVENT);
                    Ok(())
                })
                .unwrap();
        }
        let counts = delay.settle::<Fake>(number, start, end);
        ((TIME.get() - start) as f64 / EVENT as f64, counts.statements, [own, additional])
    }

    #[test]
    fn slices_are_longer_by_the_share_whatever_their_number_of_events() {
        let mut counted = events("point-query_range=100");
        for (percent, number, expected) in
            [(1.0, 1_000, 10), (3.0, 1_000, 30), (10.0, 25, 2), (3.0, 1, 0), (250.0, 10, 25)]
        {
            let mut delay = Delay::new(Share::from_percent(percent), &counted);
            // A second slice owes nothing for the first.
            for _ in 0..2 {
                let (length, additional, _) = slice(&mut delay, &mut counted, number);
                let longer = length / number as f64 - 1.0;
                assert!((longer - percent / 100.0).abs() < 0.0005, "{percent}%: {longer}");
                // 1% of 1,000 times 0.01 may be a little less than 10.
                assert!(expected - additional <= 1, "{percent}%: {additional} of {expected}");
            }
        }
    }

    #[test]
    fn counted_events_are_those_without_a_delay() {
        let mut counted = events("point-query_range=100");
        let mut none = Delay::new(Share::default(), &counted);
        let mut half = Delay::new(Share::from_percent(50.0), &counted);
        let (_, _, [without, nothing]) = slice(&mut none, &mut counted, 20);
        let (_, _, [with, additional]) = slice(&mut half, &mut counted, 20);
        assert_eq!((&with.0, nothing.0.len()), (&without.0, 0));
        assert_eq!(additional.0.len(), 10);
        assert!(additional.0.iter().all(|key| !with.0.contains(key)), "keys of their own");
    }

    #[test]
    fn delay_of_writes_changes_nothing() {
        let mut counted = events("update-index_range=100");
        let mut delay = Delay::new(Share::from_percent(200.0), &counted);
        let (length, additional, _) = slice(&mut delay, &mut counted, 10);
        assert_eq!(additional, 0);
        assert!((length - 30.0).abs() < 0.1, "{length}");
    }
}
