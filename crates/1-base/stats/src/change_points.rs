//! Change points of a series of values that were measured at different times, each with its standard
//! error: between which two of them the level changed and held.
//!
//! A series is split where the difference between the means on both sides is largest, compared with
//! the scatter that remains (binary segmentation; Scott and Knott, *A cluster analysis method for
//! grouping means in the analysis of variance*, Biometrics 30, 1974). A level that differs for some
//! time and returns is searched for at the same time, because no single split shows it (circular binary
//! segmentation; Olshen et al., *Circular binary segmentation for the analysis of array-based DNA copy
//! number data*, Biostatistics 5, 2004). At the end every change is tested again against the levels
//! next to it. [`scan`] has the test, [`noise`] the scatter.
//!
//! Rejected alternatives: a permutation test (with 5 values its smallest possible p is 0.2), ranks
//! (the same), and a penalty on the number of changes (no p-value that can be corrected for the number
//! of series).

mod location;
mod log_value;
mod noise;
mod scan;
mod sums;

use dbdyno_units::Ratio;
use serde::Serialize;

use self::location::Location;
pub use self::log_value::LogValue;
use self::noise::Noise;
use self::scan::{best_excursion, best_step};
use self::sums::Sums;
use crate::between_runs::Quotient;
use crate::estimate::t_quantile;
use crate::median;

/// Minimum number of values: with four, two degrees of freedom remain for the scatter, and equal values
/// by chance would pass for levels.
pub const MIN_VALUES: usize = 5;

/// Minimum number of values at a level: one value is an outlier until others confirm it. In a series of
/// eight and more, one outlier among three must not pass for a level.
const fn least_level(values: usize) -> usize {
    if values < 8 { 2 } else { 3 }
}

/// The part of the significance level that is spent on single changes; the rest is spent on levels that
/// return.
const FOR_STEPS: f64 = 0.9;

/// A lasting change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ChangePoint {
    /// The index of the last value at the earlier level.
    pub before: usize,
    /// The index of the first value at the later level.
    pub after: usize,
    /// The later level divided by the earlier one, with its 95% interval.
    pub ratio: Quotient,
    /// The probability of a difference as large as this between the two levels by chance, wherever the
    /// change were.
    pub p_value: f64,
    /// With 95% probability the change is after this value…
    pub earliest: usize,
    /// …and before or at this one.
    pub latest: usize,
}

/// The change points of one series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChangePoints {
    /// The changes, in the order of the series.
    pub points: Vec<ChangePoint>,
    /// The indices of single values far from both neighbours, which were left out.
    pub outliers: Vec<usize>,
    /// The levels, one more than there are changes, in order.
    pub levels: Vec<Level>,
}

/// Values between two changes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Level {
    /// The index of its first value.
    pub first: usize,
    /// The index of its last value.
    pub last: usize,
    /// The weighted mean of its values, with its 95% interval.
    pub ratio: Quotient,
}

/// A series prepared for the search.
#[derive(Clone, Debug)]
pub struct ChangeSearch {
    /// Indices of the values used.
    indices: Vec<usize>,
    outliers: Vec<usize>,
    sums: Sums,
}

impl ChangeSearch {
    /// Prepares a series in the order of time; unknown values and outliers are left out. `None` with fewer
    /// than [`MIN_VALUES`] of the others.
    pub fn new(series: &[Option<LogValue>]) -> Option<Self> {
        let usable = |value: &LogValue| value.log.is_finite() && value.error.is_finite();
        let known: Vec<(usize, LogValue)> = series
            .iter()
            .enumerate()
            .filter_map(|(index, value)| Some((index, value.filter(usable)?)))
            .collect();
        let values: Vec<LogValue> = known.iter().map(|(_, value)| *value).collect();
        let noise = Noise::of(&values)?;
        let far = noise.outliers(&values);
        let kept: Vec<usize> = (0..values.len()).filter(|at| !far.contains(at)).collect();
        let weighted: Vec<(f64, f64)> =
            kept.iter().map(|&at| (values[at].log, noise.weight(&values[at]))).collect();
        (kept.len() >= MIN_VALUES).then(|| Self {
            indices: kept.iter().map(|&at| known[at].0).collect(),
            outliers: far.iter().map(|&at| known[at].0).collect(),
            sums: Sums::of(&weighted, noise.least_scale(), least_level(kept.len())),
        })
    }

    /// The probability of differences as large as the largest one of this series, if nothing changed.
    pub fn p_value(&self) -> f64 {
        self.split(0, self.indices.len()).map_or(1.0, |(p, _)| p)
    }

    /// The changes at this significance level, without those that are at most `least` on the logarithmic
    /// scale.
    pub fn changes(&self, level: f64, least: f64) -> ChangePoints {
        let mut starts = vec![0];
        self.segment(0, self.indices.len(), level, &mut starts);
        starts.push(self.indices.len());
        self.prune(&mut starts, level, least);
        let points = starts.windows(3).map(|three| self.point([three[0], three[1], three[2]]));
        ChangePoints {
            points: points.collect(),
            outliers: self.outliers.clone(),
            levels: starts.windows(2).map(|two| self.level(two[0], two[1], &starts)).collect(),
        }
    }

    /// The most significant split of a part of the series: its p-value and the starts of the new levels.
    fn split(&self, from: usize, to: usize) -> Option<(f64, Vec<usize>)> {
        let step = best_step(&self.sums, from, to)?;
        let step = (step.p_value / FOR_STEPS, vec![step.at]);
        let excursion = best_excursion(&self.sums, from, to);
        let excursion =
            excursion.map(|one| (one.p_value / (1.0 - FOR_STEPS), vec![one.from, one.to]));
        let best = excursion.filter(|one| one.0 < step.0).unwrap_or(step);
        Some((best.0.min(1.0), best.1))
    }

    /// Adds the starts of the levels of a part, except the first, in order.
    fn segment(&self, from: usize, to: usize, level: f64, starts: &mut Vec<usize>) {
        // So that the parts together have as many false alarms as the whole.
        let own = level * (to - from) as f64 / self.indices.len() as f64;
        let Some((_, inner)) = self.split(from, to).filter(|(p, _)| *p <= own) else { return };
        let mut start = from;
        for next in inner {
            self.segment(start, next, level, starts);
            starts.push(next);
            start = next;
        }
        self.segment(start, to, level, starts);
    }

    /// Moves each change to its place between the neighbouring ones, and removes those that are no longer
    /// significant there, or too small; the least significant first.
    fn prune(&self, starts: &mut Vec<usize>, level: f64, least: f64) {
        while starts.len() > 2 {
            for at in 1..starts.len() - 1 {
                starts[at] = Location::of(&self.sums, starts[at - 1], starts[at + 1]).at;
            }
            let worst = (1..starts.len() - 1)
                .map(|at| {
                    let (from, here, to) = (starts[at - 1], starts[at], starts[at + 1]);
                    let size = self.sums.mean(here, to) - self.sums.mean(from, here);
                    let p = best_step(&self.sums, from, to).map_or(1.0, |step| step.p_value);
                    (at, if size.abs() <= least { 1.0 } else { p })
                })
                .max_by(|a, b| a.1.total_cmp(&b.1));
            match worst {
                Some((at, p)) if p > level => starts.remove(at),
                _ => return,
            };
        }
    }

    /// A change between levels that start at the first two of `starts`; the third is the end.
    fn point(&self, [from, at, to]: [usize; 3]) -> ChangePoint {
        let Location { earliest, latest, .. } = Location::of(&self.sums, from, to);
        let change = self.sums.mean(at, to) - self.sums.mean(from, at);
        let weight = |from, to| self.sums.part(from, to).weight;
        let variance =
            self.sums.scale(&[from, at, to]) * (weight(from, at).recip() + weight(at, to).recip());
        ChangePoint {
            before: self.indices[at - 1],
            after: self.indices[at],
            ratio: with_interval(change, variance, to - from - 2),
            p_value: best_step(&self.sums, from, to).map_or(1.0, |step| step.p_value),
            earliest: self.indices[earliest - 1],
            latest: self.indices[latest],
        }
    }

    /// The level from one position to before another, among the levels with these starts and end.
    fn level(&self, from: usize, to: usize, starts: &[usize]) -> Level {
        let variance = self.sums.scale(starts) / self.sums.part(from, to).weight;
        let freedom = self.indices.len() + 1 - starts.len();
        Level {
            first: self.indices[from],
            last: self.indices[to - 1],
            ratio: with_interval(self.sums.mean(from, to), variance, freedom),
        }
    }
}

/// The ratio with this logarithm, with an interval by Student's t.
fn with_interval(log: f64, variance: f64, freedom: usize) -> Quotient {
    let half = t_quantile(freedom as f64).map_or(f64::INFINITY, |t| t * variance.sqrt());
    let [ratio, low, high] = [log, log - half, log + half].map(|log| Ratio::new(log.exp()));
    Quotient { ratio, low, high }
}

/// The significance level of single tests at which, of the series that are then called changed, about
/// `share` are not: `share` × k / n, where k is the number of the n p-values below it (Benjamini and
/// Hochberg, *Controlling the false discovery rate*, Journal of the Royal Statistical Society B 57, 1995).
/// Without any, the level of the first one.
pub fn false_discovery_level(p_values: &[f64], share: f64) -> f64 {
    let mut sorted = p_values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let level = |count: usize| share * count as f64 / sorted.len().max(1) as f64;
    let significant = (1..=sorted.len()).rev().find(|&count| sorted[count - 1] <= level(count));
    level(significant.unwrap_or(1))
}

#[cfg(test)]
mod tests;
