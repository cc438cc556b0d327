//! Estimates over restarts. Each start of an instance randomizes the layout of its address space
//! and data, which changes results more than the noise between blocks.

use dbdyno_units::Ratio;

use crate::estimate::{Estimate, median, median_with_interval};
use crate::student::t_quantile;

/// Minimum number of restarts for an interval over restarts. With two, as after an interruption of
/// a run without restarts, it would be twelve standard deviations wide.
pub const MIN_RESTARTS: usize = 3;

/// The median ratio of each restart, in order.
#[must_use]
pub fn restart_medians(restarts: &[Vec<f64>]) -> Vec<f64> {
    restarts.iter().filter_map(|blocks| median(blocks)).collect()
}

/// The median over the blocks of all restarts, with a 95% interval over restarts.
///
/// With fewer than [`MIN_RESTARTS`] restarts, equal to [`median_with_interval`] over all blocks.
/// Otherwise restarts are the independent units, each represented by its median. The half-width
/// is t·s/√R, where s is the standard deviation of the R medians and t is Student's 97.5% point
/// for R−1 degrees of freedom (principle: Kalibera and Jones, *Rigorous Benchmarking in Reasonable
/// Time*, 2013, §9). The alternative, a hierarchical bootstrap, has too little coverage with the
/// usual 6 to 12 restarts, because R draws from R medians understate their spread.
#[must_use]
pub fn restarts_with_interval(restarts: &[Vec<f64>]) -> Option<Estimate> {
    let pooled: Vec<f64> = restarts.concat();
    let within = median_with_interval(&pooled)?;
    let medians = restart_medians(restarts);
    if medians.len() < MIN_RESTARTS {
        return Some(within);
    }
    let Some(t) = t_quantile(medians.len() - 1) else { return Some(within) };
    let count = medians.len() as f64;
    let mean = medians.iter().sum::<f64>() / count;
    let variance = medians.iter().map(|m| (m - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let half = t * (variance / count).sqrt();
    let centre = within.median.get();
    let (low, high) = (Ratio::new(centre - half), Ratio::new(centre + half));
    Some(Estimate { low, high, starts: Some(medians.len()), ..within })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autocorrelation::tests::autoregressive;

    /// Restarts whose means have the standard deviation `between`, and their blocks `within`.
    fn restarts(seed: u64, count: usize, between: f64, within: f64) -> Vec<Vec<f64>> {
        let levels = autoregressive(seed * 1_000, 0.0, count);
        (1..)
            .zip(levels)
            .map(|(i, level)| {
                let noise = autoregressive(seed * 1_000 + i, 0.0, 20);
                noise.iter().map(|noise| 1.0 + between * level + within * noise).collect()
            })
            .collect()
    }

    fn coverage(
        (count, between, within): (usize, f64, f64),
        estimate: impl Fn(&[Vec<f64>]) -> Option<Estimate>,
    ) -> f64 {
        const TRIALS: u64 = 1_000;
        let covered = (0..TRIALS)
            .filter(|seed| {
                estimate(&restarts(*seed, count, between, within)).unwrap().contains_one()
            })
            .count();
        covered as f64 / TRIALS as f64
    }

    #[test]
    fn interval_over_restarts_has_nominal_coverage_for_any_restart_spread() {
        for count in [3, 6, 12] {
            for between in [0.0, 0.003, 0.01] {
                let share = coverage((count, between, 0.01), restarts_with_interval);
                assert!((0.93..=0.98).contains(&share), "{share}: {count} restarts, {between}");
            }
        }
    }

    #[test]
    fn interval_over_blocks_alone_has_too_little_coverage() {
        let share = coverage((6, 0.01, 0.01), |r| median_with_interval(&r.concat()));
        assert!(share < 0.8, "{share}");
    }

    #[test]
    fn stopping_at_a_narrow_interval_keeps_most_of_the_coverage() {
        // From 6 restarts on, check after each one; stop at ±0.5%, or after 12 restarts.
        let sequential = |all: &[Vec<f64>]| {
            (6..=12).map(|count| restarts_with_interval(&all[..count]).unwrap()).find(|estimate| {
                estimate.half_width().as_fraction() <= 0.005 || estimate.blocks == 12 * 20
            })
        };
        for between in [0.002, 0.005, 0.01] {
            let share = coverage((12, between, 0.01), sequential);
            assert!((0.915..=0.98).contains(&share), "{share} with {between}");
        }
    }

    #[test]
    fn single_restart_gives_the_estimate_over_blocks() {
        let blocks = restarts(3, 1, 0.0, 0.01);
        assert_eq!(restarts_with_interval(&blocks), median_with_interval(&blocks[0]));
        assert_eq!(restarts_with_interval(&[]), None);
    }

    #[test]
    fn restart_medians_skip_empty_restarts() {
        assert_eq!(restart_medians(&[vec![1.0, 3.0], vec![], vec![5.0]]), [2.0, 5.0]);
    }
}
