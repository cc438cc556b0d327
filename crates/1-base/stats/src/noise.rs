use dbdyno_units::{Ratio, Share};
use serde::Serialize;

use crate::estimate::{Estimate, median};

/// The control's result on one microbenchmark.
#[derive(Clone, Debug)]
pub struct ControlRow {
    pub microbenchmark: String,
    /// The control's ratio to the baseline, of throughput or of CPU time per query.
    pub estimate: Estimate,
}

/// Intervals normally reach this many typical distances: with six starts, 2.57 standard errors (Student's t) divided by
/// the 0.67 of the median distance.
const NORMAL_REACH: f64 = 4.0;

/// Intervals that reach no farther are precise, although few distances may be much smaller by chance.
const PRECISE: Share = Share::from_fraction(0.02);

/// The distance from 1 of the ratio of two equal instances.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NoiseFloor {
    /// The median distance of all microbenchmarks.
    pub typical: Share,
    /// The largest distance.
    pub greatest: Share,
    /// The microbenchmark with the largest distance.
    pub greatest_at: String,
    /// The median distance from the control's ratio to the farther end of its interval.
    pub reach: Share,
    /// Number of microbenchmarks whose control interval contains 1.
    pub contains_one: usize,
    /// Number of microbenchmarks with a control.
    pub count: usize,
}

impl NoiseFloor {
    /// The noise floor of the control's results; `None` if there are none.
    pub fn of(rows: &[ControlRow]) -> Option<Self> {
        let distance = |row: &ControlRow| row.estimate.median.distance();
        let greatest = rows.iter().max_by(|a, b| distance(a).total_cmp(&distance(b)))?;
        let distances: Vec<f64> = rows.iter().map(distance).collect();
        let reach = |row: &ControlRow| row.estimate.farther_end().as_fraction();
        let reaches: Vec<f64> = rows.iter().map(reach).collect();
        Some(Self {
            typical: Share::from_fraction(median(&distances)?),
            greatest: Share::from_fraction(distance(greatest)),
            reach: Share::from_fraction(median(&reaches)?),
            greatest_at: greatest.microbenchmark.clone(),
            contains_one: rows.iter().filter(|row| row.estimate.contains_one()).count(),
            count: rows.len(),
        })
    }

    /// How far the control's intervals reach, if the typical distance is small only by chance.
    pub fn imprecise(&self) -> Option<Share> {
        let limit = PRECISE.as_fraction().max(NORMAL_REACH * self.typical.as_fraction());
        Some(self.reach).filter(|reach| reach.as_fraction() > limit)
    }

    /// The floor for one microbenchmark: the larger of its own control's distance and the typical
    /// one. Its own may be small by chance; the typical one may be too small for a noisy
    /// microbenchmark.
    pub fn for_row(&self, own_control: Option<Ratio>) -> Share {
        let own = own_control.map_or(0.0, Ratio::distance);
        Share::from_fraction(own.max(self.typical.as_fraction()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(low: f64, median: f64, high: f64) -> Estimate {
        Estimate {
            median: Ratio::new(median),
            low: Ratio::new(low),
            high: Ratio::new(high),
            blocks: 20,
            starts: None,
        }
    }

    fn row(name: &str, estimate: Estimate) -> ControlRow {
        ControlRow { microbenchmark: name.to_owned(), estimate }
    }

    #[test]
    fn noise_floor_is_the_distance_of_the_control() {
        let rows = [
            row("a", estimate(0.999, 1.001, 1.003)),
            row("b", estimate(0.990, 0.995, 0.998)),
            row("c", estimate(0.999, 1.002, 1.004)),
        ];
        let floor = NoiseFloor::of(&rows).unwrap();
        assert!((floor.typical.as_percent() - 0.2).abs() < 1e-9);
        assert!((floor.greatest.as_percent() - 0.5).abs() < 1e-9);
        assert_eq!((floor.greatest_at.as_str(), floor.contains_one, floor.count), ("b", 2, 3));
        let own = |ratio| floor.for_row(Some(Ratio::new(ratio))).as_percent();
        assert!((own(0.995) - 0.5).abs() < 1e-9);
        assert!((own(1.000) - 0.2).abs() < 1e-9);
        assert_eq!(NoiseFloor::of(&[]), None);
    }

    #[test]
    fn small_distance_with_a_wide_interval_is_imprecise() {
        let of = |low, median, high| {
            let floor = NoiseFloor::of(&[row("a", estimate(low, median, high))]).unwrap();
            floor.imprecise().map(|reach| reach.as_percent().round())
        };
        assert_eq!(of(0.866, 1.004, 1.163), Some(16.0));
        assert_eq!(of(0.9, 1.05, 1.2), None, "three times the distance");
        assert_eq!(of(0.985, 1.0, 1.015), None, "precise");
        let rows = [(0.866, 1.163), (0.995, 1.005), (0.994, 1.006)]
            .map(|(low, high)| row("a", estimate(low, 1.001, high)));
        assert_eq!(NoiseFloor::of(&rows).unwrap().imprecise(), None, "one of three");
    }
}
