//! Key results: a sentence and a small table with the median of every group and candidate.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::elements::{breakable, scrollable};
use super::marker::Marker;
use super::verdict::{class, sign};
use super::{View, views};
use crate::figures::ratio;
use crate::metric::{Metric, clients, compared};
use crate::model::{CandidateRecord, GroupSummary, Report, Role};
use crate::words::NOTHING_MEASURED;

pub(super) fn render(report: &Report) -> Markup {
    html! {
        section.key aria-labelledby="h-key" {
            h2 #h-key { "Key results" }
            @if report.microbenchmarks.is_empty() { p { (NOTHING_MEASURED) } }
            @for view in views(report) {
                @let summaries = view.metric.summaries(report, view.grouping);
                @if !summaries.is_empty() {
                    div class=(view.class()) {
                        (sentence(report, view, &summaries))
                        (table(report, view, &summaries))
                    }
                }
            }
        }
    }
}

/// Each candidate's least and greatest median, with their groups.
fn sentence(report: &Report, view: View, summaries: &[GroupSummary]) -> Markup {
    let ranges: Vec<Markup> = compared(report)
        .iter()
        .filter(|candidate| candidate.role == Role::Candidate)
        .filter_map(|candidate| {
            let own = || summaries.iter().filter(|summary| summary.candidate == candidate.name);
            let least = own().min_by(|a, b| a.median.get().total_cmp(&b.median.get()))?;
            let most = own().max_by(|a, b| a.median.get().total_cmp(&b.median.get()))?;
            let median = |one: &GroupSummary| {
                format!("{} ({})", ratio(one.median), group_label(report, one))
            };
            Some(html! {
                strong { (candidate.name) } " " (median(least))
                @if !std::ptr::eq(least, most) { " to " (median(most)) }
            })
        })
        .collect();
    if ranges.is_empty() {
        return Markup::default();
    }
    let metric = match view.metric {
        Metric::Qps => "Throughput",
        Metric::Cpu => "CPU time per query",
    };
    html! {
        p.sentence {
            (metric) " relative to " strong { (report.baseline) } ", median of each group: "
            @for (index, range) in ranges.iter().enumerate() {
                @if index > 0 { "; " }
                (range)
            }
            "."
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

/// The group's name, with the number of clients in a sweep.
pub(super) fn group_label(report: &Report, summary: &GroupSummary) -> String {
    match report.is_sweep() {
        true => format!("{}, {}", summary.group, clients(summary.clients)),
        false => summary.group.clone(),
    }
}
