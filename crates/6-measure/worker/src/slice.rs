//! A request for one slice.

use dbdyno_units::Nanos;
use serde::{Deserialize, Serialize};

/// The condition that ends a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quota {
    /// The end of the first event that ends after this time.
    Time(Nanos),
    /// This number of events of each client.
    Events(u64),
}

/// A request for one slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceRequest {
    /// The block, which selects the stream of events.
    pub block: u32,
    /// Number of clients: the first of those that are prepared; all if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<u32>,
    /// Quota of the lead-in; see [`Quota::lead_in`].
    pub lead_in: Option<Quota>,
    /// Quota of the timed part.
    pub quota: Quota,
}

/// How long caches and branch predictors take to refill after slices of other candidates. Without a
/// lead-in, a slice would measure how they refill, which is equal for all candidates and makes
/// differences too small.
const REFILL: Nanos = Nanos::from_millis(5);

/// The lead-in of a long slice is this fraction of it.
const FRACTION: u64 = 8;

/// The length of the lead-in of a slice: that of the slice up to 5 ms, 5 ms up to slices of 40 ms, then
/// an eighth of the slice.
#[must_use]
pub fn lead_in_time(slice: Nanos) -> Nanos {
    Nanos::from_nanos(slice.as_nanos() / FRACTION).max(slice.min(REFILL))
}

impl Quota {
    /// The quota of the lead-in before this quota, which takes `wall`. Events are rounded to the
    /// nearest number; `None` if that is none.
    #[must_use]
    pub fn lead_in(self, wall: Nanos) -> Option<Self> {
        let time = lead_in_time(wall);
        let events = match self {
            Self::Time(_) => return Some(Self::Time(time)),
            Self::Events(events) => events as f64 * time.as_secs_f64() / wall.as_secs_f64(),
        };
        (events >= 0.5).then_some(Self::Events(events.round() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lead_in_is_as_long_as_short_slices_and_an_eighth_of_long_ones() {
        let micros = |slice| lead_in_time(Nanos::from_micros(slice)).as_nanos() / 1_000;
        let lengths = [1_000, 5_000, 20_000, 40_000, 80_000, 1_000_000].map(micros);
        assert_eq!(lengths, [1_000, 5_000, 5_000, 5_000, 10_000, 125_000]);
        let wall = Nanos::from_millis(20);
        assert_eq!(Quota::Time(wall).lead_in(wall), Some(Quota::Time(Nanos::from_millis(5))));
    }

    #[test]
    fn lead_in_of_events_takes_as_long_as_that_of_their_time() {
        let events =
            |events, millis| match Quota::Events(events).lead_in(Nanos::from_millis(millis)) {
                Some(Quota::Events(events)) => events,
                None => 0,
                time => panic!("{time:?}"),
            };
        assert_eq!(events(500, 5), 500);
        assert_eq!(events(100, 50), 13);
        assert_eq!(events(3, 20), 1);
        // Long events refill caches themselves.
        assert_eq!((events(1, 8), events(1, 12), events(1, 1_000)), (1, 0, 0));
        assert_eq!(events(1, 0), 0);
    }
}
