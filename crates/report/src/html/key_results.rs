//! Key results: a sentence and a small table with the median of every group and candidate.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::elements::{breakable, scrollable};
use super::marker::Marker;
use super::verdict::{class, sign};
use super::{View, views};
use crate::figures::ratio;
use crate::metric::{Metric, clients, compared};
use crate::model::{GroupSummary, Report, Role};
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

/// One column per group; in a sweep, one per group and number of clients.
fn table(report: &Report, view: View, summaries: &[GroupSummary]) -> Markup {
    let columns: BTreeSet<(&str, u32)> =
        summaries.iter().map(|summary| (summary.group.as_str(), summary.clients)).collect();
    let summary = |column: (&str, u32), candidate: &str| {
        summaries
            .iter()
            .find(|one| (one.group.as_str(), one.clients) == column && one.candidate == candidate)
    };
    let content = html! {
        table.matrix {
            caption.hidden { "Median " (view.metric.title()) " per group" }
            thead { tr {
                th scope="col" { "Candidate" }
                @for (group, at) in &columns {
                    th scope="col" {
                        (breakable(group))
                        @if report.is_sweep() { " " small { (clients(*at)) } }
                    }
                }
            } }
            tbody {
                @for (index, candidate) in compared(report).into_iter().enumerate() {
                    tr {
                        th scope="row" {
                            (Marker::new(index, candidate.role).label(&candidate.name))
                        }
                        @for column in &columns {
                            @match summary(*column, &candidate.name) {
                                None => { td { "–" } }
                                Some(summary) => { (cell(report, view, summary)) }
                            }
                        }
                    }
                }
            }
        }
    };
    scrollable("Medians", content)
}

fn cell(report: &Report, view: View, summary: &GroupSummary) -> Markup {
    let standing = view.metric.standing_of_group(report, summary);
    html! {
        td.(class(standing)) {
            b { (ratio(summary.median)) } " " (sign(standing, view.metric))
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
