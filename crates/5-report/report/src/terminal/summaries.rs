//! Summaries of groups: spread of the ratios, and the best and the worst microbenchmark. A group with
//! a single microbenchmark has none: it would repeat one figure.

use super::paint::{Paint, cut, left, plain, right, width};
use crate::figures::ratio;
use crate::metric::{Grouping, Metric, with_clients};
use crate::model::{GroupSummary, Report, Role, Verdict};

/// Render the summaries of a metric, then the extremes.
pub(super) fn render(
    out: &mut String,
    report: &Report,
    (metric, grouping): (Metric, Grouping),
    room: usize,
    paint: Paint,
) {
    let summaries = metric.summaries(report, grouping);
    let summaries: Vec<&GroupSummary> =
        summaries.iter().filter(|summary| summary.has_spread()).collect();
    if summaries.is_empty() {
        return;
    }
    let sweep = report.is_sweep();
    let label =
        |summary: &GroupSummary| with_clients(&plain(&summary.group), summary.clients, sweep);
    let named: Vec<Named<'_>> =
        summaries.iter().map(|summary| Named { summary, group: label(summary) }).collect();
    let columns = |longest: Option<usize>, title: &str| longest.unwrap_or(0).max(title.len());
    let group_columns = columns(named.iter().map(|named| width(&named.group)).max(), "group");
    let candidate_columns =
        columns(summaries.iter().map(|summary| width(&summary.candidate)).max(), "candidate");
    // Six figures of seven characters follow the names.
    let longest = room.saturating_sub(group_columns + 2 + 2 + 6 * 7).max(9);
    let sizes = (group_columns, candidate_columns.min(longest));
    let drawn = Drawn { report, metric, sizes, paint };
    drawn.spread(out, &named);
    let shown: Vec<Named<'_>> =
        named.into_iter().filter(|named| named.summary.role != Role::Control).collect();
    drawn.extremes(out, &shown);
}

struct Named<'a> {
    summary: &'a GroupSummary,
    /// The group, with the number of clients in a sweep.
    group: String,
}

struct Drawn<'a> {
    report: &'a Report,
    metric: Metric,
    /// Widths of the group and the candidate column.
    sizes: (usize, usize),
    paint: Paint,
}

impl Drawn<'_> {
    /// The group's name, on its first line only, and the candidate's name.
    fn names(&self, all: &[Named<'_>], index: usize) -> String {
        let (group_columns, candidate_columns) = self.sizes;
        let Named { summary, group } = &all[index];
        let repeated = index > 0 && all[index - 1].group == *group;
        let group = if repeated { "" } else { group };
        let candidate = cut(&plain(&summary.candidate), candidate_columns);
        format!("{}  {}", left(group, group_columns), left(&candidate, candidate_columns))
    }

    fn spread(&self, out: &mut String, all: &[Named<'_>]) {
        let Self { report, metric, sizes, paint } = *self;
        let about = format!("  {} over the microbenchmarks of a group", metric.title());
        out.push_str(&format!("\n{}{}\n", paint.bold("group summaries"), paint.dim(&about)));
        out.push_str(&format!("{}  {}  count", left("group", sizes.0), left("candidate", sizes.1)));
        for title in ["min", "max", "avg", "stddev", "median"] {
            out.push_str(&right(title, 7));
        }
        let rule = "─".repeat(sizes.0 + sizes.1 + 2 + 7 + 5 * 7 + 2);
        out.push_str(&format!("\n{}\n", paint.dim(&rule)));
        for (index, Named { summary, .. }) in all.iter().enumerate() {
            let stddev =
                summary.stddev.map_or_else(|| "–".to_owned(), |value| format!("{value:.3}"));
            let mut line = format!("{}{:>7}", self.names(all, index), summary.count);
            for figure in [ratio(summary.min), ratio(summary.max), ratio(summary.avg), stddev] {
                line.push_str(&right(&figure, 7));
            }
            let verdict = metric.verdict_of_group(report, summary);
            let median = format!("{} {}", ratio(summary.median), verdict.sign());
            let line = if summary.role == Role::Control { paint.dim(&line) } else { line };
            out.push_str(&format!("{line}  {}\n", paint.verdict(verdict, &median)));
        }
    }

    fn extremes(&self, out: &mut String, shown: &[Named<'_>]) {
        if shown.is_empty() {
            return;
        }
        let Self { report, metric, paint, .. } = *self;
        out.push_str(&format!("\n{}\n", paint.bold("best and worst microbenchmark")));
        for (index, Named { summary, .. }) in shown.iter().enumerate() {
            let names = self.names(shown, index);
            let blank = " ".repeat(width(&names));
            let (most, least) = match metric {
                Metric::Qps => (summary.max, summary.min),
                Metric::Cpu => (summary.min, summary.max),
            };
            for (names, word, value, at) in
                [(names, "best ", most, &summary.best), (blank, "worst", least, &summary.worst)]
            {
                let verdict = self
                    .verdict(summary, at)
                    .unwrap_or_else(|| metric.verdict_of(value, metric.noise(report)));
                let value = format!("{} {}", ratio(value), verdict.sign());
                let value = paint.verdict(verdict, &value);
                out.push_str(&format!("{names}  {} {value}  {}\n", paint.dim(word), plain(at)));
            }
        }
    }

    /// The verdict of the named row.
    fn verdict(&self, summary: &GroupSummary, at: &str) -> Option<Verdict> {
        let mut all = self.report.microbenchmarks.iter();
        let microbenchmark = all.find(|m| m.name == at && m.clients == summary.clients)?;
        let row = microbenchmark.rows.iter().find(|row| row.candidate == summary.candidate)?;
        Some(self.metric.verdict(row))
    }
}
