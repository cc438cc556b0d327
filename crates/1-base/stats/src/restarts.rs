//! Estimates over restarts. Each start of an instance randomizes the layout of its address space
//! and data, which changes results more than the noise between blocks.

#[cfg(test)]
mod tests;
mod weighted;

use dbdyno_units::Ratio;

use crate::estimate::{Estimate, median, median_with_interval, t_quantile, variance_inflation};
use weighted::WeightedStarts;

/// Minimum number of restarts for an interval over restarts. With two, as after an interruption of
/// a run without restarts, it would be twelve standard deviations wide.
pub const MIN_RESTARTS: usize = 3;

/// With more restarts than these, the estimate is the mean of their medians.
const MOST_FOR_MEDIAN: usize = 12;

/// Minimum number of neighbouring blocks for the variance of a block.
const MIN_NEIGHBOURS: usize = 5;

/// The median ratio of each restart, in order.
pub fn restart_medians(restarts: &[Vec<f64>]) -> Vec<f64> {
    restarts.iter().filter_map(|blocks| median(blocks)).collect()
}

/// The ratio over all restarts, with its 95% interval; `None` with too few blocks, or if the median of
/// a restart is not positive. The ratios are positive, so they are compared on a logarithmic scale.
///
/// `planned` is the number of restarts that the schedule requires: additional ones, often short, are
/// caused by interruptions. `None` if it is unknown: then all count as planned.
///
/// - With fewer than [`MIN_RESTARTS`] restarts, equal to [`median_with_interval`] over all blocks.
/// - Planned restarts are the independent units, each represented by its median. The estimate is the
///   median over all blocks, and its interval is the estimate × exp(±t·s/√R), where s is the standard
///   deviation of the logarithms of the R medians and t is Student's 97.5% point for R−1 degrees of
///   freedom (principle: Kalibera and Jones, *Rigorous Benchmarking in Reasonable Time*, 2013, §9).
/// - With more than 12 restarts the estimate is the geometric mean of their medians: a median over all
///   blocks becomes less precise than this interval, of which 92% would contain the true value.
/// - If one of them is short, the medians are weighted: the median of few blocks is less precise.
/// - If the schedule plans fewer than [`MIN_RESTARTS`], all others were caused by interruptions. Then
///   the interval is that of a weighted mean, with more degrees of freedom the less starts differ.
///
/// Rejected alternatives, by simulation: the ratios themselves (for starts that differ by a factor the
/// lower end was below zero); equal weights (after interruptions up to 2.7 times as wide if starts do
/// not differ, and 90% to 97% coverage); weights by blocks (77% to 98%); merging short starts with a
/// neighbour (80% to 96%, and wider); a hierarchical bootstrap (too little coverage with 6 to 12
/// starts, because R draws from R medians understate their spread).
pub fn restarts_with_interval(restarts: &[Vec<f64>], planned: Option<u32>) -> Option<Estimate> {
    let over_blocks = median_with_interval(&restarts.concat())?;
    let starts: Vec<Vec<f64>> = restarts
        .iter()
        .filter(|blocks| !blocks.is_empty())
        .map(|blocks| blocks.iter().map(|block| block.ln()).collect())
        .collect();
    if starts.len() < MIN_RESTARTS {
        return Some(over_blocks);
    }
    let values: Vec<f64> = restart_medians(restarts).into_iter().map(f64::ln).collect();
    let within = block_variance(&starts, &values);
    let blocks = starts.iter().map(|blocks| blocks.len() as f64).collect();
    let centre = if values.len() > MOST_FOR_MEDIAN {
        values.iter().sum::<f64>() / values.len() as f64
    } else {
        over_blocks.median.get().ln()
    };
    let interval = Starts { values, blocks, within }.interval(centre, planned)?;
    Some(Estimate {
        median: interval.at(0.0),
        low: interval.at(-1.0),
        high: interval.at(1.0),
        starts: interval.over_starts.then_some(starts.len()),
        ..over_blocks
    })
}

/// The 95% interval of a ratio from the ratios of repeats: their mean × exp(±t·s/√R) on a logarithmic
/// scale; `None` with fewer than two, or if one is not positive. With two it is twelve standard
/// deviations wide: two repeats tell little.
pub fn interval_of_repeats(ratios: &[f64]) -> Option<(Ratio, Ratio)> {
    let values: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let (mean, half) = mean_with_half_width(&values)?;
    let end = |sign: f64| Ratio::new((mean + sign * half).exp());
    Some((end(-1.0), end(1.0)))
}

/// The mean of independent values and half of its 95% interval, by Student's t; `None` with fewer than two values, or
/// if one is not finite.
pub fn mean_with_half_width(values: &[f64]) -> Option<(f64, f64)> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let half = t_quantile(count - 1.0)? * (squares / (count - 1.0) / count).sqrt();
    half.is_finite().then_some((mean, half))
}

/// The variance of the median of one block: a median of n blocks has 1/n of it. `None` if unknown or
/// zero.
///
/// From the differences of neighbouring blocks, which outliers, drift and the levels of starts
/// barely affect; π/2 is the variance of a median relative to that of a mean. Inflated for the
/// correlation of neighbours.
fn block_variance(starts: &[Vec<f64>], medians: &[f64]) -> Option<f64> {
    /// The median of the absolute difference of two standard normal values.
    const DIFFERENCE: f64 = 0.953_873;
    let differences: Vec<f64> = starts
        .iter()
        .flat_map(|blocks| blocks.windows(2).map(|pair| (pair[1] - pair[0]).abs()))
        .collect();
    if differences.len() < MIN_NEIGHBOURS {
        return None;
    }
    let deviation = median(&differences)? / DIFFERENCE;
    let residuals: Vec<f64> = starts
        .iter()
        .zip(medians)
        .flat_map(|(blocks, median)| blocks.iter().map(move |block| block - median))
        .collect();
    let variance = std::f64::consts::FRAC_PI_2 * deviation.powi(2);
    Some(variance * variance_inflation(&residuals, 0.0)).filter(|variance| *variance > 0.0)
}

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
        let interruptions_only = planned.is_some_and(|planned| planned <= 1);
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
        let (_, half) = mean_with_half_width(&self.values)?;
        Some(LogInterval { centre, half, over_starts: true })
    }
}
