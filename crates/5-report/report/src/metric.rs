//! The two metrics, relative QPS and relative CPU per query, formatted in the same way.
//!
//! The model contains the verdicts of both and the summaries of QPS; the summaries of CPU are
//! calculated here with the same definitions, so that every table and chart can show either metric.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use dbdyno_stats::{Direction, Side, Summary};
use dbdyno_units::{Ratio, Share};
use dbdyno_workloads::catalog::published;

use crate::key_results::{Finding, Measured};
use crate::model::{
    CandidateRecord, CounterFigure, CounterSummary, Estimate, GroupSummary, Metric,
    MicrobenchmarkRows, NoiseFloor, Report, Role, Row, Verdict,
};
use crate::sections::rows;

pub(crate) const fn direction(metric: Metric) -> Direction {
    match metric {
        Metric::Qps => Direction::MoreIsBetter,
        Metric::Cpu => Direction::LessIsBetter,
    }
}

impl Verdict {
    /// Better or worse than 1 if the distance exceeds the noise.
    pub(crate) fn of_ratio(metric: Metric, ratio: Ratio, noise: Option<Share>) -> Self {
        direction(metric).verdict(Side::beyond(ratio, noise)).into()
    }

    /// The verdict on an estimate with this noise floor; `None` for a run without a control.
    pub(crate) fn of_estimate(metric: Metric, estimate: &Estimate, floor: Option<Share>) -> Self {
        estimate.verdict(direction(metric), floor).into()
    }

    pub(crate) const fn word(self, metric: Metric) -> &'static str {
        match (metric, self) {
            (Metric::Cpu, Self::Better) => "less CPU",
            (Metric::Cpu, Self::Worse) => "more CPU",
            _ => self.name(),
        }
    }
}

impl Row {
    pub(crate) const fn estimate(&self, metric: Metric) -> Option<Estimate> {
        match metric {
            Metric::Qps => self.relative_qps,
            Metric::Cpu => self.relative_cpu,
        }
    }

    /// The ratio, with or without an interval.
    pub(crate) fn ratio(&self, metric: Metric) -> Option<Ratio> {
        let alone = match metric {
            Metric::Qps => self.single,
            Metric::Cpu => None,
        };
        self.estimate(metric).map(|estimate| estimate.median).or(alone)
    }

    /// The ratio if it is usable for summaries.
    pub(crate) fn counted(&self, metric: Metric) -> Option<Ratio> {
        self.ratio(metric).filter(|_| self.verdict_of(metric).is_of_own_work())
    }

    /// Whether it was measured for this candidate: the CPU time of a server on another machine is
    /// unknown.
    pub(crate) const fn is_measured(&self, metric: Metric) -> bool {
        match metric {
            Metric::Qps => true,
            Metric::Cpu => self.absolute.cpu_us_per_query.is_some(),
        }
    }

    pub(crate) const fn verdict_of(&self, metric: Metric) -> Verdict {
        match metric {
            Metric::Qps => self.verdict,
            Metric::Cpu => self.cpu_verdict,
        }
    }
}

impl MicrobenchmarkRows {
    /// Whether it is in this group, one of five or of three.
    fn is_in(&self, group: &str) -> bool {
        group == self.group || group == self.three_group
    }

    /// The verdict that sets the colour of a ratio: what may be noise has none, as in the key results.
    pub(crate) fn shown_verdict(&self, row: &Row, metric: Metric) -> Verdict {
        let alone = [Measured { microbenchmark: self, row }];
        match Finding::beside(&alone, metric, None).may_be_noise() {
            true => Verdict::WithinNoise,
            false => row.verdict_of(metric),
        }
    }
}

impl Report {
    pub(crate) fn has(&self, metric: Metric) -> bool {
        let mut rows = self.microbenchmarks.iter();
        metric == Metric::Qps || rows.any(|m| m.baseline.cpu_us_per_query.is_some())
    }

    /// The metric to trust in most rows.
    pub(crate) fn leading_metric(&self) -> Metric {
        let cpu = rows(self).filter(|(_, row)| row.trusted_metric == Metric::Cpu).count();
        if 2 * cpu > rows(self).count() { Metric::Cpu } else { Metric::Qps }
    }

    /// The verdict of a group's median: that of its finding, as in the key results. A median of noise is
    /// noise.
    pub(crate) fn verdict_of_group(&self, metric: Metric, summary: &GroupSummary) -> Verdict {
        let members = self
            .microbenchmarks
            .iter()
            .filter(|one| one.clients == summary.clients && one.is_in(&summary.group));
        let members = members.filter_map(|microbenchmark| {
            Some(Measured { microbenchmark, row: microbenchmark.row(&summary.candidate)? })
        });
        let members: Vec<Measured<'_>> = members.collect();
        Finding::beside(&members, metric, self.noise_of(metric)).verdict()
    }

    /// How many of the published microbenchmarks of a group were measured, and how many it has; `None` if
    /// all were, or others, as in a group of the experiment.
    pub(crate) fn part_of(&self, group: &str) -> Option<(usize, usize)> {
        let members = self.microbenchmarks.iter().filter(|one| one.is_in(group));
        let measured: BTreeSet<&str> = members.map(|one| one.name.as_str()).collect();
        let all: BTreeSet<&str> = published(group).collect();
        let is_part = !measured.is_empty() && measured.is_subset(&all) && measured != all;
        is_part.then_some((measured.len(), all.len()))
    }

    /// A group's name above its microbenchmarks: `point-1 (2 of 11)` if only a part was measured.
    pub(crate) fn group_title(&self, group: &str) -> String {
        match self.part_of(group) {
            Some((measured, all)) => format!("{group} ({measured} of {all})"),
            None => group.to_owned(),
        }
    }

    /// A group's name where its microbenchmarks are not listed: that of the only one, or its title.
    pub(crate) fn group_label(&self, group: &str) -> String {
        let mut members = self.microbenchmarks.iter().filter(|one| one.is_in(group));
        match members.next() {
            Some(first) if members.all(|one| one.name == first.name) => first.name.clone(),
            _ => self.group_title(group),
        }
    }

    const fn noise_floor(&self, metric: Metric) -> Option<&NoiseFloor> {
        match metric {
            Metric::Qps => self.noise.as_ref(),
            Metric::Cpu => self.cpu_noise.as_ref(),
        }
    }

    /// The noise floor of one microbenchmark; `None` without a control.
    pub(crate) fn floor_of(
        &self,
        metric: Metric,
        microbenchmark: &MicrobenchmarkRows,
    ) -> Option<Share> {
        let control = microbenchmark.control().and_then(|row| row.counted(metric));
        Some(self.noise_floor(metric)?.for_row(control))
    }

    /// The noise floor: the control's typical distance from 1.
    pub(crate) fn noise_of(&self, metric: Metric) -> Option<Share> {
        self.noise_floor(metric).map(|floor| floor.typical)
    }

    /// The summaries of each group, number of clients and candidate.
    pub(crate) fn summaries_of(
        &self,
        metric: Metric,
        grouping: Grouping,
    ) -> Cow<'_, [GroupSummary]> {
        match (metric, grouping) {
            (Metric::Qps, Grouping::Five) => Cow::Borrowed(&self.groups),
            (Metric::Qps, Grouping::Three) => Cow::Borrowed(&self.three_groups),
            (Metric::Cpu, _) => {
                Cow::Owned(summarise(metric, &self.microbenchmarks, &self.candidates, grouping))
            }
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
    let bound = rows(report).filter(|(_, row)| row.verdict == Verdict::ClientBound);
    (bound.count(), rows(report).count())
}

/// Whether it is known how busy the servers of all client-bound rows were.
pub(crate) fn servers_had_idle_time(report: &Report) -> bool {
    rows(report).all(|(of, row)| {
        let is_known = row.absolute.server_busy.and(of.baseline.server_busy).is_some();
        row.verdict != Verdict::ClientBound || is_known
    })
}

/// The candidates that are compared with the baseline, including the control.
pub(crate) fn compared(report: &Report) -> Vec<&CandidateRecord> {
    report.candidates.iter().filter(|candidate| candidate.role != Role::Baseline).collect()
}

/// Why a candidate has no row for a microbenchmark.
pub(crate) fn missing(report: &Report, candidate: &str) -> &'static str {
    let has_failed = report.failures.iter().any(|failure| failure.candidate == candidate);
    if has_failed { "failed" } else { "–" }
}

/// The microbenchmarks of each group at each number of clients.
pub(crate) fn by_clients(
    microbenchmarks: &[MicrobenchmarkRows],
    grouping: Grouping,
) -> Vec<(&str, u32, Vec<&MicrobenchmarkRows>)> {
    let mut all = Vec::new();
    for (group, members) in grouping.groups(microbenchmarks) {
        let clients: BTreeSet<u32> = members.iter().map(|(_, member)| member.clients).collect();
        for clients in clients {
            let at = members.iter().map(|(_, member)| *member);
            all.push((group, clients, at.filter(|member| member.clients == clients).collect()));
        }
    }
    all
}

/// Summaries of a metric by group, number of clients and candidate; without candidates that have no usable ratios, such as
/// the baseline.
pub(crate) fn summarise(
    metric: Metric,
    microbenchmarks: &[MicrobenchmarkRows],
    candidates: &[CandidateRecord],
    grouping: Grouping,
) -> Vec<GroupSummary> {
    let mut summaries = Vec::new();
    for (group, clients, members) in by_clients(microbenchmarks, grouping) {
        let summary = |candidate: &CandidateRecord| {
            let rows =
                members.iter().filter_map(|one| Some((&one.name, one.row(&candidate.name)?)));
            let bound = |(_, row): &(&String, &Row)| row.verdict_of(metric) == Verdict::ClientBound;
            let client_bound = rows.clone().filter(bound).count();
            let counted = rows.filter_map(|(name, row)| Some((name, row.counted(metric)?)));
            let (names, ratios): (Vec<&String>, Vec<Ratio>) = counted.unzip();
            let summary = Summary::of(&ratios)?;
            // The minimum is the worst throughput, but the best CPU time.
            let (worst, best) = match metric {
                Metric::Qps => (summary.worst, summary.best),
                Metric::Cpu => (summary.best, summary.worst),
            };
            Some(GroupSummary {
                group: group.to_owned(),
                clients,
                candidate: candidate.name.clone(),
                role: candidate.role,
                count: summary.count,
                client_bound,
                min: summary.min,
                max: summary.max,
                avg: summary.avg,
                median: summary.median,
                stddev: summary.stddev,
                worst: names[worst].clone(),
                best: names[best].clone(),
            })
        };
        summaries.extend(candidates.iter().filter_map(summary));
    }
    summaries
}

/// Summarise the ratios of instructions, cycles and instructions per cycle by group, number of
/// clients and candidate. Failed rows are left out.
pub(crate) fn summarise_counters(
    microbenchmarks: &[MicrobenchmarkRows],
    candidates: &[CandidateRecord],
) -> Vec<CounterSummary> {
    let mut summaries = Vec::new();
    for (group, clients, members) in by_clients(microbenchmarks, Grouping::Five) {
        for candidate in candidates.iter().filter(|one| one.role != Role::Baseline) {
            let own = members.iter().filter_map(|one| one.row(&candidate.name));
            let own = own.filter(|row| row.cpu_verdict != Verdict::Failed);
            let of = |figure| {
                let ratios = own.clone().filter_map(|row| row.relative_counters.get(&figure));
                let ratios: Vec<Ratio> = ratios.map(|estimate| estimate.median).collect();
                let Summary { count, min, max, avg, median, .. } = Summary::of(&ratios)?;
                Some(CounterSummary {
                    group: group.to_owned(),
                    clients,
                    candidate: candidate.name.clone(),
                    role: candidate.role,
                    figure,
                    count,
                    min,
                    max,
                    avg,
                    median,
                })
            };
            summaries.extend(CounterFigure::OF_GROUPS.into_iter().filter_map(of));
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
        for summary in report.summaries_of(Metric::Cpu, Grouping::Five).iter() {
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
                    let summaries = report.summaries_of(finding.metric, Grouping::Five);
                    let Some(summary) = summaries.iter().find(|one| {
                        (one.group.as_str(), one.clients, one.candidate.as_str())
                            == (result.group, result.clients, result.candidate)
                    }) else {
                        continue;
                    };
                    let verdict = report.verdict_of_group(finding.metric, summary);
                    assert_eq!(verdict, finding.verdict(), "{result:?}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 20, "{compared}");
    }

    #[test]
    fn part_of_a_published_group_is_named_as_such() {
        let points = ["point-query_range=100", "hot-points_range=100", "random-points_range=10"];
        let mut report = sample::report_of(&points);
        assert_eq!(report.group_title("point-1"), "point-1 (2 of 11)");
        assert_eq!(report.group_label("point-1"), "point-1 (2 of 11)");
        assert_eq!(report.group_label("point"), "point (3 of 17)");
        assert_eq!(report.group_title("point-2"), "point-2 (1 of 6)");
        assert_eq!(report.group_label("point-2"), points[2]);
        let hot = report.microbenchmarks.iter_mut().find(|one| one.name == points[1]);
        hot.unwrap().name = "read-hot".to_owned();
        assert_eq!(report.group_label("point-1"), "point-1", "not only published ones");
        for one in &mut report.microbenchmarks {
            one.group = "own".to_owned();
            one.three_group = "own".to_owned();
        }
        assert_eq!(report.group_label("own"), "own", "no total");
        assert_eq!(sample::report().group_label("point-1"), "point-1");
        assert_eq!(sample::sweep().group_label("range-2"), "read-only_range=100");
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
