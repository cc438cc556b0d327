//! Estimates over restarts: each start of an instance draws a new layout of its address space and
//! data, and that draw moves results more than the noise of the blocks.

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use dbdyno_units::Ratio;

use crate::estimate::{Estimate, MIN_BLOCKS, median, median_with_interval};

const RESAMPLES: usize = 1_000;

/// The median ratio of each restart, in order.
#[must_use]
pub fn restart_medians(restarts: &[Vec<f64>]) -> Vec<f64> {
    restarts.iter().filter_map(|blocks| median(blocks)).collect()
}

/// The median over the blocks of all restarts, with a 95% interval that is taken over restarts
/// first.
///
/// With one restart that has blocks this is [`median_with_interval`]. With more, the interval is
/// the hierarchical bootstrap's: restarts are drawn with replacement, then blocks within each.
/// Drawing R of R restarts understates their spread by √((R−1)/R), so the distances from the
/// median are divided by that. Few restarts still tell little: below five, expect the interval to
/// be too narrow.
#[must_use]
pub fn restarts_with_interval(restarts: &[Vec<f64>]) -> Option<Estimate> {
    let restarts: Vec<&Vec<f64>> = restarts.iter().filter(|blocks| !blocks.is_empty()).collect();
    let pooled: Vec<f64> = restarts.iter().flat_map(|blocks| blocks.iter().copied()).collect();
    let within = median_with_interval(&pooled)?;
    if restarts.len() < 2 || pooled.len() < MIN_BLOCKS {
        return Some(within);
    }
    let centre = within.median.get();
    // A fixed seed: the same blocks give the same interval in every report.
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(pooled.len() as u64);
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| {
            let resample: Vec<f64> = (0..restarts.len())
                .flat_map(|_| {
                    let blocks = restarts[below(&mut rng, restarts.len())];
                    (0..blocks.len())
                        .map(|_| blocks[below(&mut rng, blocks.len())])
                        .collect::<Vec<_>>()
                })
                .collect();
            median(&resample)
        })
        .collect();
    medians.sort_unstable_by(f64::total_cmp);
    let count = restarts.len() as f64;
    let correction = (count / (count - 1.0)).sqrt();
    let at = |share: f64| {
        let quantile = medians[(share * (medians.len() - 1) as f64).round() as usize];
        Ratio::new(centre + (quantile - centre) * correction)
    };
    Some(Estimate { low: at(0.025), high: at(0.975), ..within })
}

fn below(rng: &mut impl RngCore, n: usize) -> usize {
    (rng.next_u64() % n as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autocorrelation::tests::autoregressive;

    /// Restarts whose own levels differ by `between`, with blocks that differ by `within`.
    fn restarts(seed: u64, count: usize, between: f64, within: f64) -> Vec<Vec<f64>> {
        let levels = autoregressive(seed * 1_000, 0.0, count);
        (1..)
            .zip(levels)
            .map(|(i, level)| {
                let noise = autoregressive(seed * 1_000 + i, 0.0, 10);
                noise.iter().map(|noise| 1.0 + between * level + within * noise).collect()
            })
            .collect()
    }

    fn coverage(count: usize, estimate: impl Fn(&[Vec<f64>]) -> Estimate) -> f64 {
        const TRIALS: u64 = 300;
        let covered = (0..TRIALS)
            .filter(|seed| estimate(&restarts(*seed, count, 0.01, 0.005)).contains_one())
            .count();
        covered as f64 / TRIALS as f64
    }

    #[test]
    fn intervals_over_restarts_are_honest_where_those_over_blocks_are_not() {
        let over_restarts = coverage(10, |r| restarts_with_interval(r).unwrap());
        assert!((0.88..=0.98).contains(&over_restarts), "{over_restarts}");
        let over_blocks = coverage(10, |r| median_with_interval(&r.concat()).unwrap());
        assert!(over_blocks < over_restarts, "{over_blocks} against {over_restarts}");
    }

    #[test]
    fn one_restart_is_the_plain_estimate() {
        let blocks = restarts(3, 1, 0.0, 0.01);
        assert_eq!(restarts_with_interval(&blocks), median_with_interval(&blocks[0]));
    }

    #[test]
    fn the_same_blocks_give_the_same_interval() {
        let blocks = restarts(3, 5, 0.01, 0.01);
        assert_eq!(restarts_with_interval(&blocks), restarts_with_interval(&blocks));
        assert_eq!(restart_medians(&blocks).len(), 5);
    }
}
