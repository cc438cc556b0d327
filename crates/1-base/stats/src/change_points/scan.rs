//! The largest difference between the parts of a series, and how probable it is by chance.
//!
//! The statistic is the share v² of a series' sum of squares that two levels explain: the
//! likelihood ratio of a change with unknown position and unknown variance (Worsley, *On the likelihood ratio
//! test for a shift in location of normal populations*, Journal of the American Statistical
//! Association 74, 1979). If nothing changed, the residuals around the mean point in a random direction
//! of a space of n−1 dimensions, and v is the cosine of the angle to the direction of the change.
//!
//! The p-value is that of the first possible change, plus for each of the others what it adds to that of
//! its predecessor. This is an upper bound, close for small p: neighbouring positions are strongly
//! correlated (Worsley, *An improved Bonferroni inequality and applications*, Biometrika 69, 1982;
//! Naiman, *Conservative confidence bands in curvilinear regression*, Annals of Statistics 14, 1986).

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

use super::sums::Sums;

/// Intervals of Simpson's rule for a whole probability, and for what a neighbour adds to it.
const WHOLE: usize = 128;
const ADDED: usize = 8;

/// The largest change of a part.
pub(super) struct Step {
    /// The start of the later level.
    pub(super) at: usize,
    /// The probability of a change as large, at any position, if nothing changed.
    pub(super) p_value: f64,
}

/// The largest difference of a level in the middle of a part from that on both sides.
pub(super) struct Excursion {
    pub(super) from: usize,
    pub(super) to: usize,
    /// As of [`Step`].
    pub(super) p_value: f64,
}

/// The largest change in a part; `None` if it has too few values.
pub(super) fn best_step(sums: &Sums, from: usize, to: usize) -> Option<Step> {
    let inner = from + sums.least_level()..=to.checked_sub(sums.least_level())?;
    let part = Part { sums, from, to };
    let explained = |at: usize| (at, part.explained(from, at));
    let (at, share) = inner.clone().map(explained).max_by(|a, b| a.1.total_cmp(&b.1))?;
    let tail = Tail { cosine: share.sqrt(), values: to - from };
    let added = inner.skip(1).map(|at| tail.added(part.angle((from, at - 1), (from, at))));
    Some(Step { at, p_value: (tail.of_one() + added.sum::<f64>()).min(1.0) })
}

/// The largest difference of a level in the middle; `None` if the part has too few values.
pub(super) fn best_excursion(sums: &Sums, from: usize, to: usize) -> Option<Excursion> {
    let part = Part { sums, from, to };
    let last = to.checked_sub(sums.least_level())?;
    let first = from + sums.least_level();
    let ends = |start: usize| start + sums.least_level()..=last;
    let all = || (first..last).flat_map(|start| ends(start).map(move |end| (start, end)));
    let explained = |(start, end)| ((start, end), part.explained(start, end));
    let (best, share) = all().map(explained).max_by(|a, b| a.1.total_cmp(&b.1))?;
    let tail = Tail { cosine: share.sqrt(), values: to - from };
    // Any tree of neighbours bounds the probability (Hunter, *An upper bound for the probability of a
    // union*, Journal of Applied Probability 13, 1976): here the same start with the end before, or
    // for the first end the start before.
    let added = all().skip(1).map(|(start, end)| {
        let angle = match end > start + sums.least_level() {
            true => part.angle((start, end - 1), (start, end)),
            false => part.angle((start, end), (start - 1, end)),
        };
        tail.added(angle)
    });
    let p_value = (tail.of_one() + added.sum::<f64>()).min(1.0);
    Some(Excursion { from: best.0, to: best.1, p_value })
}

/// A part of a series.
struct Part<'a> {
    sums: &'a Sums,
    from: usize,
    to: usize,
}

impl Part<'_> {
    /// The share of the sum of squares that is explained by another level from `start` to `end`. The
    /// rest is at least what the values scatter by themselves.
    fn explained(&self, start: usize, end: usize) -> f64 {
        let Self { sums, from, to } = *self;
        let [all, inside] = [sums.part(from, to), sums.part(start, end)];
        let outside = all.without(inside);
        let distance = inside.mean() - outside.mean();
        let explained = inside.weight * outside.weight / all.weight * distance * distance;
        let rest = inside.squares() + outside.squares();
        let rest = rest.max(sums.least_scale() * (to - from).saturating_sub(2) as f64);
        let share = explained / (explained + rest);
        if share.is_nan() { 0.0 } else { share }
    }

    /// The angle between the directions of two changes, of which the first one's values are among the
    /// second one's.
    fn angle(&self, inner: (usize, usize), outer: (usize, usize)) -> f64 {
        let all = self.sums.part(self.from, self.to).weight;
        let [inner, outer] = [inner, outer].map(|(start, end)| self.sums.part(start, end).weight);
        (inner * (all - outer) / (outer * (all - inner))).max(0.0).sqrt().min(1.0).acos()
    }
}

/// The distribution of the largest cosine if nothing changed.
struct Tail {
    cosine: f64,
    /// The number of values of the part.
    values: usize,
}

impl Tail {
    /// The probability that one given change has a larger cosine, of either sign.
    fn of_one(&self) -> f64 {
        self.integral(FRAC_PI_2, WHOLE)
    }

    /// The probability that a change at this angle to another one has a larger cosine, and the other one
    /// has not.
    ///
    /// Both directions are in a plane. The square of the length r of the residuals' projection on it has a
    /// Beta(1, (n−3)/2) distribution and its angle is uniform; cosines above v need an angle below
    /// acos(v/r) to a direction, and the arcs of both directions overlap except for the angle between
    /// them.
    fn added(&self, angle: f64) -> f64 {
        self.integral(angle / 2.0, ADDED)
    }

    /// 2/π ∫ (1 − v²/cos²α)^((n−3)/2) dα from 0 to `to`, by Simpson's rule.
    fn integral(&self, to: f64, intervals: usize) -> f64 {
        let to = to.min(self.cosine.min(1.0).acos());
        let exponent = (self.values as f64 - 3.0) / 2.0;
        let at = |number: usize| {
            let cosine = (to * number as f64 / intervals as f64).cos();
            (1.0 - (self.cosine / cosine).powi(2)).max(0.0).powf(exponent)
        };
        let inner =
            (1..intervals).map(|number| at(number) * if number % 2 == 1 { 4.0 } else { 2.0 });
        let sum = at(0) + inner.sum::<f64>() + at(intervals);
        FRAC_2_PI * sum * to / (3.0 * intervals as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probability_of_one_change_is_that_of_students_t() {
        // v² = t²/(t² + n − 2), with the two-sided 5% points of t for n − 2 degrees of freedom.
        for (values, t) in [(5, 3.182_f64), (7, 2.571), (14, 2.179), (32, 2.042)] {
            let cosine = t / (t * t + values as f64 - 2.0).sqrt();
            let p = Tail { cosine, values }.of_one();
            assert!((p - 0.05).abs() < 2e-4, "{p} of {values} values");
        }
    }

    #[test]
    fn two_orthogonal_changes_add_up_to_their_sum() {
        let tail = Tail { cosine: 0.9, values: 20 };
        let both = tail.added(FRAC_PI_2);
        assert!((both / tail.of_one() - 1.0).abs() < 1e-3, "{both}");
        assert!(tail.added(0.0) == 0.0);
    }
}
