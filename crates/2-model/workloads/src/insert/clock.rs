//! Timestamps of sales, in SQL format.

use std::io::Write;

use jiff::SignedDuration;
use jiff::civil::{DateTime, date};

/// A simulated clock that advances by one second per commit. The system clock is not used,
/// because the same seed must give the same rows.
#[derive(Clone, Debug)]
pub(super) struct SaleClock {
    now: DateTime,
    text: Vec<u8>,
}

/// Distance between the start times of consecutive steps, about three years. A step uses one
/// second per commit, so that later steps have later times.
const SECONDS_PER_STEP: i64 = 100_000_000;

impl SaleClock {
    /// The clock at the start of a step.
    pub fn of_step(step: u32) -> Self {
        let start = date(2000, 1, 1).at(0, 0, 0, 0);
        let now = start.saturating_add(SignedDuration::from_secs(
            i64::from(step).saturating_mul(SECONDS_PER_STEP),
        ));
        Self { now, text: Vec::with_capacity(20) }
    }

    /// Advances by one second.
    pub fn tick(&mut self) {
        self.now = self.now.saturating_add(SignedDuration::from_secs(1));
        self.text.clear();
        let now = self.now;
        // Writing to a vector cannot fail.
        let _ = write!(
            self.text,
            "{:04}-{:02}-{:02} {:02}:{:02}:{:02}",
            now.year(),
            now.month(),
            now.day(),
            now.hour(),
            now.minute(),
            now.second()
        );
    }

    /// The current time. Empty before the first tick.
    pub fn text(&self) -> &[u8] {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_advances_over_years_and_steps_do_not_overlap() {
        let mut clock = SaleClock::of_step(0);
        clock.now = clock.now.saturating_add(SignedDuration::from_hours(366 * 24));
        clock.tick();
        assert_eq!(clock.text(), b"2001-01-01 00:00:01");
        let mut later = SaleClock::of_step(1);
        later.tick();
        assert_eq!(later.text(), b"2003-03-03 09:46:41");
    }
}
