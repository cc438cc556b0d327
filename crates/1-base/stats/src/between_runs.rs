//! Quotients of estimates of different runs. Runs are measured at different times, so there are no
//! pairs of blocks: only the two intervals are known.

use dbdyno_units::{Ratio, Share};
use serde::Serialize;

use crate::estimate::{Estimate, widening};

/// Half the width of the interval of a run, in noise floors, is at least this.
///
/// A noise floor is the typical (median) distance of two equal instances, which is 0.67 standard
/// deviations of a normal distribution; 95% of the distances are below 2.9 noise floors.
const NOISE_FLOORS: f64 = 3.0;

/// A value of one run with its 95% interval, in any unit: a ratio to the baseline, or an absolute
/// figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunValue {
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// The noise floor of the run; `None` without a control.
    pub floor: Option<Share>,
}

impl RunValue {
    /// A ratio of a run with this noise floor.
    pub const fn of(estimate: &Estimate, floor: Option<Share>) -> Self {
        let Estimate { median, low, high, .. } = estimate;
        Self { value: median.get(), low: low.get(), high: high.get(), floor }
    }
}

/// A value of one run divided by that of another one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quotient {
    pub ratio: Ratio,
    /// Lower end of the 95% interval.
    pub low: Ratio,
    /// Upper end of the 95% interval.
    pub high: Ratio,
}

/// The ratio and the ends of the interval.
impl From<Quotient> for [Ratio; 3] {
    fn from(Quotient { ratio, low, high }: Quotient) -> Self {
        [ratio, low, high]
    }
}

impl Quotient {
    /// Whether the interval excludes 1.
    pub fn is_certain(&self) -> bool {
        self.low > Ratio::ONE || self.high < Ratio::ONE
    }
}

/// The quotient of two of several values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The index of the value that is divided.
    pub later: usize,
    /// The index of the value that it is divided by.
    pub earlier: usize,
    pub quotient: Quotient,
}

/// `later` divided by `earlier`, with a 95% interval. `None` if an interval contains 0.
///
/// The interval is calculated from the distances of both values to the ends of their intervals, on
/// a logarithmic scale (MOVER: Zou and Donner, *Construction of confidence intervals about effect
/// measures: a general approach*, Statistics in Medicine 27, 2008). The interval of a run without
/// restarts does not contain the differences between two starts of equal instances, which the
/// control shows; therefore no distance is less than three noise floors of its run.
pub fn quotient(later: &RunValue, earlier: &RunValue) -> Option<Quotient> {
    let (later, earlier) = (Logarithm::of(later)?, Logarithm::of(earlier)?);
    Some(later.divided_by(&earlier, widening(1, None)).into())
}

/// The most certain difference between any two of `runs`: the one that is farthest from 1 in widths
/// of its interval. `None` if there are no two values with a quotient.
///
/// The intervals are widened for the number of pairs (Bonferroni's correction, with normal
/// quantiles), so that for equal runs the returned interval contains 1 in about 95% of cases,
/// whatever the number of runs. The alternative, Cochran's Q, has about as many false alarms; it is
/// more sensitive to differences that are spread over many runs, but does not tell which runs
/// differ, or by how much.
pub fn largest_difference(runs: &[Option<RunValue>]) -> Option<Difference> {
    let known = runs.iter().enumerate().filter_map(|(index, run)| Some((index, run.as_ref()?)));
    let known: Vec<(usize, Option<Logarithm>)> =
        known.map(|(index, run)| (index, Logarithm::of(run))).collect();
    let pairs = known.len() * known.len().saturating_sub(1) / 2;
    let widened = widening(pairs, None);
    let mut largest: Option<(f64, Difference)> = None;
    for (position, (earlier, of_earlier)) in known.iter().enumerate() {
        for (later, of_later) in &known[position + 1..] {
            let (Some(one), Some(other)) = (of_later, of_earlier) else { continue };
            let quotient = one.divided_by(other, widened);
            let certainty = quotient.certainty();
            if largest.is_none_or(|(known, _)| certainty > known) {
                let quotient = quotient.into();
                largest =
                    Some((certainty, Difference { later: *later, earlier: *earlier, quotient }));
            }
        }
    }
    largest.map(|(_, difference)| difference)
}

/// A value on a logarithmic scale, with the distances to the ends of its interval.
struct Logarithm {
    value: f64,
    below: f64,
    above: f64,
}

impl Logarithm {
    /// `None` if the interval contains 0.
    fn of(run: &RunValue) -> Option<Self> {
        let [value, low, high] = [run.value, run.low, run.high].map(f64::ln);
        let floor = NOISE_FLOORS * run.floor.map_or(0.0, Share::as_fraction).ln_1p();
        let (below, above) = ((value - low).max(floor), (high - value).max(floor));
        let known = value.is_finite() && low.is_finite() && high.is_finite();
        known.then_some(Self { value, below, above })
    }

    /// The quotient, with an interval that is widened by this factor.
    fn divided_by(&self, earlier: &Self, widened: f64) -> Self {
        Self {
            value: self.value - earlier.value,
            below: widened * self.below.hypot(earlier.above),
            above: widened * self.above.hypot(earlier.below),
        }
    }

    /// The distance from 0 in widths of the interval on this side.
    fn certainty(&self) -> f64 {
        let width = if self.value > 0.0 { self.below } else { self.above };
        self.value.abs() / width.max(f64::MIN_POSITIVE)
    }
}

impl From<Logarithm> for Quotient {
    fn from(Logarithm { value, below, above }: Logarithm) -> Self {
        let [ratio, low, high] =
            [value, value - below, value + above].map(|log| Ratio::new(log.exp()));
        Self { ratio, low, high }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Z;
    use crate::estimate::tests::autoregressive;
    use crate::restarts::restarts_with_interval;

    const TRIALS: u64 = 1_000;

    /// A run whose true ratio is 1: restarts with these standard deviations, and blocks of 1%.
    fn run(seed: u64, restarts: usize, between: f64) -> RunValue {
        let levels = autoregressive(seed * 1_000, 0.0, restarts);
        let blocks = |(number, level): (u64, f64)| -> Vec<f64> {
            let noise = autoregressive(seed * 1_000 + number, 0.0, 12);
            noise.iter().map(|noise| 1.0 + between * level + 0.01 * noise).collect()
        };
        let all: Vec<Vec<f64>> = (1..).zip(levels).map(blocks).collect();
        RunValue::of(&restarts_with_interval(&all, None).unwrap(), None)
    }

    fn share(of: impl Fn(u64) -> bool) -> f64 {
        (0..TRIALS).filter(|seed| of(*seed)).count() as f64 / TRIALS as f64
    }

    /// Cochran's Q exceeds the 95% point of χ² for these numbers of runs.
    fn cochran_alarms(runs: &[Option<RunValue>]) -> bool {
        let values: Vec<(f64, f64)> = runs
            .iter()
            .flatten()
            .map(|run| {
                let Logarithm { value, below, above, .. } = Logarithm::of(run).unwrap();
                (value, (below.midpoint(above) / Z).powi(-2))
            })
            .collect();
        let weights: f64 = values.iter().map(|(_, weight)| weight).sum();
        let mean = values.iter().map(|(value, weight)| value * weight).sum::<f64>() / weights;
        let q: f64 = values.iter().map(|(value, weight)| weight * (value - mean).powi(2)).sum();
        q > if values.len() == 3 { 5.991 } else { 15.507 }
    }

    #[test]
    fn quotient_of_two_runs_has_nominal_coverage() {
        for (later, earlier, between) in
            [(3, 3, 0.01), (3, 12, 0.0), (6, 6, 0.01), (6, 1, 0.0), (12, 12, 0.003), (1, 1, 0.0)]
        {
            let covered = share(|seed| {
                let (later, earlier) =
                    (run(2 * seed, later, between), run(2 * seed + 1, earlier, between));
                !quotient(&later, &earlier).unwrap().is_certain()
            });
            let of = format!("{later} and {earlier} restarts, {between}");
            assert!((0.94..=0.995).contains(&covered), "{covered} with {of}");
        }
    }

    #[test]
    fn noise_floor_covers_the_difference_between_equal_instances() {
        // One start: the interval is narrow, but each instance is off by 1% of its own.
        let one_start = |seed: u64, with_floor: bool| {
            let offsets = autoregressive(seed, 0.0, 12);
            let mut run = run(seed, 1, 0.0);
            for end in [&mut run.value, &mut run.low, &mut run.high] {
                *end += 0.03 * offsets[0];
            }
            let controls: Vec<f64> = offsets[1..].iter().map(|o| 0.03 * o.abs()).collect();
            run.floor = crate::median(&controls).filter(|_| with_floor).map(Share::from_fraction);
            run
        };
        let covered = |with_floor| {
            share(|seed| {
                let [later, earlier] = [0, 1].map(|run| one_start(2 * seed + run, with_floor));
                !quotient(&later, &earlier).unwrap().is_certain()
            })
        };
        assert!(covered(false) < 0.5);
        let with_floor = covered(true);
        assert!((0.92..=0.98).contains(&with_floor), "{with_floor}");
    }

    #[test]
    fn largest_difference_of_equal_runs_is_rarely_certain() {
        for (runs, restarts) in [(3, 3), (3, 6), (3, 1), (9, 3), (9, 6), (9, 1)] {
            let drawn = |seed: u64| -> Vec<Option<RunValue>> {
                (0..runs).map(|number| Some(run(seed * 10 + number, restarts, 0.005))).collect()
            };
            // With one start, all blocks of a run are shifted together, as without a spread.
            let drawn = |seed| match restarts {
                1 => (0..runs).map(|number| Some(run(seed * 10 + number, 1, 0.0))).collect(),
                _ => drawn(seed),
            };
            let certain = |found: Option<Difference>| found.unwrap().quotient.is_certain();
            let alarms = share(|seed| certain(largest_difference(&drawn(seed))));
            let cochran = share(|seed| cochran_alarms(&drawn(seed)));
            let uncorrected = share(|seed| {
                let all = drawn(seed);
                let differ = |a: usize, b: usize| {
                    let of = |index: usize| all[index].as_ref().unwrap();
                    quotient(of(a), of(b)).unwrap().is_certain()
                };
                (0..all.len()).any(|a| (0..a).any(|b| differ(a, b)))
            });
            let of =
                format!("{runs} runs of {restarts} restarts: {alarms} {cochran} {uncorrected}");
            assert!(alarms <= 0.07, "{of}");
            assert!(cochran <= 0.08, "{of}");
            assert!(uncorrected > alarms && (runs < 9 || uncorrected > 0.15), "{of}");
        }
    }

    fn value(value: f64, half: f64, floor: Option<f64>) -> RunValue {
        let floor = floor.map(Share::from_fraction);
        RunValue { value, low: value - half, high: value + half, floor }
    }

    #[test]
    fn largest_difference_names_the_pair_and_its_size() {
        let near = |at: f64| Some(value(at, 0.01, None));
        let runs = [near(1.0), None, near(0.995), near(0.68)];
        let Difference { later, earlier, quotient } = largest_difference(&runs).unwrap();
        assert_eq!((later, earlier), (3, 0));
        assert!((quotient.ratio.get() - 0.68).abs() < 1e-9);
        assert!(quotient.is_certain() && quotient.high.get() < 0.71, "{quotient:?}");
        assert_eq!(largest_difference(&[near(1.0), None]), None);
        assert_eq!(largest_difference(&[]), None);
    }

    #[test]
    fn noise_floor_widens_a_narrow_interval_only() {
        let half = |half: f64| {
            let run = value(1.0, half, Some(0.01));
            let quotient = quotient(&run, &run).unwrap();
            (quotient.high.get() - quotient.low.get()) / 2.0
        };
        assert!((half(0.001) / (0.03 * 2.0_f64.sqrt()) - 1.0).abs() < 0.02);
        assert!((half(0.05) / (0.05 * 2.0_f64.sqrt()) - 1.0).abs() < 0.02);
    }

    #[test]
    fn interval_that_contains_0_has_no_quotient() {
        let run = value(0.5, 0.6, None);
        assert_eq!(quotient(&run, &run), None);
        assert_eq!(quotient(&value(1.0, 0.1, None), &value(0.0, 0.0, None)), None);
    }
}
