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
    /// No difference beyond the interval and the noise floor, which permit only a small one.
    Noise,
    /// No difference was found, but the interval or the noise floor permit one that is too large to
    /// call it none: more than [`LARGEST_NOISE`].
    TooNoisy,
}

/// If a larger difference than this is possible, "no difference found" says nothing useful.
pub const LARGEST_NOISE: Share = Share::from_fraction(0.1);

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

/// The largest difference from 1, in either direction, that an interval and the noise floor permit.
pub fn possible_difference((low, high): (Ratio, Ratio), floor: Option<Share>) -> Share {
    let floor = floor.map_or(0.0, Share::as_fraction);
    Share::from_fraction(low.distance().max(high.distance()).max(floor))
}

/// Whether a difference of this size, if it is possible, makes "no difference found" useless.
pub fn is_too_noisy(possible: Share) -> bool {
    possible > LARGEST_NOISE
}

/// The least factor between members of a group that differ by far.
const FAR: f64 = 1.1;

/// Members of a group that differ by far do so by more than this many widths of the group's interval.
const WIDTHS: f64 = 2.0;

/// Whether the members of a group differ by so much more than the interval of their median that the
/// median describes none of them: the intervals of two members are apart by more than both limits.
/// `members` are the intervals; without them both ends are the ratio.
pub fn differ_by_far(
    members: impl Iterator<Item = (Ratio, Ratio)> + Clone,
    median: Option<(Ratio, Ratio)>,
) -> bool {
    let lowest = members.clone().map(|(_, high)| high.get()).reduce(f64::min);
    let highest = members.map(|(low, _)| low.get()).reduce(f64::max);
    let Some((lowest, highest)) = lowest.zip(highest) else { return false };
    let width = median.map_or(1.0, |(low, high)| high.get() / low.get());
    highest / lowest > FAR.max(width.powf(WIDTHS))
}

/// Whether chance rarely makes so many of the 95% intervals of equal members of a group exclude 1: by the
/// binomial distribution, as many or more do in less than 5% of cases.
pub fn exceeds_chance(differing: usize, members: usize) -> bool {
    const MISS: f64 = 0.05;
    // The probabilities of exactly so many, and of fewer.
    let (mut exactly, mut fewer) = ((1.0 - MISS).powf(members as f64), 0.0);
    for number in 0..differing {
        fewer += exactly;
        let others = members.saturating_sub(number) as f64;
        exactly *= others / (number + 1) as f64 * MISS / (1.0 - MISS);
    }
    1.0 - fewer < MISS
}

impl Estimate {
    /// The one rule: what a ratio shows with this noise floor, which is unknown without a control.
    pub fn verdict(&self, direction: Direction, floor: Option<Share>) -> Verdict {
        let difference = self.difference(floor);
        let possible = possible_difference((self.low, self.high), floor);
        if difference.is_none() && is_too_noisy(possible) {
            return Verdict::TooNoisy;
        }
        direction.verdict(difference)
    }

    /// Whether the size of a difference is too noisy to tell although the interval may exclude 1: its ends differ by more
    /// than a factor of 4.
    pub fn is_size_too_noisy(&self) -> bool {
        let apart = self.high.get() / self.low.get();
        apart.is_nan() || apart > 4.0
    }

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
        estimate.verdict(direction, floor.map(Share::from_percent))
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
    fn wide_interval_is_too_noisy_and_not_without_a_difference() {
        let of = |ends, floor| verdict(ends, floor, Direction::MoreIsBetter);
        assert_eq!(of([0.91, 1.0, 1.09], None), Verdict::Noise);
        assert_eq!(of([0.89, 1.0, 1.05], None), Verdict::TooNoisy);
        assert_eq!(of([0.95, 1.2, 1.97], Some(1.0)), Verdict::TooNoisy);
        assert_eq!(of([0.99, 1.0, 1.01], Some(12.0)), Verdict::TooNoisy);
        assert_eq!(of([1.2, 1.5, 1.97], Some(1.0)), Verdict::Better);
        assert_eq!(of([f64::NAN, 1.0, f64::INFINITY], None), Verdict::TooNoisy);
    }

    #[test]
    fn size_of_a_difference_is_too_noisy_if_its_ends_are_far_apart() {
        let of = |[low, median, high]: [f64; 3]| {
            let [low, median, high] = [low, median, high].map(Ratio::new);
            Estimate { median, low, high, blocks: 20, starts: None }.is_size_too_noisy()
        };
        assert!(of([1.05, 2.2, 8.2]) && of([0.2, 0.9, 0.99]) && of([f64::NAN, 1.0, 2.0]));
        assert!(!of([1.5, 3.0, 6.0]) && !of([0.9, 1.0, 1.2]));
    }

    #[test]
    fn members_differ_by_far_if_their_intervals_are_apart() {
        let far = |members: &[(f64, f64)], (low, high): (f64, f64)| {
            let ratios = |(low, high): (f64, f64)| (Ratio::new(low), Ratio::new(high));
            differ_by_far(members.iter().copied().map(ratios), Some(ratios((low, high))))
        };
        let own = [(0.14, 0.15), (0.52, 0.54), (0.82, 0.84)];
        assert!(far(&own, (0.52, 0.54)));
        assert!(!far(&own[..1], (0.14, 0.15)));
        assert!(!far(&[(0.96, 0.98), (0.97, 0.99), (1.01, 1.02)], (0.97, 0.99)), "a few percent");
        assert!(!far(&[(0.9, 1.1), (0.6, 1.6), (1.0, 1.3)], (0.9, 1.3)), "wide intervals");
        let imported = [0.5, 1.0, 2.0].map(|ratio| (Ratio::new(ratio), Ratio::new(ratio)));
        assert!(differ_by_far(imported.into_iter(), None));
        assert!(!differ_by_far(imported[..0].iter().copied(), None));
    }

    #[test]
    fn chance_explains_few_of_many() {
        for (members, most) in [(3, 1), (9, 2), (11, 2), (42, 5)] {
            assert!(!exceeds_chance(most, members), "{most} of {members}");
            assert!(exceeds_chance(most + 1, members), "{most} of {members}");
        }
        assert!(!exceeds_chance(0, 0));
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
