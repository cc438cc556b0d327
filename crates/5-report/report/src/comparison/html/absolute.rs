//! Absolute figures of the runs beside each other.

use maud::{Markup, html};

use super::{column_heads, marker};
use crate::comparison::{AbsoluteFigure, AbsoluteRow, Change, Column, Comparison, Figure, words};
use crate::figures::{compact, ratio};
use crate::html::elements::{breakable, section};
use crate::html::verdict::class;
use crate::model::Verdict;

/// Nothing if no column is compared with another one.
pub(super) fn render(comparison: &Comparison) -> Markup {
    let candidates = comparison.absolute_candidates();
    // With ratios to a baseline, these are the result; absolute figures can be opened.
    let open = comparison.rows.is_empty();
    let content = html! {
        p.muted { (words::CAUTION) }
        p.muted { (words::CHANGE_KEY.replace("- worse", "− worse")) }
        @for sentence in words::drift(comparison) { p.sentence { (sentence) } }
        @for candidate in candidates {
            details.figures open[open] {
                summary {
                    (breakable(candidate))
                    @for change in comparison.changes.iter().filter(|it| it.candidate == candidate) {
                        small { (words::change(comparison, change)) }
                    }
                }
                div.detail {
                    @for figure in AbsoluteFigure::ALL { (table(comparison, candidate, figure)) }
                }
            }
        }
    };
    html! {
        @if !comparison.changes.is_empty() {
            (section("absolute", "Absolute figures", content))
        } @else if !comparison.absolute.is_empty() {
            p { (words::NO_COUNTERPART) }
        }
    }
}

fn table(comparison: &Comparison, candidate: &str, figure: AbsoluteFigure) -> Markup {
    let known = |row: &&AbsoluteRow| {
        row.candidate == candidate
            && row.cells.iter().flatten().any(|cell| cell.figure(figure).is_some())
    };
    let rows: Vec<&AbsoluteRow> = comparison.absolute.iter().filter(known).collect();
    let title = figure.title();
    html! {
        @if !rows.is_empty() {
            h4 { (title) }
            div.scroll.cards.values tabindex="0" role="region" aria-label=(title) {
                table.groups {
                    thead { tr {
                        th scope="col" { "Microbenchmark" }
                        (column_heads(&comparison.columns))
                        @for (column, earlier) in comparison.compared_columns() {
                            th.num scope="col" { (quotient_title(comparison, column, earlier)) }
                        }
                    } }
                    tbody { @for row in rows { (line(comparison, row, figure)) } }
                }
            }
        }
    }
}

fn quotient_title(comparison: &Comparison, column: usize, earlier: usize) -> String {
    let label = |column: usize| &comparison.columns[column].label;
    format!("{}/{}", label(column), label(earlier))
}

fn line(comparison: &Comparison, row: &AbsoluteRow, figure: AbsoluteFigure) -> Markup {
    let of = |column: usize| row.cells[column].as_ref().and_then(|cell| cell.figure(figure));
    let rows_per_second = figure == AbsoluteFigure::Qps && row.throughput_unit.contains("rows");
    html! {
        tr {
            th scope="row" {
                (breakable(&row.microbenchmark))
                @if rows_per_second { " " small { "(" (row.throughput_unit) ")" } }
            }
            @for (index, column) in comparison.columns.iter().enumerate() {
                (value(index, column, of(index)))
            }
            @for (column, earlier) in comparison.compared_columns() {
                @let title = quotient_title(comparison, column, earlier);
                (quotient(&title, figure, of(column).and_then(|figure| figure.change.as_ref())))
            }
        }
    }
}

fn value(index: usize, column: &Column, figure: Option<&Figure>) -> Markup {
    let Some(Figure { value, interval, .. }) = figure else {
        return html! { td.num data-c=(column.label) { "–" } };
    };
    html! {
        td.num.{ (marker(index).class()) } data-c=(column.label) {
            b { (compact(*value)) }
            @if let Some((low, high)) = interval {
                small { (compact(*low)) " to " (compact(*high)) }
            }
        }
    }
}

fn quotient(title: &str, figure: AbsoluteFigure, change: Option<&Change>) -> Markup {
    let Some(Change { ratio: middle, quotient, verdict }) = change else {
        return html! { td.num data-c=(title) { "–" } };
    };
    let sign = match verdict {
        Verdict::Worse => '−',
        other => other.sign(),
    };
    let word = figure.word(*verdict);
    html! {
        td.num.(class(*verdict)) data-c=(title) {
            b { (ratio(*middle)) } " " span.sign title=(word) aria-hidden="true" { (sign) }
            span.hidden { (word) }
            @if let Some(quotient) = quotient {
                small { (ratio(quotient.low)) " to " (ratio(quotient.high)) }
            }
        }
    }
}
