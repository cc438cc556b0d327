//! When a slice, or its lead-in, is over.

use dbdyno_machine::tsc::{Calibration, TickSource};

use super::tally::Tally;
use crate::slice::Quota;

/// When a slice, or its lead-in, is over.
#[derive(Clone, Copy)]
pub(super) struct Deadline {
    events: u64,
    ticks: u64,
}

impl Deadline {
    /// The end of a quota that starts now.
    pub fn of<T: TickSource>(quota: Quota, calibration: Calibration) -> Self {
        match quota {
            Quota::Events(events) => Self { events, ticks: u64::MAX },
            Quota::Time(time) => {
                let ticks = T::now().saturating_add(calibration.to_ticks(time));
                Self { events: u64::MAX, ticks }
            }
        }
    }

    /// Whether a client that has counted so much stops at this tick.
    #[inline(always)]
    pub const fn is_over(self, tally: &Tally, now: u64) -> bool {
        tally.events >= self.events || now >= self.ticks
    }
}
