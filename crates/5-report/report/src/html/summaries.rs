//! Group summaries: the distribution of the ratios, and the best and the worst microbenchmark. A group
//! with a single microbenchmark has none: it would repeat one figure.

use maud::{Markup, html};

use super::elements::{breakable, or_dash, section};
use super::key_results::group_label;
use super::marker::Marker;
use super::verdict::{class, sign};
use super::{View, views};
use crate::figures::ratio;
use crate::model::{GroupSummary, Report};

pub(super) fn render(report: &Report) -> Markup {
    let content = html! {
        @for view in views(report) {
            @let summaries = view.metric.summaries(report, view.grouping);
            @let summaries: Vec<&GroupSummary> =
                summaries.iter().filter(|summary| summary.has_spread()).collect();
            @if !summaries.is_empty() { (table(report, view, &summaries)) }
        }
    };
    if content.0.is_empty() { content } else { section("groups", "Groups", content) }
}

fn table(report: &Report, view: View, summaries: &[&GroupSummary]) -> Markup {
    let groups = summaries.chunk_by(|a, b| (&a.group, a.clients) == (&b.group, b.clients));
    html! {
        div.scroll.cards.{ (view.class()) } tabindex="0" role="region" aria-label="Groups" {
            table.groups {
                caption.hidden { (view.metric.title()) " of each group and candidate" }
                thead { tr {
                    th scope="col" { "Group" }
                    th scope="col" { "Candidate" }
                    @for title in ["Count", "Min", "Max", "Avg", "Median", "Stddev"] {
                        th.num scope="col" { (title) }
                    }
                    th scope="col" { "Worst" }
                    th scope="col" { "Best" }
                } }
                @for group in groups {
                    tbody {
                        @for (line, summary) in group.iter().enumerate() {
                            tr {
                                @if line == 0 {
                                    th.group scope="rowgroup" rowspan=(group.len()) {
                                        (breakable(&group_label(report, summary)))
                                    }
                                }
                                (cells(report, view, summary))
                            }
                        }
                    }
                }
            }
        }
    }
}

fn cells(report: &Report, view: View, summary: &GroupSummary) -> Markup {
    let number = |label, text: String| html! { td.num data-c=(label) { (text) } };
    let verdict = view.metric.verdict_of_group(report, summary);
    html! {
        th scope="row" {
            (Marker::of(report, &summary.candidate, summary.role).label(&summary.candidate))
        }
        (number("count", summary.count.to_string()))
        (number("min", ratio(summary.min)))
        (number("max", ratio(summary.max)))
        (number("avg", ratio(summary.avg)))
        td.num.(class(verdict)) data-c="median" {
            b { (ratio(summary.median)) } " " (sign(verdict, view.metric))
        }
        (number("stddev", or_dash(summary.stddev.map(|value| format!("{value:.3}")))))
        td.at data-c="worst" { (link(report, summary, &summary.worst)) }
        td.at data-c="best" { (link(report, summary, &summary.best)) }
    }
}

/// A microbenchmark's name as a link to its details.
fn link(report: &Report, summary: &GroupSummary, name: &str) -> Markup {
    let mut all = report.microbenchmarks.iter();
    let index = all.position(|one| one.name == name && one.clients == summary.clients);
    html! {
        @match index {
            Some(index) => { a.open href={ "#m" (index) } { (breakable(name)) } }
            None => { (name) }
        }
    }
}
