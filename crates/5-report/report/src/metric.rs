//! The two metrics, relative QPS and relative CPU per query, formatted in the same way.
//!
//! The model contains the verdicts of both and the summaries of QPS; the summaries of CPU are
//! calculated here with the same definitions, so that every table and chart can show either metric.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use dbdyno_stats::{Direction, Side, Summary};
use dbdyno_types::Work;
use dbdyno_units::{Ratio, Share};
use serde::Serialize;

use crate::key_results::Finding;
use crate::model::{
    CandidateRecord, CounterFigure, CounterSummary, Estimate, GroupSummary, Lost,
    MicrobenchmarkRows, Report, Role, Row, Verdict,
};

/// A metric of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Throughput: above 1 is better.
    Qps,
    /// CPU time per query: below 1 is better.
    Cpu,
}

impl Metric {
    pub(crate) fn estimate(self, row: &Row) -> Option<Estimate> {
        match self {
            Self::Qps => row.relative_qps,
            Self::Cpu => row.relative_cpu,
        }
    }

    /// The name in headings.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Qps => "relative QPS",
            Self::Cpu => "relative CPU per query",
        }
    }

    /// Whether more or less is better.
    pub(crate) const fn better(self) -> &'static str {
        match self {
            Self::Qps => "above 1 is better",
            Self::Cpu => "below 1 is better",
        }
    }

    /// The ratio, with or without an interval.
    pub(crate) fn ratio(self, row: &Row) -> Option<Ratio> {
        let alone = match self {
            Self::Qps => row.single,
            Self::Cpu => None,
        };
        self.estimate(row).map(|estimate| estimate.median).or(alone)
    }

    /// The ratio if it is usable for summaries.
    pub(crate) fn counted(self, row: &Row) -> Option<Ratio> {
        let verdict = self.verdict(row);
        let counts = !matches!(verdict, Verdict::Failed | Verdict::ClientBound);
        self.ratio(row).filter(|_| counts)
    }

    /// Whether the report has values of it.
    pub(crate) fn is_known(self, report: &Report) -> bool {
        let mut rows = report.microbenchmarks.iter();
        self == Self::Qps || rows.any(|m| m.baseline.cpu_us_per_query.is_some())
    }

    /// Whether it was measured for this candidate: the CPU time of a server on another machine is
    /// unknown.
    pub(crate) const fn is_measured(self, row: &Row) -> bool {
        match self {
            Self::Qps => true,
            Self::Cpu => row.absolute.cpu_us_per_query.is_some(),
        }
    }

    const fn direction(self) -> Direction {
        match self {
            Self::Qps => Direction::MoreIsBetter,
            Self::Cpu => Direction::LessIsBetter,
        }
    }

    /// Better or worse than 1 if the distance exceeds the noise.
    pub(crate) fn verdict_of(self, ratio: Ratio, noise: Option<Share>) -> Verdict {
        self.direction().verdict(Side::beyond(ratio, noise)).into()
    }

    /// The verdict on an estimate with this noise floor; `None` for a run without a control.
    pub(crate) fn verdict_of_estimate(self, estimate: &Estimate, floor: Option<Share>) -> Verdict {
        self.direction().verdict(estimate.difference(floor)).into()
    }

    /// The verdict on a row.
    pub(crate) const fn verdict(self, row: &Row) -> Verdict {
        match self {
            Self::Qps => row.verdict,
            Self::Cpu => row.cpu_verdict,
        }
    }

    /// The metric to trust for this work.
    pub(crate) const fn trusted(work: Work, cpu_is_known: bool) -> Self {
        if work.trusts_cpu() && cpu_is_known { Self::Cpu } else { Self::Qps }
    }

    /// The metric to trust in most rows.
    pub(crate) fn leading(report: &Report) -> Self {
        let rows = || report.microbenchmarks.iter().flat_map(|one| &one.rows);
        let cpu = rows().filter(|row| row.trusted_metric == Self::Cpu).count();
        if 2 * cpu > rows().count() { Self::Cpu } else { Self::Qps }
    }

    /// The name in exports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Qps => "qps",
            Self::Cpu => "cpu",
        }
    }

    /// The text for a verdict.
    pub(crate) const fn word(self, verdict: Verdict) -> &'static str {
        match (self, verdict) {
            (Self::Cpu, Verdict::Better) => "less CPU",
            (Self::Cpu, Verdict::Worse) => "more CPU",
            _ => verdict.name(),
        }
    }

    /// The verdict of a group's median: that of its finding, as in the key results. A median of noise is
    /// noise.
    pub(crate) fn verdict_of_group(self, report: &Report, summary: &GroupSummary) -> Verdict {
        let members = report.microbenchmarks.iter().filter(|microbenchmark| {
            microbenchmark.clients == summary.clients
                && [&microbenchmark.group, &microbenchmark.three_group].contains(&&summary.group)
        });
        let rows = members.flat_map(|microbenchmark| &microbenchmark.rows);
        let rows: Vec<&Row> = rows.filter(|row| row.candidate == summary.candidate).collect();
        Finding::of(self, &rows, self.noise(report)).verdict()
    }

    /// The noise floor of one microbenchmark; `None` without a control.
    pub(crate) fn floor(
        self,
        report: &Report,
        microbenchmark: &MicrobenchmarkRows,
    ) -> Option<Share> {
        let floor = match self {
            Self::Qps => report.noise.as_ref(),
            Self::Cpu => report.cpu_noise.as_ref(),
        };
        let control = microbenchmark.rows.iter().find(|row| row.role == Role::Control);
        Some(floor?.for_row(control.and_then(|row| self.counted(row))))
    }

    /// The noise floor: the control's typical distance from 1.
    pub(crate) fn noise(self, report: &Report) -> Option<Share> {
        let floor = match self {
            Self::Qps => &report.noise,
            Self::Cpu => &report.cpu_noise,
        };
        floor.as_ref().map(|floor| floor.typical)
    }

    /// The summaries of each group, number of clients and candidate.
    pub(crate) fn summaries(self, report: &Report, grouping: Grouping) -> Cow<'_, [GroupSummary]> {
        match (self, grouping) {
            (Self::Qps, Grouping::Five) => Cow::Borrowed(&report.groups),
            (Self::Qps, Grouping::Three) => Cow::Borrowed(&report.three_groups),
            (Self::Cpu, _) => Cow::Owned(summarise(
                Self::Cpu,
                &report.microbenchmarks,
                &report.candidates,
                grouping,
            )),
        }
    }
}

/// The set of groups: three or five.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grouping {
    Five,
    Three,
}

impl Grouping {
    pub(crate) fn of(self, microbenchmark: &MicrobenchmarkRows) -> &str {
        match self {
            Self::Five => &microbenchmark.group,
            Self::Three => &microbenchmark.three_group,
        }
    }

    /// The groups by name, which is also the published order, each with its microbenchmarks in
    /// running order and their indices in the report. The rows of a sweep are ordered by name, then
    /// by the number of clients.
    pub(crate) fn groups(
        self,
        microbenchmarks: &[MicrobenchmarkRows],
    ) -> BTreeMap<&str, Vec<(usize, &MicrobenchmarkRows)>> {
        let mut groups: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for (index, microbenchmark) in microbenchmarks.iter().enumerate() {
            groups.entry(self.of(microbenchmark)).or_default().push((index, microbenchmark));
        }
        let first = |name: &str| microbenchmarks.iter().position(|m| m.name == name);
        for members in groups.values_mut() {
            members.sort_by_cached_key(|(_, member)| (first(&member.name), member.clients));
        }
        groups
    }
}

/// The text for a number of clients.
pub(crate) fn clients(clients: u32) -> String {
    if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") }
}

/// A name, with the number of clients in a sweep: `point-1, 16 clients`.
pub(crate) fn with_clients(name: &str, count: u32, is_sweep: bool) -> String {
    if is_sweep { format!("{name}, {}", clients(count)) } else { name.to_owned() }
}

/// The number of client-bound rows, and the number of all rows.
pub(crate) fn client_bound_rows(report: &Report) -> (usize, usize) {
    let rows = || report.microbenchmarks.iter().flat_map(|microbenchmark| &microbenchmark.rows);
    (rows().filter(|row| row.verdict == Verdict::ClientBound).count(), rows().count())
}

/// Whether it is known how busy the servers of all client-bound rows were.
pub(crate) fn servers_had_idle_time(report: &Report) -> bool {
    report.microbenchmarks.iter().all(|microbenchmark| {
        let is_known =
            |row: &Row| row.absolute.server_busy.and(microbenchmark.baseline.server_busy).is_some();
        let mut rows = microbenchmark.rows.iter();
        rows.all(|row| row.verdict != Verdict::ClientBound || is_known(row))
    })
}

/// The consequence of a lost slice of writes for the answer checks; `None` if none was lost.
pub(crate) fn data_differs(lost: &Lost) -> Option<String> {
    let from = lost.data_differs_from.as_ref()?;
    Some(format!(
        "A slice of writes was lost at {from}: from there on its data differed from that of the \
         others, and their answers were not compared."
    ))
}

/// The candidates that are compared with the baseline, including the control.
pub(crate) fn compared(report: &Report) -> Vec<&CandidateRecord> {
    report.candidates.iter().filter(|candidate| candidate.role != Role::Baseline).collect()
}

/// Why a candidate has no row for a microbenchmark.
pub(crate) fn missing(report: &Report, candidate: &str) -> &'static str {
    if report.failures.iter().any(|failure| failure.candidate == candidate) {
        "failed"
    } else {
        "–"
    }
}

/// Summaries of a metric by group, number of clients and candidate.
pub(crate) fn summarise(
    metric: Metric,
    microbenchmarks: &[MicrobenchmarkRows],
    candidates: &[CandidateRecord],
    grouping: Grouping,
) -> Vec<GroupSummary> {
    let mut summaries = Vec::new();
    for (group, members) in grouping.groups(microbenchmarks) {
        let clients: BTreeSet<u32> = members.iter().map(|(_, member)| member.clients).collect();
        for clients in clients {
            let members = members.iter().filter(|(_, member)| member.clients == clients);
            let members: Vec<&MicrobenchmarkRows> = members.map(|(_, member)| *member).collect();
            let summary = |candidate| summary(metric, (group, clients), candidate, &members);
            summaries.extend(candidates.iter().filter_map(summary));
        }
    }
    summaries
}

/// `None` for a candidate without usable ratios, such as the baseline.
fn summary(
    metric: Metric,
    (group, clients): (&str, u32),
    candidate: &CandidateRecord,
    members: &[&MicrobenchmarkRows],
) -> Option<GroupSummary> {
    let rows: Vec<(&str, &Row)> = members
        .iter()
        .filter_map(|microbenchmark| {
            let mut rows = microbenchmark.rows.iter();
            let row = rows.find(|row| row.candidate == candidate.name)?;
            Some((microbenchmark.name.as_str(), row))
        })
        .collect();
    let counted: Vec<(&str, Ratio)> =
        rows.iter().filter_map(|(name, row)| Some((*name, metric.counted(row)?))).collect();
    let ratios: Vec<Ratio> = counted.iter().map(|(_, ratio)| *ratio).collect();
    let summary = Summary::of(&ratios)?;
    // The minimum is the worst throughput, but the best CPU time.
    let (worst, best) = match metric {
        Metric::Qps => (summary.worst, summary.best),
        Metric::Cpu => (summary.best, summary.worst),
    };
    let bound = |(_, row): &&(&str, &Row)| metric.verdict(row) == Verdict::ClientBound;
    Some(GroupSummary {
        group: group.to_owned(),
        clients,
        candidate: candidate.name.clone(),
        role: candidate.role,
        count: summary.count,
        client_bound: rows.iter().filter(bound).count(),
        min: summary.min,
        max: summary.max,
        avg: summary.avg,
        median: summary.median,
        stddev: summary.stddev,
        worst: counted[worst].0.to_owned(),
        best: counted[best].0.to_owned(),
    })
}

/// Summarise the ratios of instructions, cycles and instructions per cycle by group, number of
/// clients and candidate. Failed rows are left out.
pub(crate) fn summarise_counters(
    microbenchmarks: &[MicrobenchmarkRows],
    candidates: &[CandidateRecord],
) -> Vec<CounterSummary> {
    let mut summaries = Vec::new();
    for (group, members) in Grouping::Five.groups(microbenchmarks) {
        let clients: BTreeSet<u32> = members.iter().map(|(_, member)| member.clients).collect();
        for clients in clients {
            let members = members.iter().filter(|(_, member)| member.clients == clients);
            let rows: Vec<_> = members.flat_map(|(_, member)| &member.rows).collect();
            for candidate in candidates.iter().filter(|one| one.role != Role::Baseline) {
                let own = rows.iter().filter(|row| {
                    row.candidate == candidate.name && row.cpu_verdict != Verdict::Failed
                });
                let of = |figure| {
                    let ratios = own.clone().filter_map(|row| row.relative_counters.get(&figure));
                    let ratios: Vec<Ratio> = ratios.map(|estimate| estimate.median).collect();
                    let summary = Summary::of(&ratios)?;
                    Some(CounterSummary {
                        group: group.to_owned(),
                        clients,
                        candidate: candidate.name.clone(),
                        role: candidate.role,
                        figure,
                        count: summary.count,
                        min: summary.min,
                        max: summary.max,
                        avg: summary.avg,
                        median: summary.median,
                    })
                };
                summaries.extend(CounterFigure::OF_GROUPS.into_iter().filter_map(of));
            }
        }
    }
    summaries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Report;
    use crate::{key_results, sample};

    #[test]
    fn best_cpu_is_the_minimum() {
        let report = sample::report();
        for summary in Metric::Cpu.summaries(&report, Grouping::Five).iter() {
            let best = report.microbenchmarks.iter().find(|m| m.name == summary.best).unwrap();
            let row = best.rows.iter().find(|row| row.candidate == summary.candidate).unwrap();
            assert_eq!(row.relative_cpu.unwrap().median, summary.min);
        }
    }

    #[test]
    fn group_has_the_verdict_of_its_key_result() {
        let mut compared = 0;
        for report in [sample::report(), sample::sweep(), sample::imported()] {
            for result in key_results::of(&report, Grouping::Five) {
                for finding in result.findings() {
                    // A key result is of the rows in which its metric is to be trusted.
                    let members = report.microbenchmarks.iter().filter(|one| {
                        (one.group.as_str(), one.clients) == (result.group, result.clients)
                    });
                    let rows: Vec<&Row> = members
                        .flat_map(|one| &one.rows)
                        .filter(|row| row.candidate == result.candidate)
                        .collect();
                    if rows.iter().any(|row| row.trusted_metric != result.finding.metric) {
                        continue;
                    }
                    let summaries = finding.metric.summaries(&report, Grouping::Five);
                    let Some(summary) = summaries.iter().find(|one| {
                        (one.group.as_str(), one.clients, one.candidate.as_str())
                            == (result.group, result.clients, result.candidate)
                    }) else {
                        continue;
                    };
                    let verdict = finding.metric.verdict_of_group(&report, summary);
                    assert_eq!(verdict, finding.verdict(), "{result:?}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 20, "{compared}");
    }

    #[test]
    fn groups_are_in_the_published_order() {
        let report = sample::report();
        let names: Vec<&str> = Grouping::Five.groups(&report.microbenchmarks).into_keys().collect();
        assert_eq!(names, ["point-1", "point-2", "range-1", "range-2", "writes"]);
        assert_eq!(Grouping::Three.groups(&report.microbenchmarks).len(), 3);
    }

    #[test]
    fn group_summaries_leave_out_failed_rows() {
        let mut report = sample::counted(&["scan_range=100", "range-covered-pk_range=100"]);
        let first = |report: &Report| {
            let all = summarise_counters(&report.microbenchmarks, &report.candidates);
            let of = all.into_iter().find(|one| one.figure == CounterFigure::InstructionsPerCycle);
            of.unwrap()
        };
        let both = first(&report);
        let (group, candidate) = (both.group.clone(), both.candidate.clone());
        let members = report.microbenchmarks.iter().filter(|one| one.group == group).count();
        assert_eq!(both.count, members);
        let failed = report.microbenchmarks.iter_mut().rev().find(|one| one.group == group);
        let mut rows = failed.unwrap().rows.iter_mut();
        rows.find(|row| row.candidate == candidate).unwrap().cpu_verdict = Verdict::Failed;
        let after = summarise_counters(&report.microbenchmarks, &report.candidates);
        let left = after.iter().find(|one| one.group == group && one.candidate == candidate);
        assert_eq!(left.map_or(0, |one| one.count), members - 1);
    }
}
