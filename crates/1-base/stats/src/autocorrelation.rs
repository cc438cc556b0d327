//! Correction of intervals for correlation of neighbouring blocks.

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
}
