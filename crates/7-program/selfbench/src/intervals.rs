//! Figures of sets of 95% intervals.

use dbdyno_report::model::Estimate;

/// Whether the interval contains 1: no difference.
#[must_use]
pub fn contains_one(estimate: &Estimate) -> bool {
    (estimate.low.get()..=estimate.high.get()).contains(&1.0)
}

/// Half of the interval's width, in percent of the ratio.
#[must_use]
pub fn half_width(estimate: &Estimate) -> f64 {
    (estimate.high.get() - estimate.low.get()) / 2.0 / estimate.median.get() * 100.0
}

/// The ratio's distance from 1, in percent.
#[must_use]
pub fn distance(estimate: &Estimate) -> f64 {
    estimate.median.distance() * 100.0
}

/// A figure of each interval, in ascending order.
pub fn sorted<'a>(
    estimates: impl Iterator<Item = &'a Estimate>,
    figure: fn(&Estimate) -> f64,
) -> Vec<f64> {
    let mut values: Vec<f64> = estimates.map(figure).collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// The smallest value that at least `share` of the sorted values do not exceed; NaN if empty.
#[must_use]
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    nearest_rank(sorted, share).unwrap_or(f64::NAN)
}

/// The smallest value that at least `share` of the sorted values do not exceed; `None` if empty.
#[must_use]
pub fn nearest_rank<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).or(sorted.last()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_of_the_set() {
        let sorted = [1.0, 2.0, 3.0, 4.0];
        assert_eq!([0.0, 0.5, 0.75, 1.0].map(|s| quantile(&sorted, s)), [1.0, 2.0, 3.0, 4.0]);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
