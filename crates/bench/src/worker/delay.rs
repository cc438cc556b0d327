//! An injected delay of known size, to verify that dbdyno reports it.

use dbdyno_machine::tsc::{Calibration, TickSource};
use dbdyno_units::{Nanos, Share};

/// Waits after events, for a fixed share of the events' time.
///
/// Very short waits are not possible, so delays accumulate until they are long enough. The
/// remainder is waited for at the end of the slice; the excess of a wait is subtracted from the
/// next. Waits are few and long, because each slows down the following work by about 50 ns.
#[derive(Debug)]
pub(super) struct Delay {
    share: f64,
    threshold: f64,
    owed: f64,
}

impl Delay {
    pub fn new(share: Share, calibration: Calibration) -> Self {
        let threshold = calibration.to_ticks(Nanos::from_micros(20)) as f64;
        Self { share: share.as_fraction(), threshold, owed: 0.0 }
    }

    /// Adds the delay of an event from `start` to `end`, and waits if enough has accumulated.
    /// Returns the current time.
    #[inline]
    pub fn spend<T: TickSource>(&mut self, start: u64, end: u64) -> u64 {
        self.owed += end.saturating_sub(start) as f64 * self.share;
        if self.owed < self.threshold {
            return end;
        }
        self.settle::<T>(end)
    }

    /// Waits for the whole accumulated delay. Returns the current time.
    pub fn settle<T: TickSource>(&mut self, end: u64) -> u64 {
        let until = end + self.owed as u64;
        let mut now = end;
        while now < until {
            now = T::now();
        }
        self.owed -= now.saturating_sub(end) as f64;
        now
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local!(static TIME: Cell<u64> = const { Cell::new(0) });

    /// A clock that advances by 7 whenever it is read.
    #[derive(Clone, Copy)]
    struct Fake;

    impl TickSource for Fake {
        const NAME: &'static str = "fake";

        fn is_reliable() -> bool {
            true
        }

        fn now() -> u64 {
            TIME.set(TIME.get() + 7);
            TIME.get()
        }
    }

    #[test]
    fn total_delay_is_the_share_of_the_total_time() {
        let mut delay = Delay::new(Share::from_percent(3.0), Calibration::NANOS);
        let mut worked = 0;
        let start = TIME.get();
        for _ in 0..10_000 {
            let before = TIME.get();
            TIME.set(before + 700);
            worked += 700;
            delay.spend::<Fake>(before, before + 700);
        }
        delay.settle::<Fake>(TIME.get());
        let total = TIME.get() - start;
        let share = total as f64 / worked as f64 - 1.0;
        assert!((share - 0.03).abs() < 0.0003, "{share}");
    }
}
