//! Hardware and kernel counters by group, and those that are not available.

use dbdyno_units::Share;
use maud::{Markup, html};

use super::elements::{breakable, scrollable, section};
use super::marker::Marker;
use crate::counter_summaries::is_any;
use crate::figures::ratio;
use crate::metric::clients;
use crate::model::CounterFigure;
use crate::model::{CounterSummary, Report};

/// The section; nothing where no counter was requested.
pub(super) fn render(report: &Report) -> Markup {
    if !is_any(report) {
        return Markup::default();
    }
    let content = html! {
        p.muted {
            "Hardware and kernel counters of the system under test during its slices, without a \
             server’s background work between slices. The counters of each microbenchmark are \
             among its details."
        }
        @if let Some(share) = multiplexed(report) {
            p.muted {
                "The CPU has fewer counters than requested, so they were multiplexed: each ran \
                 for at least " (maud::display(share)) " of the time. Their counts are estimates."
            }
        }
        @for one in &report.not_counted {
            p {
                (one.line())
                @if let Some(advice) = &one.advice { small { " – " (advice) } }
            }
        }
        @if !report.counter_groups.is_empty() { (table(report)) }
    };
    section("counters", "Counters", content)
}

/// The least share of the time that a counter ran; `None` if all ran all the time.
fn multiplexed(report: &Report) -> Option<Share> {
    let absolutes = report.microbenchmarks.iter().flat_map(|one| {
        std::iter::once(&one.baseline).chain(one.rows.iter().map(|row| &row.absolute))
    });
    let least =
        absolutes.filter_map(|own| own.counted_time).reduce(|a, b| if b < a { b } else { a });
    // Starting and stopping a counter takes a moment.
    least.filter(|share| share.as_fraction() < 0.99)
}

fn table(report: &Report) -> Markup {
    let group = |one: &CounterSummary| (one.group.clone(), one.clients);
    let content = html! {
        table.groups {
            caption.hidden { "Counters relative to the baseline, by group and candidate" }
            thead { tr {
                th scope="col" { "Group" }
                th scope="col" { "Candidate" }
                th.num scope="col" { "Count" }
                @for figure in CounterFigure::OF_GROUPS { th.num scope="col" { (figure.title()) } }
            } }
            @for of_group in report.counter_groups.chunk_by(|a, b| group(a) == group(b)) {
                (rows(report, of_group))
            }
        }
    };
    scrollable("Counters by group", content)
}

/// The rows of one group: one per candidate.
fn rows(report: &Report, of_group: &[CounterSummary]) -> Markup {
    let members: Vec<&[CounterSummary]> =
        of_group.chunk_by(|a, b| a.candidate == b.candidate).collect();
    html! {
        tbody {
            @for (line, figures) in members.iter().enumerate() {
                @let first = &figures[0];
                tr {
                    @if line == 0 {
                        th.group scope="rowgroup" rowspan=(members.len()) {
                            (breakable(&first.group))
                            @if report.is_sweep() { ", " (clients(first.clients)) }
                        }
                    }
                    th scope="row" {
                        (Marker::of(report, &first.candidate, first.role).label(&first.candidate))
                    }
                    td.num data-c="count" { (first.count) }
                    @for figure in CounterFigure::OF_GROUPS {
                        td.num data-c="median" {
                            @match figures.iter().find(|one| one.figure == figure) {
                                Some(one) => { (median(one)) }
                                None => { "–" }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The median, with the least and the greatest ratio if there are several.
fn median(one: &CounterSummary) -> Markup {
    html! {
        b { (ratio(one.median)) }
        @if one.count > 1 { small { (ratio(one.min)) " – " (ratio(one.max)) } }
    }
}
