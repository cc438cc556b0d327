//! Percentiles of the response times of events.

use dbdyno_units::Nanos;
use serde::Serialize;

use super::{Estimate, LatencySummary, Row, Verdict};

/// A percentile that reports show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Percentile {
    /// The median.
    P50,
    /// The 95th percentile.
    P95,
    /// The 99th percentile.
    P99,
}

/// A percentile relative to the baseline's.
#[derive(Clone, Debug, Serialize)]
pub struct RelativePercentile {
    pub percentile: Percentile,
    /// The ratio: below 1 is better. `None` with too few blocks or events.
    pub relative: Option<Estimate>,
    /// Verdict on the ratio.
    pub verdict: Verdict,
}

impl Percentile {
    /// All, in ascending order.
    pub const ALL: [Self; 3] = [Self::P50, Self::P95, Self::P99];

    /// Their shares of the events, in the same order.
    pub const SHARES: [f64; 3] = [0.50, 0.95, 0.99];

    /// The name in tables and exports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P95 => "p95",
            Self::P99 => "p99",
        }
    }

    /// Its value.
    #[must_use]
    pub const fn of(self, times: &LatencySummary) -> Nanos {
        match self {
            Self::P50 => times.p50,
            Self::P95 => times.p95,
            Self::P99 => times.p99,
        }
    }

    /// Its value relative to the baseline's; `None` if response times are unknown.
    #[must_use]
    pub fn relative_of(self, row: &Row) -> Option<&RelativePercentile> {
        row.response_times.iter().find(|one| one.percentile == self)
    }
}
