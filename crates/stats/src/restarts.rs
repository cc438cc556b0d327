//! Estimates over restarts. Each start of an instance randomizes the layout of its address space
//! and data, which changes results more than the noise between blocks.

mod weighted;

use dbdyno_units::Ratio;

use crate::estimate::{Estimate, median, median_with_interval};
use crate::student::t_quantile;
use weighted::WeightedStarts;

/// Minimum number of restarts for an interval over restarts. With two, as after an interruption of
/// a run without restarts, it would be twelve standard deviations wide.
pub(crate) const MIN_RESTARTS: usize = 3;

/// A start is short if it has less than this share of the blocks of the median start. Starts that
/// were not interrupted differ by less.
const SHORT: f64 = 1.0 / 3.0;

/// The median ratio of each restart, in order.
#[must_use]
pub fn restart_medians(restarts: &[Vec<f64>]) -> Vec<f64> {
    restarts.iter().filter_map(|blocks| median(blocks)).collect()
}

/// The ratio over all restarts, with its 95% interval; `None` with too few blocks.
///
/// `planned` is the number of restarts that the schedule requires: additional ones, often short, are
/// caused by interruptions. `None` if it is unknown: then all count as planned.
///
/// - With fewer than [`MIN_RESTARTS`] restarts, equal to [`median_with_interval`] over all blocks.
/// - Planned restarts are the independent units, each represented by its median. The estimate is the
///   median over all blocks, and the half-width is t·s/√R, where s is the standard deviation of the R
///   medians and t is Student's 97.5% point for R−1 degrees of freedom (principle: Kalibera and
///   Jones, *Rigorous Benchmarking in Reasonable Time*, 2013, §9).
/// - If one of them is short, the medians are weighted: the median of few blocks is less precise.
/// - If the schedule plans fewer than [`MIN_RESTARTS`], all others were caused by interruptions. Then
///   the interval is that of a weighted mean, with more degrees of freedom the less starts differ.
///
/// Rejected alternatives, by simulation: equal weights (after interruptions up to 2.7 times as wide
/// if starts do not differ, and 90% to 97% coverage); weights by blocks (77% to 98%); merging short
/// starts with a neighbour (80% to 96%, and wider); a hierarchical bootstrap (too little coverage
/// with 6 to 12 starts, because R draws from R medians understate their spread).
#[must_use]
pub fn restarts_with_interval(restarts: &[Vec<f64>], planned: Option<u32>) -> Option<Estimate> {
    let over_blocks = median_with_interval(&restarts.concat())?;
    let starts: Vec<&[f64]> =
        restarts.iter().map(Vec::as_slice).filter(|blocks| !blocks.is_empty()).collect();
    if starts.len() < MIN_RESTARTS {
        return Some(over_blocks);
    }
    let interruptions_only = planned.is_some_and(|planned| (planned as usize) < MIN_RESTARTS);
    let weighted = || WeightedStarts::of(&starts);
    let interval = if interruptions_only {
        weighted().and_then(|starts| starts.interval_over_blocks_and_starts())
    } else if has_short(&starts) {
        weighted().and_then(|starts| starts.interval_over_starts())
    } else {
        None
    };
    let interval = match interval {
        Some(interval) => interval,
        None => equal_weights(over_blocks.median, restarts)?,
    };
    let Interval { centre, half, over_starts } = interval;
    Some(Estimate {
        median: Ratio::new(centre),
        low: Ratio::new(centre - half),
        high: Ratio::new(centre + half),
        starts: over_starts.then_some(starts.len()),
        ..over_blocks
    })
}

/// A symmetric interval.
struct Interval {
    centre: f64,
    half: f64,
    /// Whether its width depends on the number of starts rather than blocks.
    over_starts: bool,
}

fn has_short(starts: &[&[f64]]) -> bool {
    let lengths: Vec<f64> = starts.iter().map(|blocks| blocks.len() as f64).collect();
    let typical = median(&lengths).unwrap_or_default();
    lengths.iter().any(|length| *length < SHORT * typical)
}

fn equal_weights(centre: Ratio, restarts: &[Vec<f64>]) -> Option<Interval> {
    let medians = restart_medians(restarts);
    let count = medians.len() as f64;
    let mean = medians.iter().sum::<f64>() / count;
    let variance = medians.iter().map(|m| (m - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let half = t_quantile(count - 1.0)? * (variance / count).sqrt();
    Some(Interval { centre: centre.get(), half, over_starts: true })
}

#[cfg(test)]
mod tests;
