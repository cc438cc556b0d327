//! Whether a commit is like good or like bad: decisions without input or output.

use dbdyno_stats::{Estimate, Side, Weight};
use dbdyno_units::Share;

use super::record::StepVerdict;

/// How often the measuring time of a step is doubled before it is given up: to 16 times the
/// schedule's, which makes intervals four times as narrow.
pub(crate) const MOST_EXTENSIONS: usize = 4;

/// The numbers of the candidates in the run of a step; the control is the last one.
pub(crate) const GOOD: u32 = 0;
pub(crate) const BAD: u32 = 1;
pub(crate) const MIDPOINT: u32 = 2;

/// The contrast of the midpoint with the middle between good and bad, their geometric mean: its ratio
/// to that. As one contrast, its interval includes the uncertainty of all three, and the noise that a
/// block has in common cancels out.
pub(crate) const FROM_MIDDLE: [Weight; 3] = [
    Weight { candidate: MIDPOINT, weight: 1.0 },
    Weight { candidate: GOOD, weight: -0.5 },
    Weight { candidate: BAD, weight: -0.5 },
];

/// What the run of a step shows; each `None` with too few blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepRatios {
    /// Bad, relative to good.
    pub bad: Option<Estimate>,
    /// The midpoint, relative to the middle between good and bad.
    pub from_middle: Option<Estimate>,
    pub noise_floor: Option<Share>,
}

impl StepRatios {
    /// The verdict on the midpoint, where bad is on this side of good. `None` if good and bad do not
    /// differ in that way in this run: there is no middle then, and a midpoint is on some side of it by
    /// chance. Also if the interval of the midpoint contains the middle, or if it is not farther from it
    /// than the noise floor.
    pub fn verdict(&self, bad: Side) -> Option<StepVerdict> {
        let side = |estimate: Option<Estimate>| estimate?.difference(self.noise_floor);
        let from_middle = side(self.from_middle).filter(|_| side(self.bad) == Some(bad))?;
        Some(if from_middle == bad { StepVerdict::LikeBad } else { StepVerdict::LikeGood })
    }
}

/// The position of the largest of these differences, each with its noise floor; `None` if none is
/// beyond interval and noise floor. Intervals are widened for their number and for the repeated
/// decisions, so that equal candidates differ in 5% of bisects.
pub(crate) fn largest_difference(rows: &[Option<(Estimate, Option<Share>)>]) -> Option<usize> {
    let comparisons = rows.iter().flatten().count() * (MOST_EXTENSIONS + 1);
    let size = |estimate: &Estimate| estimate.median.get().ln().abs();
    let differing = rows.iter().enumerate().filter_map(|(number, row)| {
        let (estimate, floor) = row.as_ref()?;
        estimate.one_of(comparisons).difference(*floor).is_some().then(|| (number, size(estimate)))
    });
    differing.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use dbdyno_stats::{Point, contrast, paired_ratios, restarts_with_interval};
    use dbdyno_units::Ratio;
    use rand_core::SeedableRng;
    use rand_distr::{Distribution, StandardNormal};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::bisect::search::{Next, Search};

    fn estimate(low: f64, median: f64, high: f64) -> Estimate {
        Estimate {
            median: Ratio::new(median),
            low: Ratio::new(low),
            high: Ratio::new(high),
            blocks: 20,
            starts: None,
        }
    }

    fn verdict(
        bad: Option<Estimate>,
        from_middle: Option<Estimate>,
        noise_floor: f64,
        side: Side,
    ) -> Option<StepVerdict> {
        let noise_floor = Some(Share::from_percent(noise_floor));
        StepRatios { bad, from_middle, noise_floor }.verdict(side)
    }

    #[test]
    fn midpoint_is_judged_by_its_side_of_the_middle() {
        let of = |from_middle: Estimate, bad: Estimate| {
            verdict(Some(bad), Some(from_middle), 0.0, Side::of(bad.median))
        };
        let (above, below) = (estimate(1.01, 1.02, 1.03), estimate(0.97, 0.98, 0.99));
        assert_eq!(of(above, above), Some(StepVerdict::LikeBad));
        assert_eq!(of(above, below), Some(StepVerdict::LikeGood));
        assert_eq!(of(below, below), Some(StepVerdict::LikeBad));
        assert_eq!(of(below, above), Some(StepVerdict::LikeGood));
    }

    #[test]
    fn midpoint_has_no_verdict_while_good_and_bad_do_not_differ() {
        let (above, below) = (estimate(1.01, 1.02, 1.03), estimate(0.97, 0.98, 0.99));
        let unclear = estimate(0.99, 1.02, 1.05);
        for bad in [None, Some(unclear), Some(below)] {
            assert_eq!(verdict(bad, Some(above), 0.0, Side::Above), None, "{bad:?}");
        }
    }

    #[test]
    fn midpoint_within_its_interval_or_the_noise_floor_has_no_verdict() {
        let bad = Some(estimate(1.04, 1.05, 1.06));
        let wide = estimate(0.99, 1.02, 1.05);
        assert_eq!(verdict(bad, Some(wide), 0.0, Side::Above), None);
        assert_eq!(verdict(bad, None, 0.0, Side::Above), None);
        let clear = estimate(1.01, 1.02, 1.03);
        assert_eq!(verdict(bad, Some(clear), 3.0, Side::Above), None);
    }

    #[test]
    fn largest_significant_difference_is_chosen() {
        let floor = Some(Share::from_percent(1.0));
        let rows = [
            Some((estimate(0.96, 0.97, 0.98), floor)),
            Some((estimate(0.80, 0.90, 1.01), floor)),
            None,
            Some((estimate(1.03, 1.04, 1.05), floor)),
            Some((estimate(1.001, 1.005, 1.009), floor)),
        ];
        assert_eq!(largest_difference(&rows), Some(3));
        assert_eq!(largest_difference(&rows[1..3]), None);
    }

    /// A machine on which figures of each start differ by 0.5%, and those of each block by 2% more,
    /// as of SQLite with slices of 5 ms; builds of different commits differ by 0.2% by their layout.
    struct Machine(Xoshiro256PlusPlus);

    const STARTS: u32 = 6;
    const BLOCKS_OF_START: u32 = 30;

    impl Machine {
        fn noise(&mut self, deviation: f64) -> f64 {
            let draw: f64 = StandardNormal.sample(&mut self.0);
            (deviation * draw).exp()
        }

        /// Adds starts of good, bad, a midpoint and the control, whose figures are `levels`.
        fn measure(&mut self, points: &mut Vec<Point>, first: u32, starts: u32, levels: &[f64]) {
            for restart in first..first + starts {
                let of_start: Vec<f64> =
                    levels.iter().map(|level| level * self.noise(0.005)).collect();
                for block in 0..BLOCKS_OF_START {
                    let machine = self.noise(0.05);
                    for (candidate, level) in (0..).zip(&of_start) {
                        let value = level * machine * self.noise(0.02);
                        points.push(Point { restart, block, candidate, value });
                    }
                }
            }
        }
    }

    /// A bisect of 64 commits, of which `first` and later ones have `step` of the throughput; returns
    /// the commit that it names and the number of midpoints.
    fn simulate(seed: u64, first: usize, step: f64) -> (Option<usize>, usize) {
        let mut machine = Machine(Xoshiro256PlusPlus::seed_from_u64(seed));
        let level = |commit: usize| if commit >= first { step } else { 1.0 };
        let of_commit: Vec<f64> = (0..64).map(|one| level(one) * machine.noise(0.002)).collect();
        let parents = (0..64_usize).map(|commit| commit.checked_sub(1).into_iter().collect());
        let mut search = Search::new(parents.collect());
        let mut midpoints = 0;
        loop {
            let midpoint = match search.next() {
                Next::Measure(midpoint) => midpoint,
                Next::Found(commit) => return (Some(commit), midpoints),
                Next::OnlySkipped => return (None, midpoints),
            };
            midpoints += 1;
            let levels = [1.0, of_commit[63], of_commit[midpoint], 1.0];
            let mut points = Vec::new();
            let judged = (0..=MOST_EXTENSIONS).find_map(|extension| {
                let starts = if extension == 0 { STARTS } else { STARTS << (extension - 1) };
                let before = if extension == 0 { 0 } else { starts };
                machine.measure(&mut points, before, starts, &levels);
                let interval =
                    |ratios: Vec<Vec<f64>>| restarts_with_interval(&ratios, Some(STARTS));
                let control = interval(paired_ratios(&points, 3, GOOD)).unwrap();
                let ratios = StepRatios {
                    bad: interval(paired_ratios(&points, BAD, GOOD)),
                    from_middle: interval(contrast(&points, &FROM_MIDDLE)),
                    noise_floor: Some(Share::from_fraction(control.median.distance())),
                };
                ratios.verdict(Side::Below)
            });
            match judged {
                Some(verdict) => search.add(midpoint, verdict),
                None => return (None, midpoints),
            }
        }
    }

    /// Whether good and bad differ in one of five microbenchmarks on which they are equal.
    fn differs_by_chance(seed: u64) -> bool {
        let mut machine = Machine(Xoshiro256PlusPlus::seed_from_u64(seed));
        let mut microbenchmarks = vec![Vec::new(); 5];
        (0..=MOST_EXTENSIONS).any(|extension| {
            let starts = if extension == 0 { STARTS } else { STARTS << (extension - 1) };
            let before = if extension == 0 { 0 } else { starts };
            let rows: Vec<_> = microbenchmarks
                .iter_mut()
                .map(|points| {
                    machine.measure(points, before, starts, &[1.0, 1.0]);
                    let bad =
                        restarts_with_interval(&paired_ratios(points, BAD, GOOD), Some(STARTS))?;
                    Some((bad, Some(Share::default())))
                })
                .collect();
            largest_difference(&rows).is_some()
        })
    }

    #[test]
    fn equal_good_and_bad_rarely_differ_in_one_of_several_microbenchmarks() {
        let by_chance = (0..40).filter(|seed| differs_by_chance(*seed)).count();
        assert!(by_chance <= 4, "{by_chance} of 40");
    }

    #[test]
    fn step_of_three_percent_is_found_in_64_commits() {
        let bisects = (0..200).map(|seed| {
            let first = (seed as usize * 37 + 5) % 64;
            (simulate(seed, first, 0.97), first)
        });
        let (mut right, mut most) = (0, 0);
        for ((found, midpoints), first) in bisects {
            right += usize::from(found == Some(first));
            most = most.max(midpoints);
        }
        assert!(right >= 195 && most <= 7, "{right} of 200 with at most {most} midpoints");
    }
}
