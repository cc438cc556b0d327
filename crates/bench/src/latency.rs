//! Recording response times in the hot loop, in buckets of known width.

use dbdyno_record::Latencies;
use dbdyno_units::Nanos;
use hdrhistogram::Histogram;

/// Significant decimal digits kept of a response time: two, so 1%. Each more makes the table in
/// the hot loop ten times larger, and it shares the cache with the system under test.
pub const DIGITS: u8 = 2;

/// What a hot loop records into: ticks, converted to time when the slice is over.
#[derive(Clone, Debug)]
pub(crate) struct TickHistogram(Histogram<u64>);

impl TickHistogram {
    pub fn new() -> Self {
        // An hour of ticks at 5 GHz; longer events count as that long.
        const LONGEST: u64 = 3600 * 5_000_000_000;
        let histogram = Histogram::new_with_bounds(1, LONGEST, DIGITS);
        Self(histogram.expect("these bounds and digits are valid"))
    }

    #[inline]
    pub fn record(&mut self, ticks: u64) {
        self.0.saturating_record(ticks);
    }

    /// Forgets what was recorded.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// Takes what was recorded, in time.
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

/// What threads of the insert benchmark record into: response times as they are.
#[derive(Clone, Debug)]
pub(crate) struct NanosHistogram(Histogram<u64>);

impl NanosHistogram {
    pub fn new() -> Self {
        // A day; longer operations count as that long, and the longest is known beside this.
        const LONGEST: u64 = 24 * 3600 * 1_000_000_000;
        let histogram = Histogram::new_with_bounds(1, LONGEST, DIGITS);
        Self(histogram.expect("these bounds and digits are valid"))
    }

    #[inline]
    pub fn record(&mut self, time: Nanos) {
        self.0.saturating_record(time.as_nanos());
    }

    /// Takes what was recorded.
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
    fn recorded_times_come_back_within_a_percent() {
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
