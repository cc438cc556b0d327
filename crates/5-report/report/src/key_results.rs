//! Key results: what the run found about each candidate and group, with the metric to trust.
//!
//! A ratio alone misleads: "1.033" reads as 3.3% more even if its interval reaches from 0.95 to 1.12.
//! A finding therefore says whether there is a difference, and how large a difference can be that was
//! not found.

mod conclusions;
mod more_time;
mod steps;
mod words;

use std::collections::BTreeSet;

use dbdyno_stats::median;
use dbdyno_units::{Ratio, Share};
use serde::Serialize;

pub use conclusions::conclusions;
pub(crate) use more_time::{MoreTime, command};
pub(crate) use steps::steps;

use crate::metric::{Grouping, Metric};
use crate::model::{Estimate, MicrobenchmarkRows, Report, Role, Row, RunStatus, Verdict};

/// The key result of a candidate in one group, at one number of clients.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct KeyResult<'a> {
    pub(crate) candidate: &'a str,
    pub(crate) group: &'a str,
    /// Number of clients.
    pub(crate) clients: u32,
    /// By the metric to trust.
    #[serde(flatten)]
    pub(crate) finding: Finding,
    /// Throughput of the same microbenchmarks, if the metric to trust is another one.
    pub(crate) throughput: Option<Finding>,
    /// The additional time to find a smaller difference, where none was found.
    pub(crate) more_time: Option<MoreTime>,
}

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
    /// If no difference was found: the largest difference from 1 that the interval and the noise
    /// floor permit.
    pub(crate) within: Option<Share>,
    /// The control's median ratio in the same microbenchmarks, if its interval excludes 1 on the same
    /// side and it is at least half as far from 1 on a logarithmic scale: then the candidate's
    /// difference may be noise.
    pub(crate) control: Option<Ratio>,
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

/// The outcome of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    /// More throughput or less CPU than the baseline: in at least half of the microbenchmarks, and
    /// the interval excludes 1.
    Better,
    /// Less throughput or more CPU, in the same way.
    Worse,
    /// No microbenchmark differs from the baseline.
    NoDifference,
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
        for (group, members) in grouping.groups(&report.microbenchmarks) {
            let steps: BTreeSet<u32> = members.iter().map(|(_, member)| member.clients).collect();
            for clients in steps {
                let at = members.iter().map(|(_, member)| *member);
                let at: Vec<Measured<'_>> = at
                    .filter(|member| member.clients == clients)
                    .filter_map(|member| Measured::of(member, &candidate.name))
                    .collect();
                let place = (candidate.name.as_str(), group, clients);
                // A group of the experiment may have reads and writes.
                for metric in [Metric::Qps, Metric::Cpu] {
                    results.extend(key_result(report, place, metric, &at));
                }
            }
        }
    }
    results
}

/// A candidate's row of a microbenchmark.
struct Measured<'a> {
    microbenchmark: &'a MicrobenchmarkRows,
    row: &'a Row,
}

impl<'a> Measured<'a> {
    fn of(microbenchmark: &'a MicrobenchmarkRows, candidate: &str) -> Option<Self> {
        let row = microbenchmark.rows.iter().find(|row| row.candidate == candidate)?;
        Some(Self { microbenchmark, row })
    }
}

/// The result of the rows for which this metric is to be trusted; `None` if there are none.
fn key_result<'a>(
    report: &Report,
    (candidate, group, clients): (&'a str, &'a str, u32),
    metric: Metric,
    measured: &[Measured<'_>],
) -> Option<KeyResult<'a>> {
    let trusting = || measured.iter().filter(|one| one.row.trusted_metric == metric);
    let rows: Vec<&Row> = trusting().map(|one| one.row).collect();
    if rows.is_empty() {
        return None;
    }
    let controls: Vec<&Row> =
        trusting().filter_map(|one| control(report, one.microbenchmark)).collect();
    let names: Vec<&str> = trusting().map(|one| one.microbenchmark.name.as_str()).collect();
    let part = (names.len() < measured.len()).then(|| part(&names));
    let finding = |metric: Metric| {
        let finding = Finding::of(metric, &rows, metric.noise(report));
        let control = Finding::of(metric, &controls, None);
        Finding { control: finding.like(&control), part: part.clone(), ..finding }
    };
    let throughput = (metric != Metric::Qps).then(|| finding(Metric::Qps));
    let finding = finding(metric);
    // An incomplete run is resumed first.
    let is_found = throughput.as_ref().is_some_and(Finding::is_difference);
    let can_continue = report.status == RunStatus::Complete && !report.is_imported() && !is_found;
    let more_time = can_continue
        .then(|| {
            let spent = trusting().map(|one| (one.row, one.microbenchmark.measuring_time));
            MoreTime::of(report, &finding, spent)
        })
        .flatten();
    Some(KeyResult { candidate, group, clients, finding, throughput, more_time })
}

/// The control's row of a microbenchmark.
fn control<'a>(report: &Report, microbenchmark: &'a MicrobenchmarkRows) -> Option<&'a Row> {
    let control = report.candidates.iter().find(|one| one.role == Role::Control)?;
    microbenchmark.rows.iter().find(|row| row.candidate == control.name)
}

/// Some microbenchmarks of a group, in words.
fn part(names: &[&str]) -> String {
    match names {
        [name] => (*name).to_owned(),
        _ => format!("{} microbenchmarks", names.len()),
    }
}

impl Finding {
    /// The control's ratio if it differs from 1 in the same way, see [`Finding::control`].
    fn like(&self, control: &Self) -> Option<Ratio> {
        let (own, ratio, (low, high)) = (self.ratio?, control.ratio?, control.interval?);
        let same_side = match own > Ratio::ONE {
            true => low > Ratio::ONE,
            false => high < Ratio::ONE,
        };
        let distance = |ratio: Ratio| ratio.get().ln().abs();
        let is_like = same_side && distance(ratio) >= 0.5 * distance(own);
        (self.is_difference() && is_like).then_some(ratio)
    }

    pub(crate) fn of(metric: Metric, rows: &[&Row], noise: Option<Share>) -> Self {
        let value = |row: &&Row| {
            let (estimate, verdict) = (metric.estimate(row), metric.verdict(row));
            Some(GroupValue { ratio: metric.counted(row)?, estimate, verdict })
        };
        let values: Vec<GroupValue> = rows.iter().filter_map(value).collect();
        let mut finding = Self::of_values(metric, &values, noise);
        if let (Some(row), true) = (rows.first(), values.is_empty()) {
            finding.outcome = match metric.verdict(row) {
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
            within: None,
            control: None,
            part: None,
        };
        if let Some((low, high)) = finding.interval {
            finding.outcome = finding.outcome_of(low, high);
            let noise = noise.map_or(0.0, Share::as_fraction);
            let within = low.distance().max(high.distance()).max(noise);
            finding.within =
                (finding.outcome == Outcome::NoDifference).then(|| Share::from_fraction(within));
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

    /// The verdict that sets the colour.
    pub(crate) const fn verdict(&self) -> Verdict {
        match self.outcome {
            Outcome::Better => Verdict::Better,
            Outcome::Worse => Verdict::Worse,
            Outcome::NoDifference | Outcome::Mixed => Verdict::WithinNoise,
            Outcome::NoInterval => Verdict::NoInterval,
            Outcome::TooFewBlocks => Verdict::Unknown,
            Outcome::ClientBound => Verdict::ClientBound,
            Outcome::Failed => Verdict::Failed,
        }
    }
}

#[cfg(test)]
mod tests;
