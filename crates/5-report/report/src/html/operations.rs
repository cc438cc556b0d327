//! Costs per query: absolute values, then the same relative to the baseline.

use maud::{Markup, html};

use super::details::micros;
use super::elements::{or_dash, scrollable};
use super::marker::Marker;
use crate::figures::{ends, tiny};
use crate::model::{MicrobenchmarkRows, Report};
use crate::operations::{COSTS, COUNTS, Figure, Line, table};

pub(super) fn render(report: &Report, microbenchmark: &MicrobenchmarkRows) -> Markup {
    // Large counts as whole numbers, and small ones with an exponent instead of 0.
    let count = |value: f64| if value < 1.0 { tiny(value) } else { micros(value) };
    html! {
        (one(report, microbenchmark, &COSTS, "Per query", micros))
        (one(report, microbenchmark, &COUNTS, "Counters per query", count))
    }
}

/// A table; nothing where no value is known.
fn one(
    report: &Report,
    microbenchmark: &MicrobenchmarkRows,
    all: &'static [Figure],
    title: &str,
    write: impl Fn(f64) -> String + Copy,
) -> Markup {
    let (figures, lines) = table(report, microbenchmark, all);
    if figures.is_empty() {
        return Markup::default();
    }
    let heading = |text: Markup| {
        html! { tr { th.block scope="rowgroup" colspan=(figures.len() + 1) { (text) } } }
    };
    let content = html! {
        table.facts.operations {
            thead { tr {
                th scope="col" { (title) }
                @for figure in &figures { th.num scope="col" { (figure.long) } }
            } }
            tbody {
                (heading(html! { "absolute" }))
                @for line in &lines {
                    tr {
                        (name(report, line))
                        @for cell in &line.absolute { td.num { (or_dash(cell.map(write))) } }
                    }
                }
            }
            tbody {
                (heading(html! { "relative to " (report.baseline) }))
                @for line in &lines {
                    @if let Some(cells) = &line.relative {
                        tr {
                            (name(report, line))
                            @for (figure, cell) in figures.iter().zip(cells) {
                                td.num { (ratio(figure, line, *cell)) }
                            }
                        }
                    }
                }
            }
        }
    };
    scrollable(title, content)
}

fn name(report: &Report, line: &Line<'_>) -> Markup {
    let candidate = line.candidate;
    let marker = Marker::of(report, &candidate.name, candidate.role);
    html! { th scope="row" { (marker.label(&candidate.name)) } }
}

/// A ratio with its interval where there is one.
fn ratio(figure: &Figure, line: &Line<'_>, ratio: Option<f64>) -> Markup {
    let interval = line.row.and_then(|row| figure.interval(row));
    html! {
        @match ratio {
            None => { "–" }
            Some(ratio) => {
                (format_args!("{ratio:.3}"))
                @if let Some(interval) = interval { small { (ends(interval)) } }
            }
        }
    }
}
