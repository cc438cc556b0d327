//! The end of a slice or its lead-in.

use dbdyno_machine::tsc::{Calibration, TickSource};

use super::tally::Tally;
use crate::slice::Quota;

/// The end of a slice or its lead-in.
#[derive(Clone, Copy)]
pub(super) struct Deadline {
    events: u64,
    ticks: u64,
}

impl Deadline {
    /// The deadline of a quota that starts now.
    pub fn of<T: TickSource>(quota: Quota, calibration: Calibration) -> Self {
        match quota {
            Quota::Events(events) => Self { events, ticks: u64::MAX },
            Quota::Time(time) => {
                let ticks = T::now().saturating_add(calibration.to_ticks(time));
                Self { events: u64::MAX, ticks }
            }
        }
    }

    /// Whether a client with these counts stops at this tick.
    #[inline(always)]
    pub const fn is_over(self, tally: &Tally, now: u64) -> bool {
        tally.events >= self.events || now >= self.ticks
    }
}
