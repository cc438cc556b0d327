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

/// The lead-in is this fraction of the quota. Slices of other candidates have evicted caches and
/// branch predictors; without a lead-in, a slice of a few milliseconds would measure how they
/// refill.
const LEAD_IN: u64 = 8;

impl Quota {
    /// The quota of the lead-in: an eighth of this quota; `None` if that is less than one event.
    #[must_use]
    pub fn lead_in(self) -> Option<Self> {
        match self {
            Self::Time(time) => Some(Self::Time(Nanos::from_nanos(time.as_nanos() / LEAD_IN))),
            Self::Events(events) => (events >= LEAD_IN).then_some(Self::Events(events / LEAD_IN)),
        }
    }
}
