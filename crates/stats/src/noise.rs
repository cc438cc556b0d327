use dbdyno_units::{Ratio, Share};
use serde::Serialize;

use crate::estimate::{Estimate, median};

/// The control's result on one microbenchmark.
#[derive(Clone, Debug)]
pub struct ControlRow {
    /// The microbenchmark.
    pub microbenchmark: String,
    /// The control's ratio to the baseline, of throughput or of CPU time per query.
    pub estimate: Estimate,
}

/// The distance from 1 of the ratio of two equal instances.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NoiseFloor {
    /// The median distance of all microbenchmarks.
    pub typical: Share,
    /// The largest distance.
    pub greatest: Share,
    /// The microbenchmark with the largest distance.
    pub greatest_at: String,
    /// Number of microbenchmarks whose control interval contains 1.
    pub contains_one: usize,
    /// Number of microbenchmarks with a control.
    pub count: usize,
}

impl NoiseFloor {
    /// The noise floor of the control's results; `None` if there are none.
    #[must_use]
    pub fn of(rows: &[ControlRow]) -> Option<Self> {
        let distance = |row: &ControlRow| row.estimate.median.distance();
        let greatest = rows.iter().max_by(|a, b| distance(a).total_cmp(&distance(b)))?;
        let distances: Vec<f64> = rows.iter().map(distance).collect();
        Some(Self {
            typical: Share::from_fraction(median(&distances)?),
            greatest: Share::from_fraction(distance(greatest)),
            greatest_at: greatest.microbenchmark.clone(),
            contains_one: rows.iter().filter(|row| row.estimate.contains_one()).count(),
            count: rows.len(),
        })
    }

    /// The floor for one microbenchmark: the larger of its own control's distance and the typical
    /// one. Its own may be small by chance; the typical one may be too small for a noisy
    /// microbenchmark.
    #[must_use]
    pub fn for_row(&self, own_control: Option<Ratio>) -> Share {
        let own = own_control.map_or(0.0, Ratio::distance);
        Share::from_fraction(own.max(self.typical.as_fraction()))
    }
}

/// The classification of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The interval is above 1, and the difference exceeds the noise floor.
    Faster,
    /// The interval is below 1, and the difference exceeds the noise floor.
    Slower,
    /// The interval contains 1, or the difference does not exceed the noise floor.
    WithinNoise,
}

impl Verdict {
    /// The verdict on an estimate with this noise floor; `None` for a run without a control.
    #[must_use]
    pub fn on(estimate: &Estimate, floor: Option<Share>) -> Self {
        let floor = floor.map_or(0.0, Share::as_fraction);
        if estimate.contains_one() || estimate.median.distance() <= floor {
            Self::WithinNoise
        } else if estimate.median > Ratio::ONE {
            Self::Faster
        } else {
            Self::Slower
        }
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
            effective_blocks: 20.0,
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
    fn difference_below_the_floor_is_within_noise() {
        let floor = Some(Share::from_percent(0.5));
        assert_eq!(Verdict::on(&estimate(1.001, 1.004, 1.006), floor), Verdict::WithinNoise);
        assert_eq!(Verdict::on(&estimate(0.999, 1.010, 1.020), floor), Verdict::WithinNoise);
        assert_eq!(Verdict::on(&estimate(1.008, 1.010, 1.020), floor), Verdict::Faster);
        assert_eq!(Verdict::on(&estimate(0.980, 0.990, 0.995), floor), Verdict::Slower);
        assert_eq!(Verdict::on(&estimate(1.001, 1.004, 1.006), None), Verdict::Faster);
    }
}
