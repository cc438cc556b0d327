//! Ratios of runs on a logarithmic scale.

use dbdyno_units::{Ratio, Share};

use crate::estimate::{Estimate, Z, t_quantile};

/// The standard deviation of equal instances, in noise floors: a noise floor is the median of their
/// distances from 1, which is 0.674 standard deviations of a normal distribution.
const NOISE_FLOORS: f64 = 1.482_6;

/// A value of a series on a logarithmic scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogValue {
    /// The logarithm of the ratio.
    pub log: f64,
    /// Its standard error, of what varies within one measurement and between equal instances.
    pub error: f64,
}

impl LogValue {
    /// The ratio of a run. Its standard error is that of its interval, and at least that of equal
    /// instances by this noise floor; `None` without a control.
    pub fn of(estimate: &Estimate, floor: Option<Share>) -> Self {
        let [log, low, high] =
            [estimate.median, estimate.low, estimate.high].map(|end| end.get().ln());
        let starts = estimate.starts.and_then(|starts| t_quantile(starts as f64 - 1.0));
        let error = (high - low) / 2.0 / starts.unwrap_or(Z);
        Self { log, error: error.max(error_of(floor)) }
    }

    /// A ratio without an interval.
    pub fn single(ratio: Ratio, floor: Option<Share>) -> Self {
        Self { log: ratio.get().ln(), error: error_of(floor) }
    }

    /// The geometric mean of ratios; `None` without any. Its error is the mean of theirs: the ratios of one run are not
    /// independent, as one start measures all of them.
    pub fn mean(values: &[Self]) -> Option<Self> {
        let mean = |of: fn(&Self) -> f64| values.iter().map(of).sum::<f64>() / values.len() as f64;
        let mean = || Self { log: mean(|value| value.log), error: mean(|value| value.error) };
        (!values.is_empty()).then(mean)
    }
}

fn error_of(floor: Option<Share>) -> f64 {
    NOISE_FLOORS * floor.map_or(0.0, Share::as_fraction).ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(half: f64, starts: Option<usize>) -> Estimate {
        let [median, low, high] = [0.0, -half, half].map(|log: f64| Ratio::new(1.1 * log.exp()));
        Estimate { median, low, high, blocks: 60, starts }
    }

    #[test]
    fn standard_error_is_that_of_the_interval_and_at_least_that_of_equal_instances() {
        let floor = Some(Share::from_percent(1.0));
        let error = |half, starts, floor| LogValue::of(&estimate(half, starts), floor).error;
        assert!((error(0.0196, None, None) - 0.01).abs() < 1e-6);
        assert!((error(0.02571, Some(6), None) - 0.01).abs() < 1e-6);
        assert!((error(0.0001, Some(6), floor) - 0.01475).abs() < 1e-4);
        assert!((error(0.1, None, floor) - 0.051).abs() < 1e-4);
        assert_eq!(LogValue::single(Ratio::new(1.1), None).error, 0.0);
    }

    #[test]
    fn mean_is_not_more_certain_than_its_ratios() {
        let values = [(0.8, 0.02), (1.25, 0.04)]
            .map(|(ratio, error): (f64, f64)| LogValue { log: ratio.ln(), error });
        let mean = LogValue::mean(&values).unwrap();
        assert!(mean.log.abs() < 1e-12 && (mean.error - 0.03).abs() < 1e-12);
        assert_eq!(LogValue::mean(&[]), None);
    }
}
