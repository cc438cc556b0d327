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
use crate::scaling::{GroupScaling, KEY, NOT_INTERLEAVED, is_any_not_interleaved};

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
                        @let of = |number: u32| row.iter().find(|one| one.clients == number);
                        tr {
                            @if index == 0 {
                                th.group scope="rowgroup" rowspan=(2 * rows.len()) { (group[0].group) }
                            }
                            th scope="row" rowspan="2" {
                                (Marker::of(report, row[0].candidate, row[0].role).label(row[0].candidate))
                            }
                            th scope="row" { "QPS" }
                            @for number in &numbers[1..] {
                                (cell(of(*number).and_then(|one| one.qps), Metric::Qps))
                            }
                        }
                        tr {
                            th scope="row" { "p99" }
                            @for number in &numbers[1..] {
                                (cell(of(*number).and_then(|one| one.p99), Metric::Cpu))
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
    let content = html! {
        table.facts {
            thead { tr {
                th scope="col" { "Candidate" }
                th.num scope="col" { "Clients" }
                th.num scope="col" { "Throughput" }
                th.num scope="col" { "Throughput ÷ fewer clients" }
                th.num scope="col" { "Throughput ÷ fewest" }
                th.num scope="col" { "p99" }
                th.num scope="col" { "p99 ÷ fewer clients" }
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
                            (step(row))
                        }
                    }
                }
            }
        }
    };
    scrollable("Results with more clients relative to those with fewer", content)
}

fn step(row: &ScalingRow) -> Markup {
    let (previous, smallest) = (row.to_previous.as_ref(), row.to_smallest.as_ref());
    let turns = if previous.is_some_and(|to| !to.interleaved) { "*" } else { "" };
    html! {
        td.num { (row.clients) (turns) }
        td.num { (or_dash(row.qps)) }
        (compared(previous.map(|to| (to.relative_qps, to.verdict)), Metric::Qps))
        (compared(smallest.map(|to| (to.relative_qps, to.verdict)), Metric::Qps))
        td.num { @match row.p99 { Some(p99) => { (display(p99)) } None => { "–" } } }
        (compared(previous.map(|to| (to.relative_p99, to.p99_verdict)), Metric::Cpu))
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
