//! The interval over starts, on a logarithmic scale: one rule for all ratios and figures.

mod weighted;

use dbdyno_units::Ratio;

use crate::estimate::median;
use crate::restarts::MIN_RESTARTS;
use crate::student::t_quantile;
use weighted::WeightedStarts;

/// A start is short if it has less than this share of the blocks of the median start. Starts that
/// were not interrupted differ by less.
const SHORT: f64 = 1.0 / 3.0;

/// Starts, or other parts of a series that are independent of each other.
pub(crate) struct Starts {
    /// The logarithm of each start's value.
    pub(crate) values: Vec<f64>,
    /// Number of blocks of each start.
    pub(crate) blocks: Vec<f64>,
    /// The variance of the logarithm of a single block's value, σ²: that of n blocks is σ²/n. `None`
    /// if unknown or zero.
    pub(crate) within: Option<f64>,
}

/// An interval that is symmetric on a logarithmic scale.
pub(crate) struct LogInterval {
    /// The logarithm of the estimate.
    pub(crate) centre: f64,
    /// Half its width.
    pub(crate) half: f64,
    /// Whether its width depends on the number of starts rather than blocks.
    pub(crate) over_starts: bool,
}

impl LogInterval {
    /// The value that many half-widths above the estimate.
    pub(crate) fn at(&self, half_widths: f64) -> Ratio {
        Ratio::new((self.centre + half_widths * self.half).exp())
    }
}

impl Starts {
    /// The interval around `centre`, the estimate with equal weights; `None` with fewer than two
    /// starts, or if a value has no logarithm. `planned` as for [`crate::restarts_with_interval`].
    pub(crate) fn interval(&self, centre: f64, planned: Option<u32>) -> Option<LogInterval> {
        let interruptions_only = planned.is_some_and(|planned| (planned as usize) < MIN_RESTARTS);
        let weighted = || WeightedStarts::of(&self.values, &self.blocks, self.within?);
        let interval = if interruptions_only {
            weighted().and_then(|starts| starts.interval_over_blocks_and_starts())
        } else if self.has_short() {
            weighted().and_then(|starts| starts.interval_over_starts())
        } else {
            None
        };
        let interval = interval.or_else(|| self.equal_weights(centre))?;
        (interval.centre.is_finite() && interval.half.is_finite()).then_some(interval)
    }

    fn has_short(&self) -> bool {
        let typical = median(&self.blocks).unwrap_or_default();
        self.blocks.iter().any(|blocks| *blocks < SHORT * typical)
    }

    fn equal_weights(&self, centre: f64) -> Option<LogInterval> {
        let count = self.values.len() as f64;
        let mean = self.values.iter().sum::<f64>() / count;
        let squares: f64 = self.values.iter().map(|value| (value - mean).powi(2)).sum();
        let half = t_quantile(count - 1.0)? * (squares / (count - 1.0) / count).sqrt();
        Some(LogInterval { centre, half, over_starts: true })
    }
}
