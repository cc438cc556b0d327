//! What was found with one metric in a group: the one rule for the interval and the verdict of a group, and for which
//! difference may be noise.

use dbdyno_stats::{differ_by_far, exceeds_chance, is_too_noisy, median, possible_difference};
use dbdyno_units::{Ratio, Share};
use serde::Serialize;

use super::Measured;
use crate::model::{Absolute, Estimate, Metric, Row, Verdict};

/// Work between slices of a larger share of a server's CPU time is looked at.
const MUCH_BACKGROUND: Share = Share::from_fraction(0.05);

/// What was found with one metric in the microbenchmarks of a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Finding {
    pub(crate) metric: Metric,
    pub(crate) outcome: Outcome,
    /// The median of the ratios to the baseline; `None` without usable ratios.
    pub(crate) ratio: Option<Ratio>,
    /// The medians of the lower and the upper ends of their intervals. For a single microbenchmark
    /// this is its interval. For several it is a cautious interval of their median: it does not
    /// assume that their errors are independent, as those of one start are not.
    pub(crate) interval: Option<(Ratio, Ratio)>,
    /// Number of microbenchmarks with a usable ratio.
    pub(crate) count: usize,
    /// Number of these with more throughput or less CPU than the baseline.
    pub(crate) better: usize,
    /// Number of these with less throughput or more CPU than the baseline.
    pub(crate) worse: usize,
    /// Number of these whose intervals are too wide for any statement.
    pub(crate) too_noisy: usize,
    /// The least and the greatest ratio, if the microbenchmarks differ by far more than their
    /// intervals: the median describes none of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) range: Option<(Ratio, Ratio)>,
    /// If no difference was found: the largest difference from 1 that the interval and the noise
    /// floor permit.
    pub(crate) within: Option<Share>,
    /// The noise floor; `None` without a control.
    #[serde(skip)]
    pub(super) noise: Option<Share>,
    /// The control's median ratio in the same microbenchmarks, if it is on the same side of 1 and at least half as far from
    /// it on a logarithmic scale: then the candidate's difference may be noise.
    pub(crate) control: Option<Ratio>,
    /// The control's interval in the same microbenchmarks, if it is too noisy to tell and contains `ratio`: then the
    /// candidate's difference may be noise, however near to 1 the control's ratio is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) control_interval: Option<(Ratio, Ratio)>,
    /// The finding of CPU time without a server's work between slices, if there is much of it and `interval` does not
    /// contain its ratio, or is too wide: then background work changes the difference, and may vary from start to start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) without_background: Option<Box<Self>>,
    /// Whether all statements only read, which cause no background work.
    #[serde(skip)]
    pub(super) reads: bool,
    /// Whether the candidate is known to be as the baseline: all its settings have the baseline's values.
    #[serde(skip)]
    pub(super) is_as_baseline: bool,
    /// The microbenchmarks, if others of the group are judged by another metric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) part: Option<String>,
}

/// A usable ratio of a microbenchmark of a group.
pub(crate) struct GroupValue {
    pub(crate) ratio: Ratio,
    /// With its interval; `None` for imported results.
    pub(crate) estimate: Option<Estimate>,
    pub(crate) verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    /// More throughput or less CPU than the baseline: in at least half of the microbenchmarks, and
    /// the interval excludes 1.
    Better,
    /// Less throughput or more CPU, in the same way.
    Worse,
    /// No microbenchmark differs from the baseline, or so few by so little as chance explains.
    NoDifference,
    /// The same, but so large a difference is possible that it does not mean equal.
    TooNoisy,
    /// Some microbenchmarks differ, but not the group as a whole.
    Mixed,
    /// Imported, with too few values for intervals.
    NoInterval,
    /// No usable ratio: too few blocks.
    TooFewBlocks,
    /// No usable ratio: the load generator was the bottleneck.
    ClientBound,
    /// No usable ratio: the candidate or the baseline failed.
    Failed,
}

impl Finding {
    /// The control's ratio if it differs from 1 in the same way, see [`Finding::control`].
    fn like(&self, control: &Self) -> Option<Ratio> {
        let (own, ratio) = (self.ratio?, control.ratio?);
        let same_side = if own > Ratio::ONE { ratio > Ratio::ONE } else { ratio < Ratio::ONE };
        let distance = |ratio: Ratio| ratio.get().ln().abs();
        let is_like = same_side && distance(ratio) >= 0.5 * distance(own);
        (self.is_difference() && is_like).then_some(ratio)
    }

    /// See [`Finding::control_interval`].
    fn within_noise_of(&self, control: &Self) -> Option<(Ratio, Ratio)> {
        let (ratio, (low, high)) = (self.ratio?, control.interval?);
        let is_within = control.outcome == Outcome::TooNoisy && low <= ratio && ratio <= high;
        (self.is_difference() && is_within).then_some((low, high))
    }

    /// See [`Finding::without_background`].
    fn without_background(&self, members: &[Measured<'_>]) -> Option<Box<Self>> {
        let (low, high) = self.interval.filter(|_| self.metric == Metric::Cpu)?;
        let is_much = |one: &Measured<'_>| {
            let figures = [&one.row.absolute, &one.microbenchmark.baseline];
            let shares = figures.map(Absolute::background_share);
            shares.into_iter().flatten().any(|share| share > MUCH_BACKGROUND)
        };
        members.iter().find(|one| is_much(one))?;
        let of_slices = |row: &Row| row.counted(Metric::Cpu).and(row.relative_cpu_of_slices);
        let floor =
            |one: &Measured<'_>| Some(of_slices(one.microbenchmark.control()?)?.median.distance());
        let value = |one: &Measured<'_>| {
            let estimate = of_slices(one.row)?;
            let floor = floor(one).map(Share::from_fraction);
            let verdict = Verdict::of_estimate(Metric::Cpu, &estimate, floor);
            Some(GroupValue { ratio: estimate.median, estimate: Some(estimate), verdict })
        };
        let values: Vec<GroupValue> = members.iter().filter_map(value).collect();
        let floors: Vec<f64> = members.iter().filter_map(floor).collect();
        let noise = median(&floors).map(Share::from_fraction);
        let without = Self::of_values(Metric::Cpu, &values, noise);
        let ratio = without.ratio?;
        let is_outside = self.is_difference() && (ratio < low || ratio > high);
        (is_outside || self.outcome == Outcome::TooNoisy).then(|| Box::new(without))
    }

    /// The finding of a candidate's rows, each beside the control's of the same microbenchmark. The one rule for which
    /// difference may be noise: that of a group by the group's control; where only some members differ, by each one's.
    /// Members are counted as the tables show them.
    pub(crate) fn beside(members: &[Measured<'_>], metric: Metric, noise: Option<Share>) -> Self {
        let rows: Vec<&Row> = members.iter().map(|one| one.row).collect();
        let mut finding = Self::of(metric, &rows, noise);
        if members.len() > 1 {
            let shown = members.iter().map(|Measured { microbenchmark, row }| {
                (*row, microbenchmark.shown_verdict(row, metric))
            });
            let judged = Self::of_judged(metric, shown, noise);
            if !finding.is_difference() || judged.outcome == finding.outcome {
                finding = judged;
            }
        }
        let controls: Vec<&Row> =
            members.iter().filter_map(|one| one.microbenchmark.control()).collect();
        let of_control = Self::of(metric, &controls, None);
        let control = finding.like(&of_control);
        let control_interval = finding.within_noise_of(&of_control);
        let reads = members.iter().all(|one| !one.microbenchmark.writes);
        let without_background = finding.without_background(members);
        Self { control, control_interval, reads, without_background, ..finding }
    }

    pub(crate) fn of(metric: Metric, rows: &[&Row], noise: Option<Share>) -> Self {
        let stored = |row: &&'_ Row| row.verdict_of(metric);
        Self::of_judged(metric, rows.iter().map(|row| (*row, stored(row))), noise)
    }

    fn of_judged<'r>(
        metric: Metric,
        rows: impl Iterator<Item = (&'r Row, Verdict)> + Clone,
        noise: Option<Share>,
    ) -> Self {
        let value = |(row, verdict): (&Row, Verdict)| {
            let estimate = row.estimate(metric);
            Some(GroupValue { ratio: row.counted(metric)?, estimate, verdict })
        };
        let values: Vec<GroupValue> = rows.clone().filter_map(value).collect();
        let mut finding = Self::of_values(metric, &values, noise);
        if let (Some((_, verdict)), true) = (rows.clone().next(), values.is_empty()) {
            finding.outcome = match verdict {
                Verdict::ClientBound => Outcome::ClientBound,
                Verdict::Failed => Outcome::Failed,
                _ => Outcome::TooFewBlocks,
            };
        }
        finding
    }

    /// The finding of the usable ratios of a group. The one rule for the interval and the verdict of a
    /// group.
    pub(crate) fn of_values(metric: Metric, values: &[GroupValue], noise: Option<Share>) -> Self {
        let of_verdict = |verdict| values.iter().filter(|one| one.verdict == verdict).count();
        let estimates = || values.iter().filter_map(|one| one.estimate);
        let middle = |values: Vec<f64>| median(&values).map(Ratio::new);
        let low = middle(estimates().map(|estimate| estimate.low.get()).collect());
        let high = middle(estimates().map(|estimate| estimate.high.get()).collect());
        let mut finding = Self {
            metric,
            outcome: Outcome::NoInterval,
            ratio: middle(values.iter().map(|one| one.ratio.get()).collect()),
            interval: low.zip(high),
            count: values.len(),
            better: of_verdict(Verdict::Better),
            worse: of_verdict(Verdict::Worse),
            too_noisy: of_verdict(Verdict::TooNoisy),
            range: None,
            within: None,
            noise,
            control: None,
            control_interval: None,
            without_background: None,
            reads: false,
            is_as_baseline: false,
            part: None,
        };
        let ends = values.iter().map(|one| {
            one.estimate.map_or((one.ratio, one.ratio), |estimate| (estimate.low, estimate.high))
        });
        if differ_by_far(ends, finding.interval) {
            let of = |choose: fn(f64, f64) -> f64| {
                values.iter().map(|one| one.ratio.get()).reduce(choose).map(Ratio::new)
            };
            finding.range = of(f64::min).zip(of(f64::max));
        }
        if let Some((low, high)) = finding.interval {
            finding.outcome = finding.outcome_of(low, high);
            if finding.outcome != Outcome::NoDifference && is_by_chance(values) {
                finding.outcome = Outcome::NoDifference;
            }
            if finding.outcome == Outcome::NoDifference {
                let within = possible_difference((low, high), noise);
                finding.within = Some(within);
                if is_too_noisy(within) {
                    finding.outcome = Outcome::TooNoisy;
                }
            }
        }
        finding
    }

    fn outcome_of(&self, low: Ratio, high: Ratio) -> Outcome {
        let Self { metric, count, better, worse, .. } = *self;
        let (above, below) = (low > Ratio::ONE, high < Ratio::ONE);
        let (is_better, is_worse) = match metric {
            Metric::Qps => (above, below),
            Metric::Cpu => (below, above),
        };
        match (better, worse) {
            (0, 0) => Outcome::NoDifference,
            _ if is_better && 2 * better >= count => Outcome::Better,
            _ if is_worse && 2 * worse >= count => Outcome::Worse,
            _ => Outcome::Mixed,
        }
    }

    /// Whether a difference is as large in the control, or within its interval.
    pub(crate) const fn is_of_control(&self) -> bool {
        self.control.is_some() || self.control_interval.is_some()
    }

    /// Whether a difference is [of the control](Self::is_of_control) or of an equal candidate, or is in background work
    /// that reads do not cause.
    pub(crate) const fn may_be_noise(&self) -> bool {
        let is_of_background = self.reads && self.without_background.is_some();
        self.is_difference() && (self.is_of_control() || self.is_as_baseline || is_of_background)
    }

    /// The verdict that sets the colour: what may be noise has none.
    pub(crate) const fn verdict(&self) -> Verdict {
        match self.outcome {
            _ if self.may_be_noise() => Verdict::WithinNoise,
            Outcome::Better => Verdict::Better,
            Outcome::Worse => Verdict::Worse,
            Outcome::NoDifference | Outcome::Mixed => Verdict::WithinNoise,
            Outcome::TooNoisy => Verdict::TooNoisy,
            Outcome::NoInterval => Verdict::NoInterval,
            Outcome::TooFewBlocks => Verdict::Unknown,
            Outcome::ClientBound => Verdict::ClientBound,
            Outcome::Failed => Verdict::Failed,
        }
    }

    pub(crate) const fn is_difference(&self) -> bool {
        matches!(self.outcome, Outcome::Better | Outcome::Worse)
    }
}

/// Whether chance explains the members of a group that differ: of nine equal ones with 95% intervals, one
/// or two often do. It does not if more differ, or if one differs even with an interval that is widened for
/// as many comparisons as the group has members.
fn is_by_chance(values: &[GroupValue]) -> bool {
    let differs = |one: &&GroupValue| matches!(one.verdict, Verdict::Better | Verdict::Worse);
    let is_certain = |one: &GroupValue| {
        one.estimate.is_none_or(|estimate| !estimate.one_of(values.len()).contains_one())
    };
    values.len() > 1
        && !exceeds_chance(values.iter().filter(differs).count(), values.len())
        && !values.iter().filter(differs).any(is_certain)
}
