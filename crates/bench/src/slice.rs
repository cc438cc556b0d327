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
pub struct SliceOrder {
    /// The block: it selects the stream of events.
    pub block: u32,
    /// When to stop.
    pub quota: Quota,
}
