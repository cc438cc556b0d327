//! Main effects of the settings of matrices, and certain interactions.

use super::paint::{Paint, plain, width, wrap};
use super::table;
use crate::effects::{EffectTable, KEY, tables};
use crate::figures::{plus_minus, ratio};
use crate::model::{Effect, Report};

/// Columns of an effect: two spaces and `1.034 + ±0.5%`.
const CELL: usize = 15;

/// The heading of the first column.
const HEADING: &str = "microbenchmark";

/// The label of the last line.
const MEAN: &str = "geometric mean";

pub(super) fn render(out: &mut String, report: &Report, room: usize, paint: Paint) {
    let tables = tables(report);
    for one in &tables {
        let about = format!("  of the settings of {} on QPS", plain(one.matrix));
        out.push_str(&format!("\n{}{}\n", paint.bold("effects"), paint.dim(&about)));
        for columns in columns_that_fit(one, room) {
            matrix(out, one, columns, room, paint);
        }
        for line in one.interactions.iter().flat_map(|sentence| wrap(&plain(sentence), room)) {
            out.push_str(&format!("{line}\n"));
        }
    }
    if !tables.is_empty() {
        for line in wrap(KEY, room) {
            out.push_str(&format!("{}\n", paint.dim(&line)));
        }
    }
}

/// Ranges of columns that fit into a line each.
fn columns_that_fit(of: &EffectTable<'_>, room: usize) -> Vec<std::ops::Range<usize>> {
    let names = of.rows.iter().map(|(name, _)| width(name)).chain([HEADING, MEAN].map(width));
    let names = names.max().unwrap_or(0);
    let mut ranges = Vec::new();
    let (mut start, mut used) = (0, names);
    for (number, change) in of.changes.iter().enumerate() {
        let column = CELL.max(width(&change.title()) + 2);
        if number > start && used + column > room {
            ranges.push(start..number);
            (start, used) = (number, names);
        }
        used += column;
    }
    ranges.push(start..of.changes.len());
    ranges
}

fn matrix(
    out: &mut String,
    of: &EffectTable<'_>,
    columns: std::ops::Range<usize>,
    room: usize,
    paint: Paint,
) {
    let titles = of.changes[columns.clone()].iter().map(|change| change.title());
    let heading = std::iter::once(HEADING.to_owned()).chain(titles).collect();
    let mut rows: Vec<Vec<String>> = of
        .rows
        .iter()
        .map(|(name, effects)| {
            let cells =
                effects.get(columns.clone()).unwrap_or_default().iter().map(|one| cell(one));
            std::iter::once(name.clone()).chain(cells).collect()
        })
        .collect();
    let means = &of.means()[columns];
    if means.iter().any(Option::is_some) {
        // In the column of the ratios, before sign and interval.
        let shown = means
            .iter()
            .map(|mean| mean.map_or_else(String::new, |mean| format!("{}        ", ratio(mean))));
        rows.push(std::iter::once(MEAN.to_owned()).chain(shown).collect());
    }
    let mut lines = table::lines(heading, rows, 1, room).into_iter();
    let heading = lines.next().unwrap_or_default();
    let rule = "─".repeat(width(&heading));
    out.push_str(&format!("{heading}\n{}\n", paint.dim(&rule)));
    for line in lines {
        out.push_str(&format!("{line}\n"));
    }
}

/// The ratio with the sign of its verdict and its interval.
fn cell(effect: &Effect) -> String {
    let sign = effect.verdict.sign();
    match effect.relative_qps {
        Some(estimate) => {
            format!("{} {sign} {:>5}", ratio(estimate.median), plus_minus(estimate))
        }
        None => format!("{sign}      "),
    }
}
