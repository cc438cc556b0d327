use dbdyno_units::{Ratio, Share};
use serde::Serialize;

use crate::autocorrelation::variance_inflation;
use crate::student::widening;

/// Minimum number of blocks for an interval: with five, even the full range of the blocks covers
/// the median in only 94% of cases.
pub const MIN_BLOCKS: usize = 6;

/// The 97.5% point of the standard normal distribution.
pub(crate) const Z: f64 = 1.959_964;

/// The median of per-block ratios with its 95% interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    pub median: Ratio,
    /// Lower end of the 95% interval.
    pub low: Ratio,
    /// Upper end of the 95% interval.
    pub high: Ratio,
    /// Number of blocks. Not serialized.
    #[serde(skip)]
    pub blocks: usize,
    /// Number of starts if the interval is over starts; `None` if it is over blocks. Not serialized.
    #[serde(skip)]
    pub starts: Option<usize>,
}

impl Estimate {
    /// Half the width of the interval, relative to the median.
    #[must_use]
    pub fn half_width(&self) -> Share {
        Share::from_fraction((self.high.get() - self.low.get()) / 2.0 / self.median.get())
    }

    /// With an interval that is one of `comparisons`, which all contain their value in 95% of cases:
    /// of many 95% intervals of equal candidates, some exclude 1 by chance.
    #[must_use]
    pub fn one_of(self, comparisons: usize) -> Self {
        let freedom = self.starts.map(|starts| starts as f64 - 1.0);
        let factor = widening(comparisons, freedom);
        let median = self.median.get();
        let end = |end: Ratio| Ratio::new(median * (end.get() / median).powf(factor));
        Self { low: end(self.low), high: end(self.high), ..self }
    }

    /// Whether the interval contains 1.
    #[must_use]
    pub fn contains_one(&self) -> bool {
        self.low.get() <= 1.0 && 1.0 <= self.high.get()
    }
}

/// The median of `ratios` with its 95% interval; `None` with fewer than [`MIN_BLOCKS`]. `ratios`
/// must be in the order of measurement.
///
/// The ends of the interval are the sorted ratios at the ranks (n+1)/2 ± z·n/(2·√n′),
/// interpolated between neighbours (Conover, *Practical Nonparametric Statistics*, 3rd ed., §3.2,
/// with the normal approximation to the binomial). No assumption is made about the shape of the
/// distribution. n′ is the effective sample size: n divided by the factor by which correlation of
/// neighbouring blocks inflates the variance.
#[must_use]
pub fn median_with_interval(ratios: &[f64]) -> Option<Estimate> {
    if ratios.len() < MIN_BLOCKS {
        return None;
    }
    let n = ratios.len() as f64;
    let mut sorted = ratios.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let centre = at_rank(&sorted, n.midpoint(1.0));
    let effective_blocks = n / variance_inflation(ratios, centre);
    let half = Z * n / (2.0 * effective_blocks.sqrt());
    Some(Estimate {
        median: Ratio::new(centre),
        low: Ratio::new(at_rank(&sorted, n.midpoint(1.0) - half)),
        high: Ratio::new(at_rank(&sorted, n.midpoint(1.0) + half)),
        blocks: ratios.len(),
        starts: None,
    })
}

/// The median of `values`; `None` if empty.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    (!sorted.is_empty()).then(|| at_rank(&sorted, (sorted.len() as f64).midpoint(1.0)))
}

/// The lower and upper quartile of `values`; `None` if empty.
#[must_use]
pub fn middle_half(values: &[f64]) -> Option<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| at_rank(&sorted, 1.0 + share * (sorted.len() as f64 - 1.0));
    (!sorted.is_empty()).then(|| (at(0.25), at(0.75)))
}

/// The value at a rank from 1 to n, interpolated; other ranks are clamped.
fn at_rank(sorted: &[f64], rank: f64) -> f64 {
    let rank = rank.clamp(1.0, sorted.len() as f64);
    let below = sorted[rank as usize - 1];
    match sorted.get(rank as usize) {
        Some(above) => below + (above - below) * rank.fract(),
        None => below,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::autocorrelation::tests::autoregressive;

    fn coverage(correlation: f64, blocks: usize) -> f64 {
        const TRIALS: u64 = 2_000;
        let covered = (0..TRIALS)
            .filter(|seed| {
                let noise = autoregressive(*seed, correlation, blocks);
                let ratios: Vec<f64> = noise.iter().map(|noise| 1.0 + 0.01 * noise).collect();
                median_with_interval(&ratios).unwrap().contains_one()
            })
            .count();
        covered as f64 / TRIALS as f64
    }

    #[test]
    fn interval_of_independent_blocks_has_nominal_coverage() {
        for blocks in [10, 20, 40, 100] {
            let share = coverage(0.0, blocks);
            assert!((0.94..=0.98).contains(&share), "{share} with {blocks} blocks");
        }
    }

    #[test]
    fn interval_of_correlated_blocks_has_nominal_coverage() {
        for blocks in [20, 40, 100] {
            let share = coverage(0.3, blocks);
            assert!((0.92..=0.98).contains(&share), "{share} with {blocks} blocks");
        }
    }

    #[test]
    fn too_few_blocks_give_no_estimate() {
        assert_eq!(median_with_interval(&[1.0; MIN_BLOCKS - 1]), None);
        assert!(median_with_interval(&[1.0; MIN_BLOCKS]).is_some());
    }

    #[test]
    fn outlier_barely_moves_median_and_interval() {
        let mut ratios: Vec<f64> =
            autoregressive(5, 0.0, 40).iter().map(|n| 1.0 + 0.001 * n).collect();
        let before = median_with_interval(&ratios).unwrap();
        ratios[7] = 50.0;
        let after = median_with_interval(&ratios).unwrap();
        assert!((after.median.get() - before.median.get()).abs() < 0.0005);
        assert!(after.half_width().as_fraction() < 0.002);
    }

    #[test]
    fn median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn middle_half_excludes_a_quarter_on_each_side() {
        assert_eq!(middle_half(&[5.0, 1.0, 4.0, 2.0, 3.0]), Some((2.0, 4.0)));
        assert_eq!(middle_half(&[7.0]), Some((7.0, 7.0)));
        assert_eq!(middle_half(&[]), None);
    }

    proptest! {
        #[test]
        fn interval_contains_the_median_and_is_within_the_data(
            ratios in prop::collection::vec(0.5f64..2.0, MIN_BLOCKS..60)
        ) {
            let estimate = median_with_interval(&ratios).unwrap();
            let least = ratios.iter().copied().fold(f64::MAX, f64::min);
            let greatest = ratios.iter().copied().fold(f64::MIN, f64::max);
            prop_assert!(least <= estimate.low.get());
            prop_assert!(estimate.low <= estimate.median);
            prop_assert!(estimate.median <= estimate.high);
            prop_assert!(estimate.high.get() <= greatest);
        }

        #[test]
        fn estimate_scales_with_the_ratios(
            ratios in prop::collection::vec(0.5f64..2.0, MIN_BLOCKS..60)
        ) {
            let doubled: Vec<f64> = ratios.iter().map(|ratio| ratio * 2.0).collect();
            let (one, two) = (median_with_interval(&ratios), median_with_interval(&doubled));
            let (one, two) = (one.unwrap(), two.unwrap());
            prop_assert!((two.median.get() / one.median.get() - 2.0).abs() < 1e-9);
            prop_assert!((two.low.get() / one.low.get() - 2.0).abs() < 1e-9);
        }
    }
}
