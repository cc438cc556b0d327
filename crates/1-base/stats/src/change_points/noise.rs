//! The scatter of a series around its levels.

use super::{LogValue, median};

/// The median of the absolute value of a standard normal variable.
const NORMAL_MEDIAN: f64 = 0.674_490;

/// A value that is farther than this from both neighbours, in standard deviations, is an outlier. Of
/// few values the standard deviation is not well known: then the distance is larger, by
/// [`FAR_OF_FEW`] divided by their number.
const FAR: f64 = 4.0;
const FAR_OF_FEW: f64 = 16.0;

/// The least variance of a value, far below what any run resolves: equal values differ by rounding.
const LEAST_VARIANCE: f64 = 1e-18;

/// What scatters a series: the errors of the values, and what differs between measurements.
pub(super) struct Noise {
    /// The typical variance of a value by its own standard error.
    within: f64,
    /// The variance between measurements beyond that.
    between: f64,
}

impl Noise {
    /// The noise of a series in order; `None` with fewer than three values.
    ///
    /// The variance is half of that of the differences of neighbours, which the levels do not affect (von
    /// Neumann, *Distribution of the ratio of the mean square successive difference to the variance*,
    /// Annals of Mathematical Statistics 12, 1941). It is taken from their median, so that few changes
    /// and outliers do not affect it either.
    pub(super) fn of(values: &[LogValue]) -> Option<Self> {
        let differences: Vec<f64> =
            values.windows(2).map(|pair| (pair[1].log - pair[0].log).abs()).collect();
        if differences.len() < 2 {
            return None;
        }
        let errors: Vec<f64> = values.iter().map(|value| value.error).collect();
        let within = median(&errors)?.powi(2).max(LEAST_VARIANCE);
        let all = (median(&differences)? / NORMAL_MEDIAN).powi(2) / 2.0;
        Some(Self { within, between: (all - within).max(0.0) })
    }

    /// The weight of a value: the reciprocal of its variance. No value is more precise than the typical
    /// one, because the standard errors are themselves estimates, of a few starts.
    pub(super) fn weight(&self, value: &LogValue) -> f64 {
        let own = value.error.powi(2).max(self.within);
        (own + self.between).recip()
    }

    /// The least variance of the values around their levels, relative to the reciprocals of their weights:
    /// they cannot scatter less than they do by themselves.
    pub(super) fn least_scale(&self) -> f64 {
        self.within / (self.within + self.between)
    }

    /// The positions of single values that are far from both neighbours, on the same side; at an end, from
    /// the two nearest values.
    pub(super) fn outliers(&self, values: &[LogValue]) -> Vec<usize> {
        let distance = FAR + FAR_OF_FEW / values.len() as f64;
        let far = distance * (self.within + self.between).sqrt();
        let last = values.len() - 1;
        let is_far = |&at: &usize| {
            let neighbours = match at {
                0 => [1, 2],
                at if at == last => [last - 1, last - 2],
                at => [at - 1, at + 1],
            };
            let [one, other] = neighbours.map(|other| values[at].log - values[other].log);
            one * other > 0.0 && one.abs().min(other.abs()) > far
        };
        (0..values.len()).filter(is_far).collect()
    }
}
