//! Histograms of response times.

use dbdyno_record::Latencies;
use dbdyno_units::Nanos;
use hdrhistogram::Histogram;

/// Significant decimal digits of a response time: two, a resolution of 1%. Each further digit would
/// make the table ten times larger, and it shares the cache with the system under test.
pub const DIGITS: u8 = 2;

/// A histogram in ticks for the hot loop, converted to time when the slice ends.
#[derive(Clone, Debug)]
pub(crate) struct TickHistogram(Histogram<u64>);

impl TickHistogram {
    pub fn new() -> Self {
        // An hour at 5 GHz; longer times are recorded as this.
        const LONGEST: u64 = 3600 * 5_000_000_000;
        let histogram = Histogram::new_with_bounds(1, LONGEST, DIGITS);
        Self(histogram.expect("these bounds and digits are valid"))
    }

    #[inline]
    pub fn record(&mut self, ticks: u64) {
        self.0.saturating_record(ticks);
    }

    /// Resets the histogram.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// Returns the recorded times and resets the histogram.
    pub fn drain(&mut self, to_nanos: impl Fn(u64) -> Nanos) -> Latencies {
        let counts = self
            .0
            .iter_recorded()
            .map(|step| (to_nanos(step.value_iterated_to()).as_nanos(), step.count_at_value()))
            .collect();
        self.0.reset();
        Latencies::new(counts)
    }
}

/// A histogram in nanoseconds, for the insert benchmark.
#[derive(Clone, Debug)]
pub(crate) struct NanosHistogram(Histogram<u64>);

impl NanosHistogram {
    pub fn new() -> Self {
        // A day; longer times are recorded as this. The longest is stored separately.
        const LONGEST: u64 = 24 * 3600 * 1_000_000_000;
        let histogram = Histogram::new_with_bounds(1, LONGEST, DIGITS);
        Self(histogram.expect("these bounds and digits are valid"))
    }

    #[inline]
    pub fn record(&mut self, time: Nanos) {
        self.0.saturating_record(time.as_nanos());
    }

    /// Returns the recorded times and resets the histogram.
    pub fn drain(&mut self) -> Latencies {
        let counts = self
            .0
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
            .collect();
        self.0.reset();
        Latencies::new(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_times_are_exact_within_one_percent() {
        let mut histogram = TickHistogram::new();
        for ticks in [1_000, 1_000, 123_456] {
            histogram.record(ticks);
        }
        let latencies = histogram.drain(|ticks| Nanos::from_nanos(ticks * 2));
        let counts = latencies.counts();
        assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), 3);
        assert_eq!(counts[0].1, 2);
        let off = counts[1].0 as f64 / 246_912.0 - 1.0;
        assert!(off.abs() < 0.01, "{off}");
        assert_eq!(histogram.drain(Nanos::from_nanos), Latencies::default());
    }
}
