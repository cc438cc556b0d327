//! What a slice is told to do.

use dbdyno_units::Nanos;
use serde::{Deserialize, Serialize};

/// What ends a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quota {
    /// The first event that ends after this time.
    Time(Nanos),
    /// This many events of each client.
    Events(u64),
}

/// One slice to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceRequest {
    /// The block: it selects the stream of events.
    pub block: u32,
    /// What runs before the clocks start; see [`Quota::lead_in`].
    pub lead_in: Option<Quota>,
    /// When to stop.
    pub quota: Quota,
}

/// The part of a slice's quota that runs before its clocks start. Other candidates' slices have
/// emptied the caches and the branch predictors that this one is used to; without it, a slice of
/// a few milliseconds would measure how they fill again.
const LEAD_IN: u64 = 8;

impl Quota {
    /// What runs before the clocks start, where there is such a thing: an eighth of the quota.
    /// Events that are long in comparison with the slice need none.
    #[must_use]
    pub fn lead_in(self) -> Option<Self> {
        match self {
            Self::Time(time) => Some(Self::Time(Nanos::from_nanos(time.as_nanos() / LEAD_IN))),
            Self::Events(events) => (events >= LEAD_IN).then_some(Self::Events(events / LEAD_IN)),
        }
    }
}
