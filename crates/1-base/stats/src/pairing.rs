use std::collections::BTreeMap;

use dbdyno_units::Ratio;

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
#[must_use]
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

#[cfg(test)]
mod tests {
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
}
