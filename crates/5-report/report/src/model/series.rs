use dbdyno_units::Ratio;
use serde::Serialize;

use super::{Estimate, Verdict};

/// Candidates in an order, such as the releases of a server.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Its name in the experiment; `imported` for imported results.
    pub name: String,
    /// Its candidates, in order.
    pub candidates: Vec<String>,
    /// Throughput relative to the first candidate, one row per microbenchmark and number of clients.
    pub rows: Vec<SeriesRow>,
    /// Throughput relative to the first candidate, one line per group and number of clients.
    pub groups: Vec<SeriesGroup>,
    /// Differences between neighbours, the largest certain one first.
    pub changes: Vec<SeriesChange>,
}

/// A microbenchmark over a series.
#[derive(Clone, Debug, Serialize)]
pub struct SeriesRow {
    pub microbenchmark: String,
    /// Number of clients.
    pub clients: u32,
    /// The microbenchmark's group.
    pub group: String,
    /// By candidate, the first included; `None` if it was not measured.
    pub cells: Vec<Option<SeriesCell>>,
}

/// Throughput relative to the first candidate of a series.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SeriesCell {
    /// The ratio; of the first candidate 1.
    pub ratio: Ratio,
    /// The ratio with its interval; `None` with too few blocks, and for the first candidate.
    pub relative_qps: Option<Estimate>,
    pub verdict: Verdict,
}

/// A group over a series.
#[derive(Clone, Debug, Serialize)]
pub struct SeriesGroup {
    pub group: String,
    /// Number of clients.
    pub clients: u32,
    /// By candidate; `None` if one of the group's microbenchmarks was not measured.
    pub points: Vec<Option<SeriesPoint>>,
}

/// The geometric mean of a group's ratios.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SeriesPoint {
    /// The mean.
    pub ratio: Ratio,
    /// Both ends of its 95% interval, from those of the microbenchmarks; `None` if one has none.
    pub interval: Option<(Ratio, Ratio)>,
}

/// A difference between neighbours in a series.
#[derive(Clone, Debug, Serialize)]
pub struct SeriesChange {
    pub microbenchmark: String,
    /// Number of clients.
    pub clients: u32,
    /// The microbenchmark's group.
    pub group: String,
    /// The earlier candidate.
    pub from: String,
    /// The later candidate.
    pub to: String,
    /// Throughput of the later one relative to the earlier one.
    pub ratio: Ratio,
    /// The ratio with its interval; `None` with too few blocks.
    pub relative_qps: Option<Estimate>,
    pub verdict: Verdict,
    /// Number of blocks in which both were measured.
    pub blocks: u64,
}

impl SeriesChange {
    /// Whether it is more than noise.
    #[must_use]
    pub const fn is_certain(&self) -> bool {
        matches!(self.verdict, Verdict::Better | Verdict::Worse)
    }

    /// Whether it could be more than noise: it has an interval, and is of the candidates' own work.
    pub(crate) const fn is_tested(&self) -> bool {
        self.is_certain() || matches!(self.verdict, Verdict::WithinNoise)
    }

    /// Whether it is listed: certain, or without an interval that could say so.
    #[must_use]
    pub const fn is_listed(&self) -> bool {
        self.is_certain() || matches!(self.verdict, Verdict::NoInterval)
    }

    /// The order in lists: those that are more than noise first, then those without an interval.
    pub(crate) const fn certainty(&self) -> u8 {
        self.is_certain() as u8 + self.is_listed() as u8
    }

    /// Its size regardless of its direction: equal for a ratio and its reciprocal.
    #[must_use]
    pub fn size(&self) -> f64 {
        self.ratio.get().ln().abs()
    }
}
