//! The groups in short: spread of the ratios, and the best and the worst by name.

use super::paint::{Paint, left, plain, right, width};
use crate::figures::ratio;
use crate::metric::{Grouping, Metric};
use crate::model::{GroupSummary, Report, Role};

/// Draws the summaries of relative QPS, then the extremes.
pub(super) fn render(
    out: &mut String,
    report: &Report,
    grouping: Grouping,
    room: usize,
    paint: Paint,
) {
    let summaries = Metric::Qps.summaries(report, grouping);
    if summaries.is_empty() {
        return;
    }
    let group_columns = columns(&summaries, "group", |summary| &summary.group);
    // Six figures of seven characters stand to the right of the names.
    let longest = room.saturating_sub(group_columns + 2 + 2 + 6 * 7).max(9);
    let candidate_columns =
        columns(&summaries, "candidate", |summary| &summary.candidate).min(longest);
    let sizes = (group_columns, candidate_columns);
    spread(out, report, &summaries, sizes, paint);
    extremes(out, report, &summaries, sizes, paint);
}

fn columns(summaries: &[GroupSummary], title: &str, of: fn(&GroupSummary) -> &str) -> usize {
    let longest = summaries.iter().map(|summary| width(of(summary))).max();
    longest.unwrap_or(0).max(width(title))
}

/// The group's name on its first line only, and the candidate's name.
fn names(
    summaries: &[GroupSummary],
    place: usize,
    (group_columns, candidate_columns): (usize, usize),
) -> String {
    let summary = &summaries[place];
    let repeated = place > 0 && summaries[place - 1].group == summary.group;
    let group = if repeated { String::new() } else { plain(&summary.group) };
    let mut candidate = plain(&summary.candidate);
    if width(&candidate) > candidate_columns {
        candidate = candidate.chars().take(candidate_columns - 1).chain(['…']).collect();
    }
    format!("{}  {}", left(&group, group_columns), left(&candidate, candidate_columns))
}

fn spread(
    out: &mut String,
    report: &Report,
    summaries: &[GroupSummary],
    sizes: (usize, usize),
    paint: Paint,
) {
    out.push_str(&format!(
        "\n{}{}\n",
        paint.bold("group summaries"),
        paint.dim("  relative QPS over the microbenchmarks of a group")
    ));
    out.push_str(&format!("{}  {}  count", left("group", sizes.0), left("candidate", sizes.1)));
    for title in ["min", "max", "avg", "stddev", "median"] {
        out.push_str(&right(title, 7));
    }
    let rule = "─".repeat(sizes.0 + sizes.1 + 2 + 7 + 5 * 7 + 2);
    out.push_str(&format!("\n{}\n", paint.dim(&rule)));
    for (place, summary) in summaries.iter().enumerate() {
        let stddev = summary.stddev.map_or_else(|| "–".to_owned(), |value| format!("{value:.3}"));
        let mut line = format!("{}{:>7}", names(summaries, place, sizes), summary.count);
        for figure in [ratio(summary.min), ratio(summary.max), ratio(summary.avg), stddev] {
            line.push_str(&right(&figure, 7));
        }
        let standing = Metric::Qps.standing_of_group(report, summary);
        let median = format!("{} {}", ratio(summary.median), standing.sign());
        let line = if summary.role == Role::Control { paint.dim(&line) } else { line };
        out.push_str(&format!("{line}  {}\n", paint.standing(standing, &median)));
    }
}

fn extremes(
    out: &mut String,
    report: &Report,
    summaries: &[GroupSummary],
    sizes: (usize, usize),
    paint: Paint,
) {
    let shown: Vec<GroupSummary> =
        summaries.iter().filter(|summary| summary.role != Role::Control).cloned().collect();
    if shown.is_empty() {
        return;
    }
    out.push_str(&format!("\n{}\n", paint.bold("best and worst microbenchmark")));
    let noise = Metric::Qps.noise(report);
    for (place, summary) in shown.iter().enumerate() {
        let names = names(&shown, place, sizes);
        let blank = " ".repeat(width(&names));
        for (names, word, value, at) in [
            (names, "best ", summary.max, &summary.best),
            (blank, "worst", summary.min, &summary.worst),
        ] {
            let standing = standing(report, summary, at)
                .unwrap_or_else(|| Metric::Qps.standing_of(value, noise));
            let value = paint.standing(standing, &format!("{} {}", ratio(value), standing.sign()));
            out.push_str(&format!("{names}  {} {value}  {}\n", paint.dim(word), plain(at)));
        }
    }
}

/// What the named row's own verdict says.
fn standing(report: &Report, summary: &GroupSummary, at: &str) -> Option<crate::metric::Standing> {
    let microbenchmark = report.microbenchmarks.iter().find(|m| m.name == at)?;
    let row = microbenchmark.rows.iter().find(|row| row.candidate == summary.candidate)?;
    Some(Metric::Qps.standing(row, None))
}
