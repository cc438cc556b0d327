//! Key results, and the tables of groups: a row per microbenchmark with a chart and the values of all
//! candidates.

use std::collections::BTreeSet;

use dbdyno_text::{Cell, Column, Row as TableRow, Table};
use maud::{Markup, html};

use super::charts::{self, Lane, Scale, point_estimate};
use super::elements::{Marker, breakable, class, or_dash, sign};
use super::{View, document, views};
use crate::figures::{ends, ratio};
use crate::key_results::{self, KeyResult, command};
use crate::metric::{Grouping, clients, compared, missing};
use crate::model::{
    CandidateRecord, Estimate, GroupSummary, Metric, MicrobenchmarkRows, Report, Role, Row, Verdict,
};
use crate::sections::sweep::by_clients;
use crate::sections::{candidate, ratio_cell};
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

/// Up to this many candidates the table fits a wide window, and its head may stick to the top.
const FITTING_CANDIDATES: usize = 5;

pub(super) fn group_table(report: &Report, view: View) -> Markup {
    html! {
        div class=(view.class()) {
            @for (group, members) in view.grouping.groups(&report.microbenchmarks) {
                (GroupTable::new(report, view.metric, &members).draw(group, &members))
            }
        }
    }
}

struct GroupTable<'a> {
    report: &'a Report,
    metric: Metric,
    scale: Scale,
    candidates: Vec<&'a CandidateRecord>,
}

impl<'a> GroupTable<'a> {
    fn new(report: &'a Report, metric: Metric, members: &[(usize, &MicrobenchmarkRows)]) -> Self {
        let rows = members.iter().flat_map(|(_, microbenchmark)| &microbenchmark.rows);
        let estimates: Vec<Estimate> = rows.filter_map(|row| drawn_estimate(metric, row)).collect();
        let candidates = compared(report);
        Self { report, metric, scale: Scale::of_estimates(&estimates), candidates }
    }

    fn draw(&self, group: &str, members: &[(usize, &MicrobenchmarkRows)]) -> Markup {
        let mut rows = members.iter().flat_map(|(_, member)| &member.rows);
        let hint = match self.metric {
            Metric::Qps if rows.all(|row| row.trusted_metric == Metric::Cpu) => {
                "; prefer CPU per query here"
            }
            _ => "",
        };
        let baseline = match self.metric {
            Metric::Qps => "Baseline QPS",
            Metric::Cpu => "Baseline CPU µs",
        };
        html! {
            h3 { (group) " " small { (self.metric.title()) ", " (self.metric.better()) (hint) } }
            div.scroll.compare.fits[self.candidates.len() <= FITTING_CANDIDATES]
                tabindex="0" role="region" aria-label=(group) {
                table {
                    thead { tr {
                        th scope="col" { "Microbenchmark" }
                        th.num.base scope="col" { (baseline) }
                        (charts::column_head(&self.scale))
                        @for (index, candidate) in self.candidates.iter().enumerate() {
                            th.num scope="col" {
                                (Marker::new(index, candidate.role).label(&candidate.name))
                            }
                        }
                    } }
                    tbody {
                        @for (index, microbenchmark) in members { (self.row(*index, microbenchmark)) }
                    }
                }
            }
        }
    }

    fn row(&self, index: usize, microbenchmark: &MicrobenchmarkRows) -> Markup {
        let baseline = &microbenchmark.baseline;
        let value = match self.metric {
            Metric::Qps => baseline.qps.map(|qps| qps.to_string()),
            Metric::Cpu => baseline.cpu_us_per_query.map(crate::figures::micros),
        };
        let unit = &microbenchmark.throughput_unit;
        let names_unit = self.metric == Metric::Qps && unit != "statements/s";
        html! {
            tr {
                th scope="row" {
                    a.open href={ "#m" (index) } {
                        (breakable(&microbenchmark.name))
                        @if self.report.is_sweep() {
                            " " small { (clients(microbenchmark.clients)) }
                        }
                    }
                }
                td.num.base data-c="baseline" {
                    (or_dash(value))
                    @if names_unit { " " small { (unit) } }
                }
                td.chart { (self.chart(microbenchmark)) }
                @for candidate in &self.candidates { (self.cell(microbenchmark, candidate)) }
            }
        }
    }

    fn cell(&self, microbenchmark: &MicrobenchmarkRows, candidate: &CandidateRecord) -> Markup {
        let name = &candidate.name;
        let Some(row) = microbenchmark.row(name) else {
            let word = missing(self.report, name);
            return html! { td.num.failed[word == "failed"] data-c=(name) { (word) } };
        };
        let verdict = row.verdict_of(self.metric);
        html! {
            td.num.(class(verdict)) data-c=(name) {
                @match row.ratio(self.metric) {
                    Some(value) => {
                        b { (ratio(value)) } " " (sign(verdict, self.metric))
                        small { (or_dash(row.estimate(self.metric).map(ends))) }
                    }
                    None if verdict == Verdict::Failed => { "failed" }
                    None if !row.is_measured(self.metric) => { "–" }
                    None => { "too few blocks" }
                }
            }
        }
    }

    fn chart(&self, microbenchmark: &MicrobenchmarkRows) -> Markup {
        let lane = |(index, candidate): (usize, &&CandidateRecord)| {
            let row = microbenchmark.row(&candidate.name)?;
            Some(Lane {
                marker: Marker::new(index, candidate.role),
                class: class(row.verdict_of(self.metric)),
                estimate: drawn_estimate(self.metric, row)?,
            })
        };
        let lanes: Vec<Option<Lane>> = self.candidates.iter().enumerate().map(lane).collect();
        let noise = self.report.noise_of(self.metric).map(|noise| noise.as_fraction());
        charts::chart(&self.scale, noise, &lanes)
    }
}

/// The estimate as it is drawn.
fn drawn_estimate(metric: Metric, row: &Row) -> Option<Estimate> {
    row.estimate(metric).or_else(|| row.ratio(metric).map(point_estimate))
}
