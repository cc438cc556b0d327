//! Medians with 95% intervals, with the quantiles and the autocorrelation that these need.

use dbdyno_units::{Ratio, Share};
use serde::Serialize;

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

/// The median and the ends of the interval.
impl From<Estimate> for [Ratio; 3] {
    fn from(Estimate { median, low, high, .. }: Estimate) -> Self {
        [median, low, high]
    }
}

impl Estimate {
    /// Half the width of the interval, relative to the median.
    pub fn half_width(&self) -> Share {
        Share::from_fraction((self.high.get() - self.low.get()) / 2.0 / self.median.get())
    }

    /// The distance from the median to the farther end of the interval. An interval may be asymmetric; the farther end
    /// does not overstate the precision.
    pub fn farther_end(&self) -> Share {
        let [median, low, high] = <[Ratio; 3]>::from(*self).map(Ratio::get);
        Share::from_fraction((high - median).max(median - low))
    }

    /// With an interval that is one of `comparisons`, which all contain their value in 95% of cases:
    /// of many 95% intervals of equal candidates, some exclude 1 by chance.
    pub fn one_of(self, comparisons: usize) -> Self {
        let freedom = self.starts.map(|starts| starts as f64 - 1.0);
        let factor = widening(comparisons, freedom);
        let median = self.median.get();
        let end = |end: Ratio| Ratio::new(median * (end.get() / median).powf(factor));
        Self { low: end(self.low), high: end(self.high), ..self }
    }

    /// Whether the interval contains 1.
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
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    (!sorted.is_empty()).then(|| at_rank(&sorted, (sorted.len() as f64).midpoint(1.0)))
}

/// The lower and upper quartile of `values`; `None` if empty.
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

/// 97.5% points for 1 to 12 degrees of freedom, from the standard tables.
const TABLE: [f64; 12] =
    [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179];

/// The 97.5% point of Student's t with `freedom` degrees of freedom; `None` below 1.
///
/// In the table, interpolated linearly in 1/`freedom`. Beyond it, an expansion that is accurate to four
/// digits there.
pub(crate) fn t_quantile(freedom: f64) -> Option<f64> {
    if freedom.is_nan() || freedom < 1.0 {
        return None;
    }
    let whole = freedom.floor();
    let (below, above) = (TABLE.get(whole as usize - 1), TABLE.get(whole as usize));
    Some(match (below, above) {
        (Some(below), _) if freedom <= whole => *below,
        (Some(below), Some(above)) => {
            let share = (whole.recip() - freedom.recip()) / (whole.recip() - (whole + 1.0).recip());
            below + (above - below) * share
        }
        _ => around_normal(Z, freedom),
    })
}

/// The factor by which 95% intervals become wider so that, in 95% of cases, those of `comparisons`
/// estimates all contain their value (Bonferroni's inequality). `freedom`: degrees of freedom of
/// Student's t; `None` for the normal distribution. Too small below 5 degrees of freedom: with 2, by a
/// tenth for 5 comparisons.
pub(crate) fn widening(comparisons: usize, freedom: Option<f64>) -> f64 {
    let point = |z: f64| match freedom {
        Some(freedom) => around_normal(z, freedom) + third_term(z) / freedom.powi(3),
        None => z,
    };
    point(normal_quantile(0.025 / comparisons.max(1) as f64)) / point(Z)
}

/// The point of Student's t with the tail of the normal distribution beyond `z`, by the first terms of
/// the Cornish-Fisher expansion (Abramowitz and Stegun, 26.7.5).
fn around_normal(z: f64, freedom: f64) -> f64 {
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    z + first / freedom + second / (freedom * freedom)
}

/// The next term of that expansion, which counts for small tails.
fn third_term(z: f64) -> f64 {
    (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0
}

/// The value that a standard normal variable exceeds with this probability, below 0.5; accurate to
/// 0.0005 (Abramowitz and Stegun, 26.2.23).
fn normal_quantile(probability: f64) -> f64 {
    let t = (-2.0 * probability.ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    t - above / below
}

/// Upper limit of the correlation: larger estimates are mostly artifacts of short series.
const MOST: f64 = 0.9;

/// Factor by which correlation of neighbouring values inflates the variance of the median, at
/// least 1: (1+ρ)/(1−ρ), for a series whose correlation decays geometrically.
///
/// ρ is the lag-1 autocorrelation of the signs around the median: the variance of a median
/// depends only on which side of it the values are, so outliers have no extra weight. The
/// estimate for n independent values is −1/n on average, so 1/n is added. A negative ρ is treated
/// as 0. In simulations against four other rules, among them the uncorrected interval and sums
/// over more lags, the coverage of this rule was closest to 95% for ρ from 0 to 0.4 and 20 to 100
/// blocks.
pub(crate) fn variance_inflation(series: &[f64], median: f64) -> f64 {
    let signs: Vec<f64> = series.iter().map(|value| sign(value - median)).collect();
    let variance: f64 = signs.iter().map(|sign| sign * sign).sum();
    if variance == 0.0 {
        return 1.0;
    }
    let covariance: f64 = signs.windows(2).map(|pair| pair[0] * pair[1]).sum();
    let correlation = (covariance / variance + 1.0 / series.len() as f64).clamp(0.0, MOST);
    (1.0 + correlation) / (1.0 - correlation)
}

fn sign(value: f64) -> f64 {
    if value > 0.0 {
        1.0
    } else if value < 0.0 {
        -1.0
    } else {
        0.0
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use rand_core::SeedableRng;
    use rand_distr::{Distribution, StandardNormal};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    /// Normal noise of unit variance with this correlation between neighbours.
    pub(crate) fn autoregressive(seed: u64, correlation: f64, len: usize) -> Vec<f64> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut draw = || -> f64 { StandardNormal.sample(&mut rng) };
        let innovation = (1.0 - correlation * correlation).sqrt();
        let mut value = draw();
        let mut series = Vec::with_capacity(len);
        for _ in 0..len {
            series.push(value);
            value = correlation * value + innovation * draw();
        }
        series
    }

    #[test]
    fn correlation_inflates_the_variance() {
        let long = |correlation| variance_inflation(&autoregressive(3, correlation, 20_000), 0.0);
        assert!((long(0.0) - 1.0).abs() < 0.05);
        // The signs of a normal series are correlated by 2/π·asin(ρ).
        let of_signs = std::f64::consts::FRAC_2_PI * 0.5_f64.asin();
        let expected = (1.0 + of_signs) / (1.0 - of_signs);
        assert!((long(0.5) / expected - 1.0).abs() < 0.05);
    }

    #[test]
    fn constant_series_has_no_correlation() {
        assert_eq!(variance_inflation(&[1.0; 10], 1.0), 1.0);
    }

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

    #[test]
    fn t_quantile_agrees_with_the_tables() {
        assert_eq!(t_quantile(0.9), None);
        assert_eq!(t_quantile(f64::NAN), None);
        let expected = [
            (1.0, 12.706),
            (2.5, 3.558),
            (5.0, 2.571),
            (12.5, 2.169),
            (13.0, 2.160),
            (30.0, 2.042),
            (120.0, 1.980),
            (f64::INFINITY, 1.960),
        ];
        for (freedom, expected) in expected {
            let t = t_quantile(freedom).unwrap();
            assert!((t / expected - 1.0).abs() < 0.025, "{t} for {freedom}");
            assert!(freedom.fract() > 0.0 || (t - expected).abs() < 0.001, "{t} for {freedom}");
        }
    }

    #[test]
    fn normal_quantile_agrees_with_the_tables() {
        for (probability, expected) in [(0.025, 1.960), (0.005, 2.576), (0.000_5, 3.291)] {
            assert!((normal_quantile(probability) - expected).abs() < 0.001);
        }
    }

    #[test]
    fn widening_is_that_of_the_points_in_the_tables() {
        assert!((widening(1, Some(5.0)) - 1.0).abs() < 0.001);
        for (comparisons, freedom, expected) in [
            (5, None, 2.576 / 1.960),
            (5, Some(5.0), 4.032 / 2.571),
            (50, Some(10.0), 4.587 / 2.228),
            (25, Some(23.0), 3.485 / 2.069),
        ] {
            let factor = widening(comparisons, freedom);
            assert!((factor / expected - 1.0).abs() < 0.01, "{factor}, not {expected}");
        }
    }
}
