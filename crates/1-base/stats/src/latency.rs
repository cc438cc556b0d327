use dbdyno_units::Nanos;
use serde::{Deserialize, Serialize};

/// A summary of the response times of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Arithmetic mean.
    pub mean: Nanos,
    /// Median.
    pub p50: Nanos,
    /// 95th percentile.
    pub p95: Nanos,
    /// 99th percentile.
    pub p99: Nanos,
    /// Maximum.
    pub max: Nanos,
}

impl LatencySummary {
    /// Summarizes pairs of nanoseconds and counts, in any order; a time may occur repeatedly.
    /// `None` if there are no events.
    #[must_use]
    pub fn of(counts: &[(u64, u64)]) -> Option<Self> {
        let mut counts: Vec<(u64, u64)> =
            counts.iter().copied().filter(|(_, count)| *count > 0).collect();
        counts.sort_unstable();
        // Saturating: stored counts may be damaged.
        let total = counts.iter().fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
        let (longest, _) = *counts.last()?;
        let sum = counts.iter().fold(0_u128, |sum, (nanos, count)| {
            sum.saturating_add(u128::from(*nanos) * u128::from(*count))
        });
        let percentile =
            |share| Nanos::from_nanos(percentile(&counts, total, share).unwrap_or(longest));
        Some(Self {
            mean: Nanos::from_nanos((sum / u128::from(total)) as u64),
            p50: percentile(0.50),
            p95: percentile(0.95),
            p99: percentile(0.99),
            max: Nanos::from_nanos(longest),
        })
    }
}

/// The smallest of these times, in ascending order, that is not exceeded by at least this share of
/// the `total` events; `None` without events.
pub(crate) fn percentile(counts: &[(u64, u64)], total: u64, share: f64) -> Option<u64> {
    let rank = (share * total as f64).ceil() as u64;
    let mut seen: u64 = 0;
    let at = counts.iter().find(|(_, count)| {
        seen = seen.saturating_add(*count);
        seen >= rank
    });
    at.or(counts.last()).map(|(nanos, _)| *nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let counts: Vec<(u64, u64)> = (1..=100).rev().map(|nanos| (nanos, 1)).collect();
        let summary = LatencySummary::of(&counts).unwrap();
        assert_eq!(summary.p50.as_nanos(), 50);
        assert_eq!(summary.p95.as_nanos(), 95);
        assert_eq!(summary.p99.as_nanos(), 99);
        assert_eq!(summary.max.as_nanos(), 100);
        assert_eq!(summary.mean.as_nanos(), 50);
    }

    #[test]
    fn single_event_is_every_percentile() {
        let summary = LatencySummary::of(&[(7, 1)]).unwrap();
        assert_eq!((summary.p50, summary.p99), (Nanos::from_nanos(7), Nanos::from_nanos(7)));
        assert_eq!(LatencySummary::of(&[]), None);
        assert_eq!(LatencySummary::of(&[(7, 0)]), None);
    }

    #[test]
    fn counts_beyond_the_range_of_numbers_are_summarized() {
        let half = 1 << 63;
        let summary = LatencySummary::of(&[(5, half), (7, half)]).unwrap();
        assert_eq!(summary.max.as_nanos(), 7);
        let largest = LatencySummary::of(&[(u64::MAX, u64::MAX); 2]).unwrap();
        assert_eq!(largest.max.as_nanos(), u64::MAX);
    }
}
