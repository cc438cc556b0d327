//! Key results: findings in words, and a small table with the median of every group and candidate.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::elements::{breakable, scrollable};
use super::marker::Marker;
use super::verdict::{class, sign};
use super::{View, views};
use crate::candidates::summary_of;
use crate::figures::ratio;
use crate::key_results::{self, KeyResult, command};
use crate::metric::{Grouping, Metric, clients, compared};
use crate::model::{CandidateRecord, GroupSummary, Report, Role};
use crate::words::{CPU_FIRST, NOTHING_MEASURED};

pub(super) fn render(report: &Report) -> Markup {
    html! {
        section.key aria-labelledby="h-key" {
            h2 #h-key { "Key results" }
            @if report.microbenchmarks.is_empty() { p { (NOTHING_MEASURED) } }
            (findings(report))
            // The medians of a single microbenchmark would repeat its finding.
            @if report.microbenchmarks.len() > 1 { (medians(report)) }
        }
    }
}

fn medians(report: &Report) -> Markup {
    html! {
        @for view in views(report) {
            @let summaries = view.metric.summaries(report, view.grouping);
            @if !summaries.is_empty() {
                div class=(view.class()) { (table(report, view, &summaries)) }
            }
        }
    }
}

/// The findings of every candidate, by the metric to trust; nothing for a sweep, whose results are
/// the table.
fn findings(report: &Report) -> Markup {
    let results = key_results::of(report, Grouping::Five);
    if results.is_empty() || report.is_sweep() {
        return Markup::default();
    }
    let cpu_first = results.iter().any(|result| result.finding.metric == Metric::Cpu);
    html! {
        p.sentence {
            "Compared with " strong { (report.baseline) } "."
            @if cpu_first { " " (CPU_FIRST) }
        }
        div.findings {
            @for of_candidate in results.chunk_by(|a, b| a.candidate == b.candidate) {
                (findings_of(report, of_candidate[0].candidate, of_candidate))
            }
        }
        @if let Some(command) = command(&report.directory, &results) {
            p.sentence { "To measure longer: " code { (command) } }
        }
    }
}

/// Differences from the baseline per candidate; its card has all.
const MAX_DIFFERENCES: usize = 4;

fn findings_of(report: &Report, name: &str, results: &[KeyResult<'_>]) -> Markup {
    html! {
        h3 {
            (Marker::of(report, name, Role::Candidate).label(name))
            @if let Some(what) = summary_of(report, name, MAX_DIFFERENCES) { " " small { (what) } }
        }
        ul {
            @for result in results {
                @let findings = result.findings();
                @if let Some(first) = findings.first() {
                    li.(class(first.verdict())) {
                        span.group { (breakable(result.group)) } " "
                        div {
                            b { (first.words()) }
                            @if let Some(more) = &result.more_time { "; " (more.words()) }
                            @for finding in &findings[1..] { div.muted { (finding.words()) } }
                        }
                    }
                }
            }
        }
    }
}

fn table(report: &Report, view: View, summaries: &[GroupSummary]) -> Markup {
    let content = html! {
        table.matrix {
            caption.hidden { "Median " (view.metric.title()) " per group" }
            @if report.is_sweep() {
                (rows_by_clients(report, view, summaries))
            } @else {
                (rows_by_group(report, view, summaries))
            }
        }
    };
    scrollable("Medians", content)
}

/// One row per candidate and one column per group.
fn rows_by_group(report: &Report, view: View, summaries: &[GroupSummary]) -> Markup {
    let groups: BTreeSet<&str> = summaries.iter().map(|one| one.group.as_str()).collect();
    html! {
        thead { tr {
            th scope="col" { "Candidate" }
            @for group in &groups { th scope="col" { (breakable(group)) } }
        } }
        tbody {
            @for candidate in compared(report) {
                tr {
                    (label(report, candidate))
                    @for group in &groups {
                        (cell(report, view, summaries, |one| {
                            one.group == *group && one.candidate == candidate.name
                        }))
                    }
                }
            }
        }
    }
}

/// One row per group and candidate, and one column per number of clients.
fn rows_by_clients(report: &Report, view: View, summaries: &[GroupSummary]) -> Markup {
    let groups: BTreeSet<&str> = summaries.iter().map(|one| one.group.as_str()).collect();
    let steps = report.clients();
    let candidates = compared(report);
    html! {
        thead { tr {
            th scope="col" { "Group" }
            th scope="col" { "Candidate" }
            @for step in &steps { th scope="col" { (clients(*step)) } }
        } }
        @for group in groups {
            tbody {
                @for (index, candidate) in candidates.iter().enumerate() {
                    tr {
                        @if index == 0 {
                            th.group scope="rowgroup" rowspan=(candidates.len()) { (group) }
                        }
                        (label(report, candidate))
                        @for step in &steps {
                            (cell(report, view, summaries, |one| {
                                (one.group.as_str(), one.clients) == (group, *step)
                                    && one.candidate == candidate.name
                            }))
                        }
                    }
                }
            }
        }
    }
}

fn label(report: &Report, candidate: &CandidateRecord) -> Markup {
    let marker = Marker::of(report, &candidate.name, candidate.role);
    html! { th scope="row" { (marker.label(&candidate.name)) } }
}

/// The median of the matching group; a dash if there is none.
fn cell(
    report: &Report,
    view: View,
    summaries: &[GroupSummary],
    matches: impl Fn(&GroupSummary) -> bool,
) -> Markup {
    let Some(summary) = summaries.iter().find(|one| matches(one)) else {
        return html! { td { "–" } };
    };
    let verdict = view.metric.verdict_of_group(report, summary);
    html! {
        td.(class(verdict)) {
            b { (ratio(summary.median)) } " " (sign(verdict, view.metric))
        }
    }
}
