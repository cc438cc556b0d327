//! The comparison of several runs as a self-contained HTML page, styled like a report.

mod absolute;
mod facts;
mod machines;

use maud::{Markup, html};

use super::{Cell, Column, Comparison, GroupRow, RatioRow, agreement, words};
use crate::figures::{ends, ratio};
use crate::html::document;
use crate::html::elements::{breakable, or_dash, scrollable, section};
use crate::html::lanes::{self, Lane, point_estimate};
use crate::html::marker::Marker;
use crate::html::notes::note;
use crate::html::scale::Scale;
use crate::html::verdict::{class, sign};
use crate::metric::Metric;
use crate::model::{Estimate, GroupSummary, Role, Verdict};

/// Highest number of runs at which a table fits a wide window and its header may be sticky.
const FITTING_RUNS: usize = 4;

/// Render the page.
#[must_use]
pub fn html(comparison: &Comparison) -> String {
    let title = format!("{} runs side by side", comparison.runs.len());
    let candidates = comparison.relative_candidates();
    let notes = html! { @for note in &comparison.notes { li { (note) } } };
    let body = html! {
        header {
            p.brand { "dbdyno" }
            h1 { (title) }
        }
        main {
            (note("warning", "notes", "Differences between the runs", notes))
            (section("runs", "Runs", runs(comparison)))
            (facts::render(comparison))
            @if comparison.absolute.is_empty() { p { (words::NOTHING) } }
            @if !candidates.is_empty() { (how_to_read()) }
            @if let Some(text) = words::only_in_one(comparison) { p { (text) } }
            (machines::render(comparison))
            @for candidate in candidates { (results_of_candidate(comparison, candidate)) }
            (absolute::render(comparison))
        }
    };
    document(&title, body).into_string()
}

/// Colour and shape of a run's marker.
const fn marker(index: usize) -> Marker {
    Marker::new(index, Role::Candidate)
}

fn runs(comparison: &Comparison) -> Markup {
    let cell = |title: &str, text: &str| html! { td.at data-c=(title) { (text) } };
    let titles = [
        "Run",
        "Directory",
        "Started",
        "Machine",
        "Clients",
        "Tables × rows",
        "Baseline",
        "Noise floor",
    ];
    html! {
        div.scroll.cards tabindex="0" role="region" aria-label="Runs" {
            table.groups {
                thead { tr { @for title in titles { th scope="col" { (title) } } } }
                tbody {
                    @for (index, column) in comparison.columns.iter().enumerate() {
                        @let run = &comparison.runs[column.run];
                        tr {
                            th scope="row" {
                                (marker(index).inline()) b { (column.label) } " "
                                (breakable(&run.name))
                            }
                            td.at data-c="directory" { (facts::path(&run.directory)) }
                            (cell("started", &run.when()))
                            (cell("machine", &column.machine))
                            (cell("clients", &column.clients.to_string()))
                            (cell("tables × rows", &or_dash(column.data.as_ref())))
                            (cell("baseline", &column.baseline))
                            (cell("noise floor", &column.noise))
                        }
                    }
                }
            }
        }
    }
}

fn how_to_read() -> Markup {
    html! {
        p.muted {
            b.better { "+" } " better than the baseline of the same run, " b.worse { "−" }
            " worse, " b { "~" } " within noise (hollow marker). Whiskers and the numbers below a \
            ratio are its 95% confidence interval. The last column compares the runs with each \
            other: the most certain difference between two of them, as the quotient of their \
            ratios, with an interval that allows for the noise floors and for the number of runs."
        }
    }
}

fn results_of_candidate(comparison: &Comparison, candidate: &str) -> Markup {
    let rows: Vec<&RatioRow> =
        comparison.rows.iter().filter(|row| row.candidate == candidate).collect();
    html! {
        section {
            h2 { (breakable(candidate)) }
            p.sentence { (words::agreement(comparison, candidate)) }
            (groups(comparison, candidate))
            @for group in rows.chunk_by(|a, b| a.group == b.group) {
                (microbenchmarks(&comparison.columns, group))
            }
        }
    }
}

/// The column headings of the runs.
fn column_heads(columns: &[Column]) -> Markup {
    html! {
        @for (index, column) in columns.iter().enumerate() {
            th.num scope="col" { (marker(index).inline()) (column.label) }
        }
    }
}

fn groups(comparison: &Comparison, candidate: &str) -> Markup {
    let rows = comparison.summaries_of(candidate);
    if rows.is_empty() {
        return html! {};
    }
    let content = html! {
        table.facts {
            thead { tr { th scope="col" { "Group" } (column_heads(&comparison.columns)) } }
            tbody {
                @for GroupRow { group, cells, .. } in rows {
                    tr {
                        th scope="row" { (breakable(group)) }
                        @for cell in cells { td.num { (group_cell(cell.as_ref())) } }
                    }
                }
            }
        }
    };
    html! {
        h3 {
            "Groups "
            small {
                "relative QPS: median, then min and max, then the worst and the best \
                 microbenchmark"
            }
        }
        (scrollable("Groups", content))
    }
}

fn group_cell(summary: Option<&GroupSummary>) -> Markup {
    let Some(summary) = summary else { return html! { "–" } };
    html! {
        b { (ratio(summary.median)) }
        small { (ratio(summary.min)) " – " (ratio(summary.max)) }
        small { "worst " (breakable(&summary.worst)) }
        small { "best " (breakable(&summary.best)) }
    }
}

fn microbenchmarks(columns: &[Column], rows: &[&RatioRow]) -> Markup {
    let cells = rows.iter().flat_map(|row| row.cells.iter().flatten());
    let estimates: Vec<Estimate> = cells.filter_map(drawn_estimate).collect();
    let scale = Scale::of_estimates(&estimates);
    let group = rows.first().map_or("", |row| row.group.as_str());
    html! {
        h3 { (group) " " small { "relative QPS, above 1 is better" } }
        div.scroll.compare.fits[columns.len() <= FITTING_RUNS]
            tabindex="0" role="region" aria-label=(group) {
            table {
                thead { tr {
                    th scope="col" { "Microbenchmark" }
                    (lanes::column_head(&scale))
                    (column_heads(columns))
                    th scope="col" { "Agreement" }
                } }
                tbody {
                    @for row in rows {
                        tr {
                            th scope="row" { (breakable(&row.microbenchmark)) }
                            td.chart { (chart(&scale, &row.cells)) }
                            @for (column, cell) in columns.iter().zip(&row.cells) {
                                (value(column, cell.as_ref()))
                            }
                            td.at.agreement { (agreement_of(row, columns)) }
                        }
                    }
                }
            }
        }
    }
}

fn agreement_of(row: &RatioRow, columns: &[Column]) -> Markup {
    let words = row.agreement.words();
    html! {
        @if row.agreement.is_difference() { b { (words) } } @else { (words) }
        @if let Some(difference) = &row.difference {
            small { (agreement::describe(difference, columns)) }
        }
    }
}

fn value(column: &Column, cell: Option<&Cell>) -> Markup {
    let Some(cell) = cell else {
        return html! { td.num data-c=(column.label) { "–" } };
    };
    let verdict = cell.verdict;
    html! {
        td.num.(class(verdict)) data-c=(column.label) {
            @match cell.ratio {
                Some(value) => {
                    b { (ratio(value)) } " " (sign(verdict, Metric::Qps))
                    small { (or_dash(cell.estimate.map(ends))) }
                }
                None if verdict == Verdict::Failed => { "failed" }
                None => { "too few blocks" }
            }
        }
    }
}

fn chart(scale: &Scale, cells: &[Option<Cell>]) -> Markup {
    let lane = |(index, cell): (usize, &Option<Cell>)| {
        let cell = cell.as_ref()?;
        let class = class(cell.verdict);
        Some(Lane { marker: marker(index), class, estimate: drawn_estimate(cell)? })
    };
    let lanes: Vec<Option<Lane>> = cells.iter().enumerate().map(lane).collect();
    lanes::chart(scale, None, &lanes)
}

/// The estimate to draw.
fn drawn_estimate(cell: &Cell) -> Option<Estimate> {
    cell.estimate.or_else(|| cell.ratio.map(point_estimate))
}
