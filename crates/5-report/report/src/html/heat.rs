//! A heat table of a series: microbenchmarks down, up to thirty candidates across.

use maud::{Markup, html};

use super::document::class;
use super::elements::{breakable, scrollable};
use crate::figures::percent_change;
use crate::metric::{Metric, clients};
use crate::model::{Series, SeriesCell, SeriesRow};

pub(crate) fn heat_table(series: &Series, is_sweep: bool) -> Markup {
    let names = series.short_names();
    let content = html! {
        table.heat {
            caption.hidden { "Throughput relative to " (series.candidates[0]) " in percent" }
            thead { tr {
                th scope="col" { "Microbenchmark" }
                @for (name, full) in names.iter().zip(&series.candidates) {
                    th.turned scope="col" title=(full) { span { (name) } }
                }
            } }
            @for rows in series.rows.chunk_by(|a, b| a.group == b.group) {
                tbody {
                    tr { th.group scope="rowgroup" colspan=(names.len() + 1) { (rows[0].group) } }
                    @for row in rows { (heat_row(row, is_sweep)) }
                }
            }
        }
    };
    scrollable("Throughput over the series", content)
}

fn heat_row(row: &SeriesRow, is_sweep: bool) -> Markup {
    html! {
        tr {
            th scope="row" {
                (breakable(&row.microbenchmark))
                @if is_sweep { small { " " (clients(row.clients)) } }
            }
            @for (number, cell) in row.cells.iter().enumerate() {
                @match cell {
                    None => td { "–" }
                    Some(_) if number == 0 => td.first { "0" }
                    Some(cell) => (heat_cell(cell))
                }
            }
        }
    }
}

fn heat_cell(cell: &SeriesCell) -> Markup {
    let percent = 100.0 * (cell.ratio.get() - 1.0);
    html! {
        td.(heat(cell.ratio.get())).(class(cell.verdict.tone()))
            title={ (percent_change(cell.ratio)) ", " (Metric::Qps.word(cell.verdict)) } {
            // Without the sign of percent, so that thirty columns fit.
            (format!("{percent:+.0}").replace('-', "−").replace("+0", "0").replace("−0", "0"))
        }
    }
}

/// The class that colours a ratio: equal steps for a ratio and its reciprocal.
fn heat(ratio: f64) -> &'static str {
    let classes = match ratio.ln().abs() {
        ..0.01 => ["even", "even"],
        ..0.03 => ["up1", "down1"],
        ..0.08 => ["up2", "down2"],
        ..0.20 => ["up3", "down3"],
        _ => ["up4", "down4"],
    };
    classes[usize::from(ratio < 1.0)]
}
