//! The two metrics, relative QPS and relative CPU per query, seen through the same eyes.
//!
//! The model carries verdicts and summaries of QPS; those of CPU are derived here, by the same
//! definitions, so that every table and chart can show either.

use std::borrow::Cow;
use std::collections::BTreeMap;

use dbdyno_units::{Ratio, Share};

use crate::model::{
    CandidateSummary, Estimate, GroupSummary, MicrobenchmarkRows, Report, Role, Row, Verdict,
};

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
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

    /// Its name in headings.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Qps => "relative QPS",
            Self::Cpu => "relative CPU per query",
        }
    }

    /// How to read it.
    pub(crate) const fn better(self) -> &'static str {
        match self {
            Self::Qps => "above 1 is better",
            Self::Cpu => "below 1 is better",
        }
    }

    /// Better or worse than 1, if it is farther away than the noise.
    pub(crate) fn standing_of(self, ratio: Ratio, noise: Option<Share>) -> Standing {
        if ratio.distance() <= noise.map_or(0.0, Share::as_fraction) {
            Standing::WithinNoise
        } else if (ratio.get() > 1.0) == (self == Self::Qps) {
            Standing::Better
        } else {
            Standing::Worse
        }
    }

    /// What a row's difference amounts to. For CPU the rule is the verdict's: within noise is an
    /// interval that contains 1 or a difference below the noise floor.
    pub(crate) fn standing(self, row: &Row, noise: Option<Share>) -> Standing {
        match (self, row.verdict, self.estimate(row)) {
            (_, Verdict::Failed, _) => Standing::Failed,
            (_, _, None) | (Self::Qps, Verdict::Unknown, _) => Standing::Unknown,
            (Self::Qps, Verdict::Faster, _) => Standing::Better,
            (Self::Qps, Verdict::Slower, _) => Standing::Worse,
            (Self::Qps, Verdict::WithinNoise, _) => Standing::WithinNoise,
            // The control is the baseline: whatever it shows is noise.
            (Self::Cpu, _, Some(_)) if row.role == Role::Control => Standing::WithinNoise,
            (Self::Cpu, _, Some(cpu)) if cpu.low <= Ratio::ONE && cpu.high >= Ratio::ONE => {
                Standing::WithinNoise
            }
            (Self::Cpu, _, Some(cpu)) => self.standing_of(cpu.median, noise),
        }
    }

    /// What a group's median amounts to: as its distance from 1 says, but only if at least half of
    /// the group's rows say the same. A median of differences that are noise is noise.
    pub(crate) fn standing_of_group(self, report: &Report, summary: &GroupSummary) -> Standing {
        let noise = self.noise(report);
        let standing = self.standing_of(summary.median, noise);
        let members = report.microbenchmarks.iter().filter(|microbenchmark| {
            [&microbenchmark.group, &microbenchmark.three_group].contains(&&summary.group)
        });
        let (mut rows, mut same) = (0, 0);
        for row in members.flat_map(|microbenchmark| &microbenchmark.rows) {
            if row.candidate == summary.candidate && self.estimate(row).is_some() {
                rows += 1;
                same += usize::from(self.standing(row, noise) == standing);
            }
        }
        if 2 * same >= rows { standing } else { Standing::WithinNoise }
    }

    /// The noise floor: the control's typical distance from 1.
    pub(crate) fn noise(self, report: &Report) -> Option<Share> {
        match self {
            Self::Qps => report.noise.as_ref().map(|noise| noise.typical),
            Self::Cpu => {
                let controls = report
                    .microbenchmarks
                    .iter()
                    .flat_map(|microbenchmark| &microbenchmark.rows)
                    .filter(|row| row.role == Role::Control);
                let mut distances: Vec<f64> =
                    controls.filter_map(|row| Some(row.relative_cpu?.median.distance())).collect();
                median(&mut distances).map(Share::from_fraction)
            }
        }
    }

    /// The summaries of every group and candidate.
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

/// What a difference amounts to, whichever the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Better,
    Worse,
    WithinNoise,
    Unknown,
    Failed,
}

impl Standing {
    /// A sign that works without colour.
    pub(crate) const fn sign(self) -> char {
        match self {
            Self::Better => '+',
            Self::Worse => '-',
            Self::WithinNoise => '~',
            Self::Unknown => '?',
            Self::Failed => '!',
        }
    }

    /// The word for it.
    pub(crate) const fn word(self, metric: Metric) -> &'static str {
        match (self, metric) {
            (Self::Better, Metric::Qps) => "faster",
            (Self::Worse, Metric::Qps) => "slower",
            (Self::Better, Metric::Cpu) => "less CPU",
            (Self::Worse, Metric::Cpu) => "more CPU",
            (Self::WithinNoise, _) => "within noise",
            (Self::Unknown, _) => "unknown",
            (Self::Failed, _) => "failed",
        }
    }
}

/// Which groups the microbenchmarks are laid in.
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

    /// The groups by name, which is the published order too; each with its microbenchmarks in
    /// running order and their places in the report.
    pub(crate) fn groups(
        self,
        microbenchmarks: &[MicrobenchmarkRows],
    ) -> BTreeMap<&str, Vec<(usize, &MicrobenchmarkRows)>> {
        let mut groups: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for (place, microbenchmark) in microbenchmarks.iter().enumerate() {
            groups.entry(self.of(microbenchmark)).or_default().push((place, microbenchmark));
        }
        groups
    }
}

/// Those that are compared with the baseline: the candidates and the control.
pub(crate) fn compared(report: &Report) -> Vec<&CandidateSummary> {
    report.candidates.iter().filter(|candidate| candidate.role != Role::Baseline).collect()
}

/// Why a candidate has no row on a microbenchmark.
pub(crate) fn missing(report: &Report, candidate: &str) -> &'static str {
    if report.failures.iter().any(|failure| failure.candidate == candidate) {
        "failed"
    } else {
        "–"
    }
}

/// Summaries of a metric by group and candidate, from the rows with an estimate.
pub(crate) fn summarise(
    metric: Metric,
    microbenchmarks: &[MicrobenchmarkRows],
    candidates: &[CandidateSummary],
    grouping: Grouping,
) -> Vec<GroupSummary> {
    let mut summaries = Vec::new();
    for (group, members) in grouping.groups(microbenchmarks) {
        for candidate in candidates {
            let mut named: Vec<(f64, &str)> = members
                .iter()
                .filter_map(|(_, microbenchmark)| {
                    let rows = &microbenchmark.rows;
                    let row = rows.iter().find(|row| row.candidate == candidate.name)?;
                    let usable = row.verdict != Verdict::Failed;
                    let estimate = metric.estimate(row).filter(|_| usable)?;
                    Some((estimate.median.get(), microbenchmark.name.as_str()))
                })
                .collect();
            named.sort_by(|a, b| a.0.total_cmp(&b.0));
            summaries.extend(summary(metric, group, candidate, &named));
        }
    }
    summaries
}

/// `named` holds the ratios in ascending order with their microbenchmarks.
fn summary(
    metric: Metric,
    group: &str,
    candidate: &CandidateSummary,
    named: &[(f64, &str)],
) -> Option<GroupSummary> {
    let (first, last) = (named.first()?, named.last()?);
    let mut ratios: Vec<f64> = named.iter().map(|(ratio, _)| *ratio).collect();
    let count = ratios.len();
    let avg = ratios.iter().sum::<f64>() / count as f64;
    let squares: f64 = ratios.iter().map(|ratio| (ratio - avg).powi(2)).sum();
    let (worst, best) = match metric {
        Metric::Qps => (first.1, last.1),
        Metric::Cpu => (last.1, first.1),
    };
    Some(GroupSummary {
        group: group.to_owned(),
        candidate: candidate.name.clone(),
        role: candidate.role,
        count,
        min: Ratio::new(first.0),
        max: Ratio::new(last.0),
        avg: Ratio::new(avg),
        median: Ratio::new(median(&mut ratios)?),
        stddev: (count > 1).then(|| (squares / (count - 1) as f64).sqrt()),
        worst: worst.to_owned(),
        best: best.to_owned(),
    })
}

/// The median; `None` of nothing.
pub(crate) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn less_cpu_is_better() {
        let noise = Some(Share::from_percent(0.5));
        let of = |ratio| Metric::Cpu.standing_of(Ratio::new(ratio), noise);
        assert_eq!(of(0.9), Standing::Better);
        assert_eq!(of(1.1), Standing::Worse);
        assert_eq!(of(1.004), Standing::WithinNoise);
    }

    #[test]
    fn the_best_cpu_is_the_least() {
        let report = sample::report();
        for summary in Metric::Cpu.summaries(&report, Grouping::Five).iter() {
            let best = report.microbenchmarks.iter().find(|m| m.name == summary.best).unwrap();
            let row = best.rows.iter().find(|row| row.candidate == summary.candidate).unwrap();
            assert_eq!(row.relative_cpu.unwrap().median, summary.min);
        }
    }

    #[test]
    fn a_median_of_noise_is_noise() {
        let report = sample::report_of(&["insert_range=100"]);
        let noise = Metric::Qps.noise(&report);
        for summary in &mut report.groups.clone() {
            summary.median = Ratio::new(1.5);
            let mut rows = report.microbenchmarks[0].rows.iter();
            let row = rows.find(|row| row.candidate == summary.candidate).unwrap();
            if Metric::Qps.standing(row, noise) == Standing::WithinNoise {
                let standing = Metric::Qps.standing_of_group(&report, summary);
                assert_eq!(standing, Standing::WithinNoise);
            }
        }
    }

    #[test]
    fn groups_come_in_the_published_order() {
        let report = sample::report();
        let names: Vec<&str> = Grouping::Five.groups(&report.microbenchmarks).into_keys().collect();
        assert_eq!(names, ["point-1", "point-2", "range-1", "range-2", "writes"]);
        assert_eq!(Grouping::Three.groups(&report.microbenchmarks).len(), 3);
    }
}
