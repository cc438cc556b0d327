//! The time of a sale, as SQL writes it.

use std::io::Write;

use jiff::SignedDuration;
use jiff::civil::{DateTime, date};

/// A clock that makes one step of a second for each commit. It is not the machine's: the same seed
/// must give the same rows.
#[derive(Clone, Debug)]
pub(super) struct SaleClock {
    now: DateTime,
    text: Vec<u8>,
}

/// From one step of the benchmark to the next, so that later steps have later times: about three
/// years, of which a step uses a second per commit.
const SECONDS_PER_STEP: i64 = 100_000_000;

impl SaleClock {
    /// The clock of the step of this number.
    pub fn of_step(step: u32) -> Self {
        let start = date(2000, 1, 1).at(0, 0, 0, 0);
        let now = start.saturating_add(SignedDuration::from_secs(
            i64::from(step).saturating_mul(SECONDS_PER_STEP),
        ));
        Self { now, text: Vec::with_capacity(20) }
    }

    /// Goes on by a second.
    pub fn tick(&mut self) {
        self.now = self.now.saturating_add(SignedDuration::from_secs(1));
        self.text.clear();
        let now = self.now;
        // Writing to memory does not fail.
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

    /// The time since the last tick.
    pub fn text(&self) -> &[u8] {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_on_over_the_end_of_a_year_and_keeps_steps_apart() {
        let mut clock = SaleClock::of_step(0);
        clock.now = clock.now.saturating_add(SignedDuration::from_hours(366 * 24));
        clock.tick();
        assert_eq!(clock.text(), b"2001-01-01 00:00:01");
        let mut later = SaleClock::of_step(1);
        later.tick();
        assert_eq!(later.text(), b"2003-03-03 09:46:41");
    }
}
