//! Results with more clients relative to those with fewer, as tables.

use dbdyno_units::Ratio;
use maud::{Markup, display, html};

use super::super::elements::{or_dash, scrollable};
use super::super::marker::Marker;
use super::super::verdict::{class, sign};
use super::super::views;
use crate::figures::{ends, ratio};
use crate::metric::{Metric, clients};
use crate::model::{Estimate, Report, ScalingRow, Verdict};
use crate::scaling::{GroupScaling, KEY, NOT_INTERLEAVED, is_any_not_interleaved, known_metrics};

/// A matrix with the medians of each group: a column per number of clients but the smallest.
pub(super) fn by_group(report: &Report) -> Markup {
    if report.scaling.is_empty() {
        return Markup::default();
    }
    let numbers = report.clients();
    html! {
        h3 { "More clients against fewer" }
        p.muted { (KEY) " Medians of the groups." }
        @for view in views(report).filter(|view| view.metric == Metric::Qps) {
            @let medians = crate::scaling::by_group(report, view.grouping);
            div class=(view.class_of_grouping()) {
                (scrollable("More clients against fewer", matrix(report, &numbers, &medians)))
            }
        }
        @if is_any_not_interleaved(report) { p.muted { (NOT_INTERLEAVED) } }
    }
}

fn matrix(report: &Report, numbers: &[u32], medians: &[GroupScaling<'_>]) -> Markup {
    let metrics = known_metrics(medians);
    html! {
        table.matrix {
            thead { tr {
                th scope="col" { "Group" }
                th scope="col" { "Candidate" }
                th scope="col" { "Metric" }
                @for pair in numbers.windows(2) {
                    th scope="col" { (pair[1]) " : " (clients(pair[0])) }
                }
            } }
            @for group in medians.chunk_by(|a, b| a.group == b.group) {
                @let rows: Vec<_> = group.chunk_by(|a, b| a.candidate == b.candidate).collect();
                tbody {
                    @for (index, row) in rows.iter().enumerate() {
                        @for (line, (name, metric, of)) in metrics.iter().enumerate() {
                            tr {
                                @if (index, line) == (0, 0) {
                                    th.group scope="rowgroup" rowspan=(metrics.len() * rows.len()) {
                                        (group[0].group)
                                    }
                                }
                                @if line == 0 {
                                    th scope="row" rowspan=(metrics.len()) {
                                        (Marker::of(report, row[0].candidate, row[0].role)
                                            .label(row[0].candidate))
                                    }
                                }
                                th scope="row" { (name) }
                                @for number in &numbers[1..] {
                                    @let found = row.iter().find(|one| one.clients == *number);
                                    (cell(found.and_then(of), *metric))
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn cell(median: Option<(Ratio, Verdict)>, metric: Metric) -> Markup {
    let Some((median, verdict)) = median else { return html! { td { "–" } } };
    html! { td.(class(verdict)) { b { (ratio(median)) } " " (sign(verdict, metric)) } }
}

/// A row per candidate and number of clients, with intervals.
pub(super) fn of_microbenchmark(report: &Report, name: &str) -> Markup {
    let rows: Vec<&ScalingRow> =
        report.scaling.iter().filter(|row| row.microbenchmark == name).collect();
    if rows.is_empty() {
        return Markup::default();
    }
    let mut ratios = rows.iter().filter_map(|row| row.to_previous.as_ref());
    let with_p99 = ratios.any(|to| to.relative_p99.is_some());
    let content = html! {
        table.facts.by-clients {
            thead { tr {
                th scope="col" { "Candidate" }
                th.num scope="col" { "Clients" }
                th.num scope="col" { "Throughput" }
                th.num scope="col" { "Throughput ÷ fewer clients" }
                th.num scope="col" { "Throughput ÷ fewest" }
                th.num scope="col" { "p99" }
                @if with_p99 { th.num scope="col" { "p99 ÷ fewer clients" } }
            } }
            @for of_one in rows.chunk_by(|a, b| a.candidate == b.candidate) {
                tbody {
                    @for (index, row) in of_one.iter().enumerate() {
                        tr {
                            @if index == 0 {
                                th.group scope="rowgroup" rowspan=(of_one.len()) {
                                    (Marker::of(report, &row.candidate, row.role)
                                        .label(&row.candidate))
                                }
                            }
                            (step(row, with_p99))
                        }
                    }
                }
            }
        }
    };
    scrollable("Results with more clients relative to those with fewer", content)
}

fn step(row: &ScalingRow, with_p99: bool) -> Markup {
    let (previous, smallest) = (row.to_previous.as_ref(), row.to_smallest.as_ref());
    let turns = if previous.is_some_and(|to| !to.interleaved) { "*" } else { "" };
    html! {
        td.num { (row.clients) (turns) }
        td.num { (or_dash(row.qps)) }
        (compared(previous.map(|to| (to.relative_qps, to.verdict)), Metric::Qps))
        (compared(smallest.map(|to| (to.relative_qps, to.verdict)), Metric::Qps))
        td.num { @match row.p99 { Some(p99) => { (display(p99)) } None => { "–" } } }
        @if with_p99 {
            (compared(previous.map(|to| (to.relative_p99, to.p99_verdict)), Metric::Cpu))
        }
    }
}

/// A ratio with its interval; empty for the fewest clients.
fn compared(ratio_to: Option<(Option<Estimate>, Verdict)>, metric: Metric) -> Markup {
    let Some((estimate, verdict)) = ratio_to else { return html! { td.num {} } };
    let Some(estimate) = estimate else { return html! { td.num { "–" } } };
    html! {
        td.num.(class(verdict)) {
            b { (ratio(estimate.median)) } " " (sign(verdict, metric))
            small { (ends(estimate)) }
        }
    }
}
