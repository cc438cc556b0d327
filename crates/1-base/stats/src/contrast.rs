use std::collections::BTreeMap;

use crate::pairing::Point;

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
#[must_use]
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
#[must_use]
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
