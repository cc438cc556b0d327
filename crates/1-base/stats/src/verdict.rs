//! The one rule for whether a ratio differs from 1 by more than noise, and whether that is better.

use dbdyno_units::{Ratio, Share};

use crate::between_runs::Quotient;
use crate::estimate::Estimate;

/// The side of 1 on which a ratio is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Above,
    Below,
}

/// Which change of a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    MoreIsBetter,
    LessIsBetter,
}

/// What a ratio shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Better,
    Worse,
    /// No difference beyond the interval and the noise floor.
    Noise,
}

impl Side {
    pub fn of(ratio: Ratio) -> Self {
        if ratio > Ratio::ONE { Self::Above } else { Self::Below }
    }

    /// The side of a ratio without an interval; `None` if it is not farther from 1 than the noise
    /// floor.
    pub fn beyond(ratio: Ratio, floor: Option<Share>) -> Option<Self> {
        let floor = floor.map_or(0.0, Share::as_fraction);
        (ratio.distance() > floor).then(|| Self::of(ratio))
    }
}

impl Estimate {
    /// The side of 1 on which the ratio is if it differs from 1: its interval excludes 1, and it is
    /// farther from 1 than the noise floor, which is unknown without a control.
    pub fn difference(&self, floor: Option<Share>) -> Option<Side> {
        if self.contains_one() { None } else { Side::beyond(self.median, floor) }
    }
}

impl Quotient {
    /// The side of 1 if the interval, which allows for the noise floors, excludes 1.
    pub fn difference(&self) -> Option<Side> {
        self.is_certain().then(|| Side::of(self.ratio))
    }
}

impl Direction {
    /// The verdict on a difference; `None` is noise.
    pub fn verdict(self, difference: Option<Side>) -> Verdict {
        match (difference, self) {
            (None, _) => Verdict::Noise,
            (Some(Side::Above), Self::MoreIsBetter) | (Some(Side::Below), Self::LessIsBetter) => {
                Verdict::Better
            }
            (Some(_), _) => Verdict::Worse,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(ends: [f64; 3], floor: Option<f64>, direction: Direction) -> Verdict {
        let [low, median, high] = ends.map(Ratio::new);
        let estimate = Estimate { median, low, high, blocks: 20, starts: None };
        direction.verdict(estimate.difference(floor.map(Share::from_percent)))
    }

    #[test]
    fn difference_below_the_floor_or_with_1_in_the_interval_is_noise() {
        let of = |ends, floor| verdict(ends, floor, Direction::MoreIsBetter);
        assert_eq!(of([1.001, 1.004, 1.006], Some(0.5)), Verdict::Noise);
        assert_eq!(of([0.999, 1.010, 1.020], Some(0.5)), Verdict::Noise);
        assert_eq!(of([1.000, 1.010, 1.020], None), Verdict::Noise);
        assert_eq!(of([1.008, 1.010, 1.020], Some(0.5)), Verdict::Better);
        assert_eq!(of([0.980, 0.990, 0.995], Some(0.5)), Verdict::Worse);
        assert_eq!(of([1.001, 1.004, 1.006], None), Verdict::Better);
    }

    #[test]
    fn less_is_better_for_costs() {
        let of = |ends| verdict(ends, Some(0.5), Direction::LessIsBetter);
        assert_eq!(of([0.89, 0.90, 0.91]), Verdict::Better);
        assert_eq!(of([1.09, 1.10, 1.11]), Verdict::Worse);
        let without_interval = |ratio| Side::beyond(Ratio::new(ratio), None);
        assert_eq!(without_interval(1.0), None);
        assert_eq!(without_interval(0.9), Some(Side::Below));
    }
}
