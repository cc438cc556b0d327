//! Estimates over restarts. Each start of an instance randomizes the layout of its address space
//! and data, which changes results more than the noise between blocks.

use crate::autocorrelation::variance_inflation;
use crate::estimate::{Estimate, median, median_with_interval};
use crate::starts::Starts;

/// Minimum number of restarts for an interval over restarts. With two, as after an interruption of
/// a run without restarts, it would be twelve standard deviations wide.
pub(crate) const MIN_RESTARTS: usize = 3;

/// Minimum number of neighbouring blocks for the variance of a block.
const MIN_NEIGHBOURS: usize = 5;

/// The median ratio of each restart, in order.
#[must_use]
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
/// - If one of them is short, the medians are weighted: the median of few blocks is less precise.
/// - If the schedule plans fewer than [`MIN_RESTARTS`], all others were caused by interruptions. Then
///   the interval is that of a weighted mean, with more degrees of freedom the less starts differ.
///
/// Rejected alternatives, by simulation: the ratios themselves (for starts that differ by a factor the
/// lower end was below zero); equal weights (after interruptions up to 2.7 times as wide if starts do
/// not differ, and 90% to 97% coverage); weights by blocks (77% to 98%); merging short starts with a
/// neighbour (80% to 96%, and wider); a hierarchical bootstrap (too little coverage with 6 to 12
/// starts, because R draws from R medians understate their spread).
#[must_use]
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
    let centre = over_blocks.median.get().ln();
    let interval = Starts { values, blocks, within }.interval(centre, planned)?;
    Some(Estimate {
        median: interval.at(0.0),
        low: interval.at(-1.0),
        high: interval.at(1.0),
        starts: interval.over_starts.then_some(starts.len()),
        ..over_blocks
    })
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

#[cfg(test)]
mod tests;
