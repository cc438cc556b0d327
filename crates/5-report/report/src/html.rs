//! The report as a self-contained HTML page that works offline and without scripts.
//!
//! Charts are inline SVG generated here: SVG from a chart library has fixed colours and cannot
//! follow dark mode, the toggles or the keyboard. All markup is written with maud, which escapes
//! text. The toggles are radio buttons evaluated by CSS, so they work without scripts; the script
//! only shows the details of a microbenchmark in a dialog and moves the focus with the arrow keys.
//! It reads the page's own elements, so that no data is in the page twice.

mod details;
pub(crate) mod document;
mod inserts;
mod page;
mod sweep;

use std::collections::BTreeSet;

use dbdyno_text::{Column, Row as TableRow, Table};
use dbdyno_units::visible;
use document::{breakable, label, with_heading};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use page::{POLICY, SCRIPT, STYLE};

use crate::charts::{self, class};
use crate::key_results::{KeyResult, command};
use crate::metric::{Grouping, compared};
use crate::model::{GroupSummary, Metric, Report, Role};
use crate::sections::builds::builds;
use crate::sections::key_results::summaries;
use crate::sections::operations::counters;
use crate::sections::overview::{optimizations, rates_of_scripts, state_snapshots};
use crate::sections::series::{comes_first, effects, series};
use crate::sections::sweep::by_clients;
use crate::sections::{Output, Section, candidate, groups, mark, median_cell, profile};
use crate::words::{CPU_FIRST, NOTHING_MEASURED, differs_in_effect, summary_of};

pub fn render(report: &Report) -> String {
    let page = |of: fn(&Report, Output) -> Section| document::section(&of(report, Output::Page));
    let results = if report.insert.is_some() { "#inserts" } else { "#comparison" };
    let body = html! {
        a.skip href=(results) { "Skip to the results" }
        (page::header(report))
        main {
            (page::failures_and_warnings(report))
            @if let Some(insert) = &report.insert {
                div.toolbar { (page::legend(report)) }
                (inserts::render(insert))
            } @else {
                (page::toolbar(report))
                @if !comes_first(report) { (key_results(report)) }
            }
            @if !report.microbenchmarks.is_empty() { (results_of_microbenchmarks(report)) }
            (page(builds))
            (page::candidates(report))
            (page(optimizations))
            (document::section(&state_snapshots(report)))
            (page::environment(report))
        }
        (page::footer(report))
        script { (PreEscaped(SCRIPT)) }
    };
    document(&report.name, body)
}

/// A complete HTML document with this body, without characters that control a terminal or turn text around.
pub(crate) fn document(title: &str, body: Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(*POLICY);
                meta name="color-scheme" content="light dark";
                link rel="icon" href="data:,";
                title { (title) " – dbdyno" }
                style { (PreEscaped(STYLE)) }
            }
            body { (charts::definitions()) (body) }
        }
    };
    visible(&page.0).into_owned()
}

/// The document about several runs: the differences between them, and content of this class.
pub(crate) fn of_runs(
    title: &str,
    class: Option<&str>,
    notes: &[String],
    content: Markup,
) -> String {
    let notes = html! { @for note in notes { li { (note) } } };
    let body = html! {
        header {
            p.brand { "dbdyno" }
            h1 { (breakable(title)) }
        }
        main class=[class] {
            (page::note("warning", "notes", "Differences between the runs", notes))
            (content)
        }
    };
    document(title, body)
}

/// All tables and charts of a run of microbenchmarks.
fn results_of_microbenchmarks(report: &Report) -> Markup {
    let page = |of: fn(&Report, Output) -> Section| document::section(&of(report, Output::Page));
    let tables = html! {
        (page::how_to_read(report))
        @for rates in rates_of_scripts(report, false) {
            p { b { "Events (transactions) and queries per second" } " " (rates) }
        }
        @for view in views(report) {
            div class=(view.class) {
                (document::blocks(&groups::groups(report, view.metric, view.grouping)))
            }
        }
    };
    html! {
        (page(series))
        (sweep::render(report))
        (page(effects))
        @if comes_first(report) {
            @let all = html! { details { summary { "Every candidate relative to the baseline" } (tables) } };
            (with_heading("comparison", "Microbenchmarks", all))
        } @else {
            (with_heading("comparison", "Microbenchmarks", tables))
        }
        (group_summaries(report))
        (page(counters))
        (page(profile::summary))
        (details::render(report))
    }
}

/// The summaries of groups, by view.
fn group_summaries(report: &Report) -> Markup {
    let content = html! {
        @for view in views(report) {
            @let section = summaries(report, view.metric, view.grouping, Output::Page);
            @if !section.blocks.is_empty() {
                div class=(view.class) { (document::blocks(&section.blocks)) }
            }
        }
    };
    if content.0.is_empty() { content } else { with_heading("groups", "Groups", content) }
}

/// A combination of the two toggles.
#[derive(Clone, Copy)]
struct View {
    grouping: Grouping,
    metric: Metric,
    /// The CSS classes that hide and show it.
    class: &'static str,
}

const VIEWS: [View; 4] = [
    View { grouping: Grouping::Five, metric: Metric::Qps, class: "view five qps" },
    View { grouping: Grouping::Five, metric: Metric::Cpu, class: "view five cpu" },
    View { grouping: Grouping::Three, metric: Metric::Qps, class: "view three qps" },
    View { grouping: Grouping::Three, metric: Metric::Cpu, class: "view three cpu" },
];

/// The views with data: without CPU times there is only one metric.
fn views(report: &Report) -> impl Iterator<Item = View> {
    VIEWS.into_iter().filter(|view| report.has(view.metric))
}

fn key_results(report: &Report) -> Markup {
    html! {
        section.key aria-labelledby="h-key" {
            h2 #h-key { "Key results" }
            @if report.microbenchmarks.is_empty() { p { (NOTHING_MEASURED) } }
            (findings(report))
            // The medians of a single microbenchmark would repeat its finding.
            @for view in views(report).filter(|_| report.microbenchmarks.len() > 1) {
                @let summaries = report.summaries_of(view.metric, view.grouping);
                @if !summaries.is_empty() {
                    div class=(view.class) { (document::table(&medians(report, view, &summaries))) }
                }
            }
        }
    }
}

/// The findings of every candidate, by the metric to trust; nothing for a sweep, whose results are
/// the table.
fn findings(report: &Report) -> Markup {
    let results = crate::key_results::of(report, Grouping::Five);
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
        @for one in report.candidates.iter().filter(|one| one.name == name) {
            @for difference in differs_in_effect(report, one) {
                p.muted { "Differs in effect: " (difference) }
            }
        }
        ul {
            @for result in results {
                @let findings = result.findings();
                @if let Some(first) = findings.first() {
                    li.(class(first.verdict().tone())) {
                        span.group { (breakable(&report.group_label(result.group))) } " "
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
fn medians(report: &Report, view: View, summaries: &[GroupSummary]) -> Table {
    if report.is_sweep() {
        return by_clients(report, view.metric, view.grouping);
    }
    let groups: BTreeSet<&str> = summaries.iter().map(|one| one.group.as_str()).collect();
    let titles = groups.iter().map(|group| Column::number(report.group_label(group)));
    let columns = [Column::name("Candidate")].into_iter().chain(titles);
    let caption = format!("Median {} per group", view.metric.title());
    let mut table = Table::new(columns).class("matrix").caption(caption);
    for one in compared(report) {
        let cells = groups.iter().map(|group| {
            let mut all = summaries.iter();
            let found =
                all.find(|summary| summary.group == *group && summary.candidate == one.name);
            median_cell(report, view.metric, found)
        });
        let name = [candidate(report, &one.name, one.role)];
        table.push(TableRow::new(name.into_iter().chain(cells)));
    }
    table
}

#[cfg(test)]
mod tests;
