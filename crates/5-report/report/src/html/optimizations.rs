//! Live optimizations of servers: a table with a row for each.

use dbdyno_units::grouped;
use maud::{Markup, display, html};

use super::elements::{breakable, or_dash, scrollable, section};
use crate::model::{BlockCounts, Optimization, Report};

const TEXT_COLUMNS: [&str; 4] = ["Candidate", "Trained with", "Before", "Sampled by"];

const NUMBER_COLUMNS: [&str; 7] =
    ["Samples", "Functions moved", "Skipped", "Hot code", "Cold code", "Longest pause", "Duration"];

pub(super) fn render(report: &Report) -> Markup {
    if report.optimizations.is_empty() {
        return Markup::default();
    }
    let table = html! {
        table.facts {
            thead { tr {
                @for heading in TEXT_COLUMNS { th scope="col" { (heading) } }
                @for heading in NUMBER_COLUMNS { th.num scope="col" { (heading) } }
            } }
            tbody { @for optimization in &report.optimizations { (row(optimization)) } }
        }
    };
    let content = html! {
        p.muted {
            "The layout of the hot code of these servers was rewritten while they ran, after a \
             warm-up that all candidates had."
        }
        (scrollable("Live optimizer", table))
    };
    section("optimizations", "Live optimizer", content)
}

fn row(one: &Optimization) -> Markup {
    let layout = &one.layout;
    let skipped: u64 = layout.skipped.iter().map(|(_, count)| count).sum();
    html! {
        tr {
            th scope="row" { (breakable(&one.candidate)) }
            td { (one.trained_with) }
            td {
                (one.measured_next)
                @if one.after_restart { " (after a restart)" }
                @if let Some(reason) = &one.refused { ": not optimized: " (reason) }
                @else if layout.processes != 1 { " in " (layout.processes) " processes" }
                @if let Some((count, reason)) = &layout.unchanged {
                    " " (count) " unchanged: " (reason)
                }
            }
            td {
                (layout.source)
                @match &layout.counts {
                    Some(BlockCounts::Counted { lost, .. }) => {
                        ", executions counted (" (display(*lost)) " lost)"
                    }
                    Some(BlockCounts::Estimated { reason }) => {
                        ", executions estimated: " (reason)
                    }
                    None => {}
                }
            }
            td.num {
                (grouped(layout.samples))
                @if one.refused.is_none() { " (" (or_dash(layout.covered)) " moved)" }
            }
            @if one.refused.is_some() {
                @for _ in &NUMBER_COLUMNS[1..] { td.num { "–" } }
            } @else {
                td.num { (grouped(layout.functions)) }
                td.num { (grouped(skipped)) }
                td.num { (display(layout.hot)) }
                td.num { (display(layout.cold)) }
                td.num { (display(layout.longest_pause)) }
                td.num { (display(layout.took)) }
            }
        }
    }
}
