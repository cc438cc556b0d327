//! Key results: what the run found about each candidate and group, with the metric to trust.
//!
//! A ratio alone misleads: "1.033" reads as 3.3% more even if its interval reaches from 0.95 to 1.12.
//! A finding therefore says whether there is a difference, and how large a difference can be that was
//! not found.

use std::collections::BTreeMap;
use std::path::Path;

use dbdyno_stats::{
    differ_by_far, exceeds_chance, is_too_noisy, median, possible_difference, time_to_resolve,
};
use dbdyno_units::{Nanos, Ratio, Share, shell_quoted};
use serde::Serialize;

use crate::assemble::client_bound;
use crate::figures::{duration, percent, ratio, size_of};
use crate::metric::{Grouping, by_clients, clients, with_clients};
use crate::model::{
    Absolute, Estimate, Metric, MicrobenchmarkRows, Report, Role, Row, RunStatus, Verdict,
};

/// The key result of a candidate in one group, at one number of clients.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct KeyResult<'a> {
    pub(crate) candidate: &'a str,
    pub(crate) group: &'a str,
    pub(crate) clients: u32,
    /// By the metric to trust.
    #[serde(flatten)]
    pub(crate) finding: Finding,
    /// Throughput of the same microbenchmarks, if the metric to trust is another one.
    pub(crate) throughput: Option<Finding>,
    /// The additional time to find a smaller difference, where none was found.
    pub(crate) more_time: Option<MoreTime>,
}

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
    noise: Option<Share>,
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
    reads: bool,
    /// Whether the candidate is known to be as the baseline: all its settings have the baseline's values.
    #[serde(skip)]
    is_as_baseline: bool,
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

/// The key results of all candidates except the control: by candidate in the report's order, then
/// group and number of clients.
pub(crate) fn of(report: &Report, grouping: Grouping) -> Vec<KeyResult<'_>> {
    let mut results = Vec::new();
    for candidate in report.candidates.iter().filter(|one| one.role == Role::Candidate) {
        for (group, clients, members) in by_clients(&report.microbenchmarks, grouping) {
            let measured = members.into_iter().filter_map(|microbenchmark| {
                Some(Measured { microbenchmark, row: microbenchmark.row(&candidate.name)? })
            });
            let measured: Vec<Measured<'_>> = measured.collect();
            let place = (candidate.name.as_str(), group, clients);
            // A group of the experiment may have reads and writes.
            for metric in [Metric::Qps, Metric::Cpu] {
                results.extend(key_result(report, place, metric, &measured));
            }
        }
    }
    results
}

/// A candidate's row of a microbenchmark.
#[derive(Clone, Copy)]
pub(crate) struct Measured<'a> {
    pub(crate) microbenchmark: &'a MicrobenchmarkRows,
    pub(crate) row: &'a Row,
}

/// The result of the rows for which this metric is to be trusted; `None` if there are none.
fn key_result<'a>(
    report: &Report,
    (candidate, group, clients): (&'a str, &'a str, u32),
    metric: Metric,
    measured: &[Measured<'_>],
) -> Option<KeyResult<'a>> {
    let trusting = measured.iter().filter(|one| one.row.trusted_metric == metric);
    let members: Vec<Measured<'_>> = trusting.copied().collect();
    let first = members.first()?;
    let part = match members.len() {
        1 => first.microbenchmark.name.clone(),
        count => format!("{count} microbenchmarks"),
    };
    let part = (members.len() < measured.len()).then_some(part);
    let finding = |metric: Metric| {
        let finding = Finding::beside(&members, metric, report.noise_of(metric));
        let is_as_baseline = report.is_as_baseline(candidate);
        Finding { is_as_baseline, part: part.clone(), ..finding }
    };
    let throughput = (metric != Metric::Qps).then(|| finding(Metric::Qps));
    let finding = finding(metric);
    // An incomplete run is resumed first.
    let is_found = throughput.as_ref().is_some_and(Finding::is_difference);
    let can_continue = report.status == RunStatus::Complete && !report.is_imported() && !is_found;
    let more_time = if can_continue { MoreTime::of(report, &finding, &members) } else { None };
    Some(KeyResult { candidate, group, clients, finding, throughput, more_time })
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
    pub(crate) fn beside(members: &[Measured<'_>], metric: Metric, noise: Option<Share>) -> Self {
        let rows: Vec<&Row> = members.iter().map(|one| one.row).collect();
        let mut finding = Self::of(metric, &rows, noise);
        if finding.outcome == Outcome::Mixed && members.len() > 1 {
            let shown = members.iter().map(|Measured { microbenchmark, row }| {
                (*row, microbenchmark.shown_verdict(row, metric))
            });
            finding = Self::of_judged(metric, shown, noise);
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

/// Differences below this, in percent, are no reason to measure longer.
const SMALL: f64 = 0.5;

/// No difference above this, in percent, is worth a time of its own.
const LARGEST: f64 = 50.0;

/// The steps of differences within a power of ten.
const STEPS: [f64; 3] = [5.0, 2.0, 1.0];

/// More time than this is not suggested.
const LONGEST: Nanos = Nanos::from_secs(24 * 3600);

/// The additional time to resolve a difference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct MoreTime {
    pub(crate) difference: Share,
    /// The expected time, of the whole run.
    pub(crate) time: Nanos,
}

impl MoreTime {
    /// `None` if a difference was found, the interval is narrow, the noise floor and not the
    /// interval is the limit, or the time cannot be known or is too long.
    fn of(report: &Report, finding: &Finding, members: &[Measured<'_>]) -> Option<Self> {
        let difference = smaller(finding.within?)?;
        let noise = report.noise_of(finding.metric);
        if noise.is_some_and(|noise| noise >= difference) {
            return None;
        }
        let mut time = Nanos::ZERO;
        for Measured { microbenchmark, row } in members {
            let estimate = row.estimate(finding.metric)?;
            time += time_to_resolve(&estimate, difference, microbenchmark.measuring_time)?;
        }
        let time = whole_units(time);
        (time > Nanos::ZERO && time <= LONGEST).then_some(Self { difference, time })
    }

    /// `to resolve 2%, 14 more minutes`.
    pub(crate) fn words(&self) -> String {
        let seconds = self.time.as_secs_f64() as u64;
        let time = match seconds {
            1 => "1 more second".to_owned(),
            _ if !seconds.is_multiple_of(60) => format!("{seconds} more seconds"),
            60 => "1 more minute".to_owned(),
            _ if seconds < 2 * 3600 => format!("{} more minutes", seconds / 60),
            _ => format!("{:.1} more hours", seconds as f64 / 3600.0),
        };
        format!("to resolve {}, {time}", percent(self.difference))
    }
}

/// The largest of 1%, 2%, 5%, 0.1% and so on that is at most half of `within`; `None` if `within` is
/// small.
fn smaller(within: Share) -> Option<Share> {
    let half = (within.as_percent() / 2.0).min(LARGEST);
    if within.as_percent() <= SMALL || !within.as_fraction().is_finite() {
        return None;
    }
    let power = 10_f64.powf(half.log10().floor());
    let step = STEPS.into_iter().map(|step| step * power).find(|step| *step <= half)?;
    Some(Share::from_percent(step))
}

/// The command that measures longer by the time of all these results; `None` if there is none. All
/// candidates are measured in the same time, so the longest of each group counts.
pub(crate) fn command(directory: &Path, results: &[KeyResult<'_>]) -> Option<String> {
    let mut longest: BTreeMap<(&str, u32, &str), Nanos> = BTreeMap::new();
    for result in results {
        if let Some(more) = result.more_time {
            let group = (result.group, result.clients, result.finding.metric.name());
            let time = longest.entry(group).or_insert(Nanos::ZERO);
            *time = more.time.max(*time);
        }
    }
    let total: Nanos = longest.into_values().sum();
    let directory = shell_quoted(&directory.to_string_lossy());
    let more = argument(total);
    (total > Nanos::ZERO).then(|| format!("dbdyno run --resume {directory} --more {more}"))
}

/// A time as a value of `--more`: whole minutes, or seconds of a short one.
fn argument(time: Nanos) -> String {
    let seconds = whole_units(time).as_secs_f64() as u64;
    match seconds.is_multiple_of(60) {
        true => format!("{}min", seconds / 60),
        false => format!("{seconds}s"),
    }
}

/// The time rounded up to minutes, or to seconds if it is short.
fn whole_units(time: Nanos) -> Nanos {
    let unit: u32 = if time > Nanos::from_secs(90) { 60 } else { 1 };
    Nanos::from_secs((time.as_secs_f64() / f64::from(unit)).ceil() as u64 * u64::from(unit))
}

impl<'a> KeyResult<'a> {
    /// The results of its microbenchmarks if they are few and unlike; otherwise itself.
    fn apart(self, report: &'a Report, grouping: Grouping) -> Vec<Self> {
        let is_unlike = |one: &Finding| one.range.is_some();
        let is_apart = is_unlike(&self.finding) || self.throughput.as_ref().is_some_and(is_unlike);
        if !is_apart || self.finding.count > MOST_OF_GROUP {
            return vec![self];
        }
        let (place, metric) = ((self.candidate, self.group, self.clients), self.finding.metric);
        let all = by_clients(&report.microbenchmarks, grouping).into_iter();
        let own = all.filter(|(group, clients, _)| (*group, *clients) == (place.1, place.2));
        let result = |microbenchmark: &MicrobenchmarkRows| {
            let row = microbenchmark.row(place.0)?;
            let mut one = key_result(report, place, metric, &[Measured { microbenchmark, row }])?;
            one.finding.part = Some(microbenchmark.name.clone());
            Some(one)
        };
        own.flat_map(|(.., members)| members).filter_map(result).collect()
    }

    /// The findings in the order in which they are shown: by the metric to trust first, unless only
    /// throughput differs with certainty.
    pub(crate) fn findings(&self) -> Vec<&Finding> {
        let mut findings: Vec<&Finding> =
            [Some(&self.finding), self.throughput.as_ref()].into_iter().flatten().collect();
        findings.sort_by_key(|finding| !(finding.is_difference() || self.finding.is_difference()));
        findings
    }
}

impl Finding {
    pub(crate) const fn is_difference(&self) -> bool {
        matches!(self.outcome, Outcome::Better | Outcome::Worse)
    }

    /// `2.1% more QPS (1.8% to 2.5%)`, `CPU per query: no difference found (within 8.8%)`; of a part of the
    /// group with its name.
    pub(crate) fn words(&self) -> String {
        let words = self.words_alone();
        match &self.part {
            Some(part) => format!("{part}: {words}"),
            None => words,
        }
    }

    /// The same without the part.
    fn words_alone(&self) -> String {
        let what = self.metric.quantity();
        match self.outcome {
            Outcome::Better | Outcome::Worse => {
                let size = match self.without_background.as_deref().filter(|_| self.reads) {
                    Some(without) => {
                        format!("{}; with it {}", without.of_slices(true), self.size())
                    }
                    None => self.size(),
                };
                format!("{size}{}{}", self.exceptions(), self.caution())
            }
            Outcome::NoDifference => {
                let within = self.within.map_or_else(String::new, percent);
                let rest = self.by_chance() + &self.unknown();
                format!("{what}: no difference found (within {within}){rest}")
            }
            Outcome::TooNoisy => {
                let noisy = format!("too noisy to tell{}", self.possible());
                match self.without_background.as_deref() {
                    Some(without) if without.outcome == Outcome::TooNoisy => {
                        format!("{what}: {noisy}, also without background work")
                    }
                    Some(without) if self.reads => {
                        format!("{}; with it {noisy}", without.of_slices(true))
                    }
                    _ => format!("{what}: {noisy}{}", self.background()),
                }
            }
            Outcome::Mixed => match self.range {
                Some(range) => format!("{}; {}", self.depends(range, false), self.tally()),
                None => {
                    let ratio = self.ratio.filter(|ratio| size_of(*ratio) != size_of(Ratio::ONE));
                    let median = ratio
                        .map(|ratio| format!(" (median {})", change(ratio)))
                        .unwrap_or_default();
                    format!("{what}: {}{median}{}", self.tally(), self.equality())
                }
            },
            Outcome::NoInterval => {
                let median = self.ratio.map_or_else(String::new, ratio);
                let value = match self.range {
                    Some((least, most)) => format!(
                        "{} to {} times the baseline's, depending on the microbenchmark (median \
                         {median})",
                        ratio(least),
                        ratio(most)
                    ),
                    None => format!("{median} of the baseline's"),
                };
                format!("{what}: {value}, too few values for an interval")
            }
            Outcome::ClientBound => format!("{what}: client-bound, limited by the load generator"),
            Outcome::Failed => format!("{what}: failed"),
            Outcome::TooFewBlocks => format!("{what}: too few blocks"),
        }
    }

    /// `; 1 of 9 faster, which may be chance`, if there is no other difference.
    fn by_chance(&self) -> String {
        match self.better + self.worse {
            0 => String::new(),
            _ => format!("; {}, which may be chance", self.differing()),
        }
    }

    /// `; 1 of 3 too noisy to tell`
    fn unknown(&self) -> String {
        match self.too_noisy {
            0 => String::new(),
            some => format!("; {some} of {} too noisy to tell", self.count),
        }
    }

    /// That the control, which is equal to the baseline, differs in the same way or may do so, or that the difference is in
    /// work between the slices.
    fn caution(&self) -> String {
        let control = match (self.control, self.noisy_control()) {
            (Some(control), _) => {
                let difference = size_of(control);
                let word = if control > Ratio::ONE { "more" } else { "less" };
                format!("; may be noise, as the control has {difference} {word}")
            }
            (None, Some(noisy)) => format!("; may be noise, as {noisy}"),
            (None, None) => String::new(),
        };
        let background = if self.reads { String::new() } else { self.background() };
        control + self.equality() + &background
    }

    /// [`control_interval`](Self::control_interval) in words, unless the control has the same difference.
    pub(crate) fn noisy_control(&self) -> Option<String> {
        let (low, high) = self.control_interval.filter(|_| self.control.is_none())?;
        Some(format!("the control is too noisy to tell ({} to {})", change(low), change(high)))
    }

    const fn equality(&self) -> &'static str {
        match self.is_as_baseline {
            true => "; may be noise, as all its settings have the baseline's values",
            false => "",
        }
    }

    fn background(&self) -> String {
        let without = self.without_background.as_deref();
        without.map_or_else(String::new, |without| format!("; {}", without.of_slices(false)))
    }

    /// A finding without background work: `3% less CPU per query (2% to 4%) without background work`. What is no
    /// difference has the quantity before it only if it comes first.
    fn of_slices(&self, is_first: bool) -> String {
        let what = self.metric.quantity();
        let what = if is_first { format!("{what}: ") } else { String::new() };
        match self.outcome {
            Outcome::Better | Outcome::Worse => {
                format!("{} without background work{}", self.size(), self.exceptions())
            }
            Outcome::NoDifference => {
                let within = self.within.map_or_else(String::new, percent);
                format!("{what}no certain difference without background work (within {within})")
            }
            Outcome::TooNoisy => {
                format!("{what}too noisy to tell without background work{}", self.possible())
            }
            _ => format!("{} without background work", self.words_alone()),
        }
    }

    /// ` (45% less to 97% more)`: the differences that the interval and the noise floor permit.
    fn possible(&self) -> String {
        let Some((low, high)) = self.interval else { return String::new() };
        let noise = self.noise.map_or(0.0, Share::as_fraction);
        let low = Ratio::new(low.get().min(1.0 - noise.min(1.0)));
        let high = Ratio::new(high.get().max(1.0 + noise));
        format!(" ({} to {})", change(low), change(high))
    }

    /// `15% to 30% less QPS, depending on the microbenchmark (median 24%)`.
    fn depends(&self, (least, most): (Ratio, Ratio), with_median: bool) -> String {
        let what = self.metric.quantity();
        let same_side = least >= Ratio::ONE || most <= Ratio::ONE;
        let (sizes, median) = if same_side {
            let ratio = self.ratio.unwrap_or(least);
            let ([low, high, median], word) =
                in_words(most, [least, most], (ratio, ratio), QUANTITY);
            (format!("{low} to {high} {word} {what}"), median)
        } else {
            let median = self.ratio.map_or_else(String::new, change);
            (format!("{what}: {} to {}", change(least), change(most)), median)
        };
        let median = if with_median { format!(" (median {median})") } else { String::new() };
        format!("{sizes}, {DEPENDING}{median}")
    }

    /// `2.1% more QPS (1.8% to 2.5%)`; from twice the baseline's `2.31 times the QPS (2.20 to 2.40)`.
    fn size(&self) -> String {
        let what = self.metric.quantity();
        let (Some(middle), Some((low, high))) = (self.ratio, self.interval) else {
            return what.to_owned();
        };
        if let Some(range) = self.range {
            return self.depends(range, true);
        }
        sized(middle, Some((low, high)), what)
    }

    /// Microbenchmarks that do not have the difference of their group.
    fn exceptions(&self) -> String {
        let all = self.better == self.count || self.worse == self.count;
        if all { String::new() } else { format!("; {}", self.tally()) }
    }

    /// `6 of 9 faster, 1 slower`.
    fn differing(&self) -> String {
        let (better, worse) = match self.metric {
            Metric::Qps => ("faster", "slower"),
            Metric::Cpu => ("with less", "with more"),
        };
        let count = self.count;
        match (self.better, self.worse) {
            (some, 0) => format!("{some} of {count} {better}"),
            (0, some) => format!("{some} of {count} {worse}"),
            (some, other) => format!("{some} of {count} {better}, {other} {worse}"),
        }
    }

    /// The same with the others: `1 of 3 faster, 1 too noisy to tell, no difference in the others`.
    fn tally(&self) -> String {
        let Self { count, better, worse, too_noisy, .. } = *self;
        let noisy = match too_noisy {
            0 => String::new(),
            some => format!(", {some} too noisy to tell"),
        };
        let has_both = better.min(worse) > 0;
        let others = match count.saturating_sub(better + worse + too_noisy) {
            rest if has_both || rest == 0 => "",
            1 => ", no difference in the other",
            _ => ", no difference in the others",
        };
        format!("{}{noisy}{others}", self.differing())
    }
}

/// That the median of a group is not the result of its microbenchmarks.
const DEPENDING: &str = "depending on the microbenchmark";

/// A ratio as a change: `5.5% less`, `12% more`, `7.14 times`.
pub(crate) fn change(ratio: Ratio) -> String {
    match ratio.get() {
        value if value >= 2.0 => format!("{value:.2} times"),
        value if value < 1.0 => format!("{} less", size_of(ratio)),
        _ => format!("{} more", size_of(ratio)),
    }
}

/// A difference with its interval, if that is known: `2.1% more QPS (1.8% to 2.5%)`; from twice the
/// baseline's `2.31 times the QPS (2.20 to 2.40)`.
pub(crate) fn sized(ratio: Ratio, interval: Option<(Ratio, Ratio)>, what: &str) -> String {
    let ([middle], word) = in_words(ratio, [ratio], (ratio, ratio), QUANTITY);
    let interval = interval.map(|interval| format!(" ({})", ends_in_words(ratio, interval)));
    format!("{middle} {word} {what}{}", interval.unwrap_or_default())
}

/// The ends of a difference's interval, the one nearer to 1 first: `1.8% to 2.5%`.
pub(crate) fn ends_in_words(ratio: Ratio, interval: (Ratio, Ratio)) -> String {
    let ([_, least, most], _) = in_words(ratio, [ratio], interval, QUANTITY);
    format!("{least} to {most}")
}

/// Words for more, for less, and for a multiple.
const QUANTITY: [&str; 3] = ["more", "less", "times the"];

/// Ratios as changes in percent, or as multiples if the greatest is at least 2, then the ends of their
/// interval, the one nearer to 1 first; and the word for it.
fn in_words<const N: usize, const M: usize>(
    greatest: Ratio,
    mut ratios: [Ratio; N],
    (low, high): (Ratio, Ratio),
    [more, less, times]: [&'static str; 3],
) -> ([String; M], &'static str) {
    let mut ends = [low, high];
    let is_more = ratios.last().is_some_and(|last| *last > Ratio::ONE);
    if !is_more {
        ratios.reverse();
        ends.reverse();
    }
    let is_multiple = greatest.get() >= 2.0;
    let write = |at: usize| {
        let ratio = *ratios.iter().chain(&ends).nth(at).unwrap_or(&Ratio::ONE);
        if is_multiple { format!("{:.2}", ratio.get()) } else { size_of(ratio) }
    };
    let word = match (is_multiple, is_more) {
        (true, _) => times,
        (false, true) => more,
        (false, false) => less,
    };
    (std::array::from_fn(write), word)
}

/// Neighbouring numbers of clients of one candidate and group.
pub(crate) struct Steps<'r, 'a>(&'r [KeyResult<'a>]);

/// The results of one candidate and group, as few steps as they allow.
pub(crate) fn steps<'r, 'a>(
    results: &'r [KeyResult<'a>],
) -> impl Iterator<Item = Steps<'r, 'a>> + use<'r, 'a> {
    let finding = |result: &KeyResult<'_>| -> Vec<_> {
        result.findings().iter().map(|one| (one.metric, one.outcome)).collect()
    };
    // Tallies of microbenchmarks cannot be joined, nor what holds only for some of the steps.
    let can_be_joined = |result: &KeyResult<'_>| {
        let joined = |one: &&Finding| {
            !matches!(one.outcome, Outcome::Mixed | Outcome::NoInterval)
                && (one.is_difference() || one.better + one.worse == 0)
                && !one.is_of_control()
                && one.without_background.is_none()
                && one.range.is_none()
                && one.part.is_none()
        };
        result.findings().iter().all(joined)
    };
    results
        .chunk_by(move |a, b| can_be_joined(a) && can_be_joined(b) && finding(a) == finding(b))
        .map(Steps)
}

impl Steps<'_, '_> {
    /// `4 to 16 clients`
    pub(crate) fn clients(&self) -> String {
        let (first, last) = (self.0[0].clients, self.0[self.0.len() - 1].clients);
        if first == last { clients(first) } else { format!("{first} to {}", clients(last)) }
    }

    /// The findings in words, the one to trust first, with the verdict that sets the colour.
    pub(crate) fn findings(&self) -> Vec<(String, Verdict)> {
        let of_each: Vec<Vec<&Finding>> = self.0.iter().map(KeyResult::findings).collect();
        (0..of_each[0].len())
            .map(|at| {
                let findings: Vec<&Finding> = of_each.iter().map(|of_one| of_one[at]).collect();
                (joined(&findings), findings[0].verdict())
            })
            .collect()
    }
}

/// Findings with the same outcome in words: `3.1% to 5.4% more QPS (2.0% to 6.1%)`, where the intervals
/// are within the parentheses.
fn joined(findings: &[&Finding]) -> String {
    let [first, _, ..] = findings else { return findings[0].words() };
    let what = first.metric.quantity();
    let low = ends(findings, |one| Some(one.interval?.0), f64::min);
    let high = ends(findings, |one| Some(one.interval?.1), f64::max);
    match first.outcome {
        Outcome::NoDifference | Outcome::TooNoisy => {
            let within = findings.iter().filter_map(|one| Some(one.within?.as_fraction()));
            let within = within.reduce(f64::max).map(Share::from_fraction);
            let too_noisy = findings.iter().map(|one| one.too_noisy).max().unwrap_or(0);
            let interval = low.zip(high);
            Finding { within, interval, too_noisy, ..(*first).clone() }.words()
        }
        Outcome::Better | Outcome::Worse => {
            let least = ends(findings, |one| one.ratio, f64::min);
            let most = ends(findings, |one| one.ratio, f64::max);
            let (Some(least), Some(most), Some(low), Some(high)) = (least, most, low, high) else {
                return first.words();
            };
            let ([least, most, low, high], word) =
                in_words(most, [least, most], (low, high), QUANTITY);
            format!("{least} to {most} {word} {what} ({low} to {high})")
        }
        _ => first.words(),
    }
}

/// The least or greatest of a ratio of several findings.
fn ends(
    findings: &[&Finding],
    of: fn(&Finding) -> Option<Ratio>,
    choose: fn(f64, f64) -> f64,
) -> Option<Ratio> {
    findings.iter().filter_map(|one| of(one)).map(Ratio::get).reduce(choose).map(Ratio::new)
}

/// A sentence for each candidate and group, such as `myrocks is 24% slower than innodb on point-1
/// (95%: 22% to 26%)`, with the verdict that sets its colour. A group of one microbenchmark is named
/// after it. Of a baseline alone, its figures on each microbenchmark. Empty if nothing was measured.
pub(crate) fn conclusions(report: &Report, grouping: Grouping) -> Vec<(String, Verdict)> {
    if report.is_alone() {
        return report.microbenchmarks.iter().filter_map(|one| alone(report, one)).collect();
    }
    concluded(report, &of(report, grouping), grouping)
}

/// The same with each microbenchmark of small groups of unlike ones, whose range describes none of them; unless that
/// makes too many sentences.
pub(crate) fn conclusions_of_each(report: &Report, grouping: Grouping) -> Vec<(String, Verdict)> {
    let groups = of(report, grouping).into_iter();
    let results: Vec<KeyResult<'_>> =
        groups.flat_map(|group| group.apart(report, grouping)).collect();
    match report.is_alone() || results.len() > MOST_APART {
        true => conclusions(report, grouping),
        false => concluded(report, &results, grouping),
    }
}

/// Most sentences of an answer with each microbenchmark, and most microbenchmarks of a group in it.
const MOST_APART: usize = 6;
const MOST_OF_GROUP: usize = 4;

fn concluded(
    report: &Report,
    results: &[KeyResult<'_>],
    grouping: Grouping,
) -> Vec<(String, Verdict)> {
    let verdict = |result: &KeyResult<'_>| result.findings()[0].verdict();
    results.iter().map(|result| (sentence(report, result, grouping), verdict(result))).collect()
}

/// `db1 on q-1: 1,234 QPS (95%: 1,220 to 1,250), 85.2 µs CPU time per query`, or that it failed; `None` if it has no
/// throughput.
fn alone(report: &Report, member: &MicrobenchmarkRows) -> Option<(String, Verdict)> {
    let on = with_clients(&member.name, member.clients, report.is_sweep());
    let on = format!("{} on {on}", report.baseline);
    if member.baseline_failed {
        return Some((format!("{on}: failed"), Verdict::Failed));
    }
    let Absolute { qps, qps_interval, cpu_us_per_query, .. } = member.baseline;
    let unit = match member.throughput_unit.as_str() {
        "statements/s" => Metric::Qps.quantity(),
        unit => unit,
    };
    let interval = qps_interval.map(|(low, high)| format!(" (95%: {low} to {high})"));
    let cpu = cpu_us_per_query.map(|cpu| format!(", {} CPU time per query", duration(cpu)));
    let [interval, cpu] = [interval, cpu].map(Option::unwrap_or_default);
    let bound = if client_bound(&member.baseline) { "; limited by the load generator" } else { "" };
    Some((format!("{on}: {} {unit}{interval}{cpu}{bound}", qps?), Verdict::NoInterval))
}

/// The group of user-defined microbenchmarks that name none.
const OWN: &str = "own";

fn sentence(report: &Report, result: &KeyResult<'_>, grouping: Grouping) -> String {
    let group = if result.group == OWN { "the user-defined microbenchmarks" } else { result.group };
    let mut on = match (microbenchmark(report, result, grouping), &result.finding.part) {
        (Some(name), _) => name.to_owned(),
        (None, Some(part)) => format!("{part} of {group}"),
        (None, None) => match report.part_of(result.group) {
            Some((measured, all)) => format!("{measured} of {all} of {group}"),
            None => group.to_owned(),
        },
    };
    if report.is_sweep() {
        on = format!("{on} with {}", clients(result.clients));
    }
    let throughput = result.throughput.as_ref().unwrap_or(&result.finding);
    let (metric, outcome) = (result.finding.metric, result.finding.outcome);
    if throughput.outcome == Outcome::TooNoisy
        && metric == Metric::Cpu
        && matches!(outcome, Outcome::Better | Outcome::Worse | Outcome::NoDifference)
    {
        // What is known comes first.
        let [known, unknown] = [&result.finding, throughput].map(Finding::words_alone);
        return format!(
            "{} on {on} against {}: {known}; {unknown}",
            result.candidate, report.baseline
        );
    }
    let mut sentence = throughput.sentence(result.candidate, &report.baseline, &on);
    if result.finding.metric == Metric::Cpu {
        sentence.push_str(&format!("; {}", result.finding.words_alone()));
    }
    sentence
}

/// The name of the only microbenchmark of a result.
fn microbenchmark<'a>(
    report: &'a Report,
    result: &KeyResult<'_>,
    grouping: Grouping,
) -> Option<&'a str> {
    let mut members = report.microbenchmarks.iter().filter(|one| {
        let row = one.row(result.candidate);
        (grouping.of(one), one.clients) == (result.group, result.clients)
            && row.is_some_and(|row| row.trusted_metric == result.finding.metric)
    });
    let only = members.next()?;
    members.next().is_none().then_some(only.name.as_str())
}

impl Finding {
    /// The finding about throughput, without a full stop.
    fn sentence(&self, candidate: &str, baseline: &str, on: &str) -> String {
        match self.outcome {
            Outcome::Better | Outcome::Worse => {
                let (Some(ratio), Some((low, high))) = (self.ratio, self.interval) else {
                    return format!("{candidate} on {on}: {}", self.words_alone());
                };
                let remarks = format!("{}{}", self.exceptions(), self.caution());
                let speed = ["faster than", "slower than", "times as fast as"];
                if let Some((least, most)) = self.range {
                    if least < Ratio::ONE && most > Ratio::ONE {
                        return format!("{candidate} on {on}: {}", self.words_alone());
                    }
                    let ([least, most, median], word) =
                        in_words(most, [least, most], (ratio, ratio), speed);
                    return format!(
                        "{candidate} is {least} to {most} {word} {baseline} on {on}, {DEPENDING} \
                         (median {median}){remarks}"
                    );
                }
                let ([size, low, high], word) = in_words(ratio, [ratio], (low, high), speed);
                format!(
                    "{candidate} is {size} {word} {baseline} on {on} (95%: {low} to {high}){remarks}"
                )
            }
            Outcome::NoDifference => {
                let within = self.within.map_or_else(String::new, percent);
                format!(
                    "no difference found between {candidate} and {baseline} on {on} (95%: within \
                     {within}){}{}",
                    self.by_chance(),
                    self.unknown()
                )
            }
            Outcome::TooNoisy => format!(
                "too noisy to tell whether {candidate} or {baseline} is faster on {on}: QPS{}",
                self.possible()
            ),
            _ => format!("{candidate} on {on}: {}", self.words_alone()),
        }
    }
}

#[cfg(test)]
mod tests;
