//! Ratios of series that were measured one after the other.

use std::collections::BTreeMap;

use dbdyno_units::Ratio;

use crate::between_runs::{Quotient, RunValue, quotient};
use crate::estimate::Estimate;
use crate::restarts::restarts_with_interval;

/// One measured value of a slice: throughput, or CPU time per query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Number of earlier restarts of the instances.
    pub restart: u32,
    pub block: u32,
    pub candidate: u32,
    pub value: f64,
}

/// The candidate's value divided by the baseline's, for each block with both, in the order of the
/// blocks; one list per restart.
pub fn paired_ratios(points: &[Point], candidate: u32, baseline: u32) -> Vec<Vec<f64>> {
    let of = |wanted| {
        points
            .iter()
            .filter(move |point| point.candidate == wanted)
            .map(|point| ((point.restart, point.block), point.value))
    };
    let baseline: BTreeMap<_, _> = of(baseline).collect();
    let ratios: BTreeMap<_, _> = of(candidate)
        .filter_map(|(at, value)| Some((at, Ratio::of(value, *baseline.get(&at)?)?)))
        .collect();
    let mut restarts: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for ((restart, _), ratio) in ratios {
        restarts.entry(restart).or_default().push(ratio.get());
    }
    restarts.into_values().collect()
}

/// A candidate's part in a contrast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weight {
    pub candidate: u32,
    /// The exponent of its value.
    pub weight: f64,
}

/// The weights of the ratio of two geometric means: of the candidates `level` to those of `reference`.
///
/// If the two lists differ in one setting and have the same values of all others, this is the main
/// effect of the setting.
pub fn main_effect(level: &[u32], reference: &[u32]) -> Vec<Weight> {
    let of = |candidates: &[u32], sign: f64| {
        let weight = sign / candidates.len().max(1) as f64;
        candidates.iter().map(|&candidate| Weight { candidate, weight }).collect::<Vec<_>>()
    };
    [of(level, 1.0), of(reference, -1.0)].concat()
}

/// The product of the candidates' values, each raised to its weight, for each block in which all of
/// them have a positive value, in the order of the blocks; one list per restart.
///
/// With weights of sum 0 what changes the speed of all candidates in a block cancels out.
pub fn contrast(points: &[Point], weights: &[Weight]) -> Vec<Vec<f64>> {
    let mut blocks: BTreeMap<(u32, u32), (usize, f64)> = BTreeMap::new();
    for point in points.iter().filter(|point| point.value > 0.0 && point.value.is_finite()) {
        let Some(one) = weights.iter().find(|one| one.candidate == point.candidate) else {
            continue;
        };
        let (count, log) = blocks.entry((point.restart, point.block)).or_default();
        *count += 1;
        *log += one.weight * point.value.ln();
    }
    let mut restarts: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for ((restart, _), (count, log)) in blocks {
        if count == weights.len() {
            restarts.entry(restart).or_default().push(log.exp());
        }
    }
    restarts.into_values().collect()
}

/// The median of `own` divided by that of `other`, with a 95% interval; one list per restart; `planned` as for
/// [`restarts_with_interval`].
///
/// The intervals of both medians are combined as those of different runs ([`quotient`]). Drift of the
/// machine between the two series is not in the interval.
pub fn unpaired_ratio(
    own: &[Vec<f64>],
    other: &[Vec<f64>],
    planned: Option<u32>,
) -> Option<Estimate> {
    let own = restarts_with_interval(own, planned)?;
    let other = restarts_with_interval(other, planned)?;
    let Quotient { ratio: median, low, high } =
        quotient(&RunValue::of(&own, None), &RunValue::of(&other, None))?;
    Some(Estimate {
        median,
        low,
        high,
        blocks: own.blocks.min(other.blocks),
        starts: own.starts.min(other.starts),
    })
}

#[cfg(test)]
mod tests {
    use crate::estimate::tests::autoregressive;

    use super::*;

    fn point(restart: u32, block: u32, candidate: u32, value: f64) -> Point {
        Point { restart, block, candidate, value }
    }

    #[test]
    fn ratios_are_computed_within_blocks_only() {
        let points = [
            point(0, 2, 0, 10.0),
            point(0, 2, 1, 11.0),
            point(0, 3, 1, 99.0),
            point(0, 4, 0, 20.0),
            point(1, 5, 1, 15.0),
            point(1, 5, 0, 30.0),
            point(1, 6, 0, 0.0),
            point(1, 6, 1, 1.0),
        ];
        assert_eq!(paired_ratios(&points, 1, 0), [vec![1.1], vec![0.5]]);
        assert!(paired_ratios(&points, 2, 0).is_empty());
    }

    /// Throughput of four candidates: 00, 01, 10, 11 of two settings with these factors, the second
    /// one stronger together with the first.
    fn points(first: f64, second: f64, together: f64) -> Vec<Point> {
        let values = [1.0, second, first, first * second * together];
        let mut points = Vec::new();
        for block in 0..12 {
            // The machine's speed changes from block to block.
            let speed = 100.0 + f64::from(block * 7 % 5);
            for (candidate, value) in (0..).zip(values) {
                points.push(Point { restart: block / 6, block, candidate, value: speed * value });
            }
        }
        points
    }

    fn is(contrast: &[Vec<f64>], expected: f64) -> bool {
        contrast.len() == 2
            && contrast.concat().len() == 12
            && contrast.concat().iter().all(|ratio| (ratio - expected).abs() < 1e-9)
    }

    #[test]
    fn main_effects_are_geometric_means_over_the_other_setting() {
        let points = points(1.2, 0.9, 1.1);
        let first = contrast(&points, &main_effect(&[2, 3], &[0, 1]));
        assert!(is(&first, 1.2 * 1.1_f64.sqrt()), "{first:?}");
        let second = contrast(&points, &main_effect(&[1, 3], &[0, 2]));
        assert!(is(&second, 0.9 * 1.1_f64.sqrt()), "{second:?}");
    }

    #[test]
    fn interaction_is_the_ratio_of_two_effects() {
        let points = points(1.2, 0.9, 1.1);
        let weights = [(3, 1.0), (0, 1.0), (1, -1.0), (2, -1.0)];
        let weights = weights.map(|(candidate, weight)| Weight { candidate, weight });
        assert!(is(&contrast(&points, &weights), 1.1));
    }

    #[test]
    fn blocks_with_a_missing_value_are_left_out() {
        let mut points = points(1.2, 0.9, 1.0);
        points.retain(|point| (point.block, point.candidate) != (3, 1));
        points[0].value = 0.0;
        let effect = contrast(&points, &main_effect(&[2, 3], &[0, 1]));
        assert_eq!(effect.concat().len(), 10);
    }

    #[test]
    fn interval_has_nominal_coverage() {
        const TRIALS: u64 = 1_000;
        let series = |seed, level: f64| -> Vec<f64> {
            autoregressive(seed, 0.0, 30).iter().map(|noise| level + 5.0 * noise).collect()
        };
        let covered = (0..TRIALS).filter(|seed| {
            let (own, other) = (series(2 * seed, 120.0), series(2 * seed + 1, 100.0));
            let ratio = unpaired_ratio(&[own], &[other], None).unwrap();
            (ratio.low.get()..=ratio.high.get()).contains(&1.2)
        });
        let share = covered.count() as f64 / TRIALS as f64;
        assert!((0.93..=0.99).contains(&share), "{share}");
    }

    #[test]
    fn too_few_blocks_give_no_ratio() {
        assert_eq!(unpaired_ratio(&[vec![1.0; 5]], &[vec![1.0; 9]], None), None);
    }
}
