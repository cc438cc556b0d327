//! Histograms of response times.

use dbdyno_types::Latencies;
use dbdyno_units::Nanos;

/// A histogram in ticks for the hot loop, converted to time when a slice or step ends. Its buckets are those of hdrhistogram
/// with two significant digits; recording takes no branch and touches one cache line, which matters for events of less
/// than a microsecond.
#[derive(Clone, Debug)]
pub(crate) struct TickHistogram(Box<[u32; BUCKETS]>);

/// The base 2 logarithm of the number of buckets of a power of two: 128 have a resolution of 1%. A further decimal digit
/// would make the table ten times larger, and it shares the cache with the system under test.
const BUCKET_BITS: u32 = 7;

/// The number of buckets for all 64-bit numbers.
const BUCKETS: usize = bucket(u64::MAX) + 1;

/// The bucket of a number: its highest [`BUCKET_BITS`] + 1 bits, after all buckets of lower powers of two.
#[inline(always)]
const fn bucket(ticks: u64) -> usize {
    let shift = u64::BITS - 1 - BUCKET_BITS - (ticks | 1 << BUCKET_BITS).leading_zeros();
    ((shift as usize) << BUCKET_BITS) + (ticks >> shift) as usize
}

/// The highest number of a bucket.
const fn highest(bucket: usize) -> u64 {
    let shift = (bucket >> BUCKET_BITS).saturating_sub(1);
    let first = (bucket - (shift << BUCKET_BITS)) as u64;
    (first << shift) + ((1 << shift) - 1)
}

impl TickHistogram {
    pub fn new() -> Self {
        Self(Box::new([0; BUCKETS]))
    }

    #[inline(always)]
    pub fn record(&mut self, ticks: u64) {
        self.0[bucket(ticks)] += 1;
    }

    pub fn clear(&mut self) {
        self.0.fill(0);
    }

    /// Returns the recorded times and resets the histogram.
    pub fn drain(&mut self, to_nanos: impl Fn(u64) -> Nanos) -> Latencies {
        let recorded = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        let counts = recorded
            .map(|(bucket, count)| (to_nanos(highest(bucket)).as_nanos(), u64::from(*count)))
            .collect();
        self.clear();
        Latencies::new(counts)
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn recorded_times_are_exact_within_one_percent() {
        let mut histogram = TickHistogram::new();
        for ticks in [1_000, 1_000, 123_456] {
            histogram.record(ticks);
        }
        let latencies = histogram.drain(|ticks| Nanos::from_nanos(ticks * 2));
        let counts: Vec<(u64, u64)> = latencies.counts().collect();
        assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), 3);
        assert_eq!(counts[0].1, 2);
        let off = counts[1].0 as f64 / 246_912.0 - 1.0;
        assert!(off.abs() < 0.01, "{off}");
        assert_eq!(histogram.drain(Nanos::from_nanos), Latencies::default());
    }

    #[test]
    fn every_number_has_a_bucket_and_buckets_are_in_order() {
        assert_eq!((bucket(0), bucket(255), bucket(256), bucket(257)), (0, 255, 256, 256));
        for number in 0..BUCKETS {
            assert_eq!(bucket(highest(number)), number);
            let next = highest(number).checked_add(1);
            assert!(next.is_none_or(|next| bucket(next) == number + 1), "after bucket {number}");
        }
        assert_eq!(highest(BUCKETS - 1), u64::MAX);
    }

    proptest! {
        #[test]
        fn buckets_are_those_of_the_library(ticks in (0..44u32).prop_flat_map(|bits| 0..2u64 << bits)) {
            let mut library: Histogram<u64> = Histogram::new_with_bounds(1, 1 << 50, 2).unwrap();
            library.record(ticks).unwrap();
            let step = library.iter_recorded().next().unwrap();
            prop_assert_eq!(highest(bucket(ticks)), step.value_iterated_to());
        }
    }
}
