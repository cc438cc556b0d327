//! Key results: findings in words, and the medians of groups.

use std::collections::BTreeSet;

use dbdyno_text::{Cell, Column, Row as TableRow, Table};
use maud::{Markup, html};

use super::document::{self, breakable, class, label};
use super::{View, views};
use crate::key_results::{self, KeyResult, command};
use crate::metric::{Grouping, compared};
use crate::model::{GroupSummary, Metric, Report, Role};
use crate::sections::sweep::by_clients;
use crate::sections::{candidate, mark, ratio_cell};
use crate::words::{CPU_FIRST, NOTHING_MEASURED, summary_of};

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
            @let summaries = report.summaries_of(view.metric, view.grouping);
            @if !summaries.is_empty() {
                div class=(view.class()) { (document::table(&table(report, view, &summaries))) }
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
            (label(mark(report, name, Role::Candidate), name))
            @if let Some(what) = summary_of(report, name, MAX_DIFFERENCES) { " " small { (what) } }
        }
        ul {
            @for result in results {
                @let findings = result.findings();
                @if let Some(first) = findings.first() {
                    li.(class(first.verdict().tone())) {
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

/// The median of every group and candidate.
fn table(report: &Report, view: View, summaries: &[GroupSummary]) -> Table {
    if report.is_sweep() {
        return by_clients(report, view.metric, view.grouping);
    }
    let groups: BTreeSet<&str> = summaries.iter().map(|one| one.group.as_str()).collect();
    let titles = groups.iter().map(|group| Column::number(*group));
    let columns = [Column::name("Candidate")].into_iter().chain(titles);
    let caption = format!("Median {} per group", view.metric.title());
    let mut table = Table::new(columns).class("matrix").caption(caption);
    for one in compared(report) {
        let cells = groups.iter().map(|group| {
            let mut all = summaries.iter();
            let found =
                all.find(|summary| summary.group == *group && summary.candidate == one.name);
            found.map_or_else(Cell::dash, |summary| {
                let verdict = report.verdict_of_group(view.metric, summary);
                ratio_cell(summary.median, view.metric, verdict)
            })
        });
        let name = [candidate(report, &one.name, one.role)];
        table.push(TableRow::new(name.into_iter().chain(cells)));
    }
    table
}
