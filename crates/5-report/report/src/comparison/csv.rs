use super::absolute::AbsoluteFigure;
use super::{AbsoluteCell, AbsoluteRow, Cell, Column, Comparison, RatioRow, agreement};
use crate::export::{ExportError, table};
use dbdyno_text::decimals;

/// The columns of the comparison's table.
pub const COMPARISON_HEADER: [&str; 19] = [
    "column",
    "run",
    "machine",
    "clients",
    "baseline",
    "candidate",
    "group",
    "microbenchmark",
    "relative_qps",
    "ci_low",
    "ci_high",
    "verdict",
    "agreement",
    "directory",
    "started",
    "difference_between",
    "difference",
    "difference_low",
    "difference_high",
];

/// The columns of the table of absolute figures.
pub const ABSOLUTE_HEADER: [&str; 32] = [
    "column",
    "run",
    "directory",
    "started",
    "machine",
    "clients",
    "candidate",
    "group",
    "microbenchmark",
    "unit",
    "compared_with",
    "qps",
    "qps_low",
    "qps_high",
    "qps_change",
    "qps_change_low",
    "qps_change_high",
    "qps_verdict",
    "cpu_us_per_query",
    "cpu_us_per_query_low",
    "cpu_us_per_query_high",
    "cpu_change",
    "cpu_change_low",
    "cpu_change_high",
    "cpu_verdict",
    "p99_us",
    "p99_us_low",
    "p99_us_high",
    "p99_change",
    "p99_change_low",
    "p99_change_high",
    "p99_verdict",
];

/// One line per candidate, microbenchmark and column. An unknown value is an empty field.
///
/// # Errors
/// The table cannot be encoded.
pub fn csv(comparison: &Comparison) -> Result<String, ExportError> {
    let written = table(&COMPARISON_HEADER, |writer| {
        for row in &comparison.rows {
            for (column, cell) in comparison.columns.iter().zip(&row.cells) {
                if let Some(cell) = cell {
                    writer.write_record(line(comparison, row, column, cell))?;
                }
            }
        }
        Ok(())
    });
    written.map_err(|source| ExportError::Encode { file: "comparison.csv", source: source.into() })
}

fn line(comparison: &Comparison, row: &RatioRow, column: &Column, cell: &Cell) -> [String; 19] {
    let ratio = |value: Option<f64>| decimals(value, 6);
    let run = &comparison.runs[column.run];
    let difference = row.difference.as_ref();
    let quotient = difference.map(|difference| difference.quotient);
    [
        column.label.clone(),
        run.name.clone(),
        column.machine.clone(),
        column.clients.to_string(),
        column.baseline.clone(),
        row.candidate.clone(),
        row.group.clone(),
        row.microbenchmark.clone(),
        ratio(cell.ratio.map(|value| value.get())),
        ratio(cell.estimate.map(|estimate| estimate.low.get())),
        ratio(cell.estimate.map(|estimate| estimate.high.get())),
        cell.verdict.name().to_owned(),
        row.agreement.words().to_owned(),
        run.directory.clone(),
        run.started.clone(),
        difference.map_or_else(String::new, |one| agreement::between(one, &comparison.columns)),
        ratio(quotient.map(|quotient| quotient.ratio.get())),
        ratio(quotient.map(|quotient| quotient.low.get())),
        ratio(quotient.map(|quotient| quotient.high.get())),
    ]
}

/// Absolute figures: one line per candidate, including the baseline, microbenchmark and column.
///
/// # Errors
/// The table cannot be encoded.
pub fn absolute_csv(comparison: &Comparison) -> Result<String, ExportError> {
    let written = table(&ABSOLUTE_HEADER, |writer| {
        for row in &comparison.absolute {
            for (column, cell) in comparison.columns.iter().zip(&row.cells) {
                if let Some(cell) = cell {
                    writer.write_record(absolute_line(comparison, row, column, cell))?;
                }
            }
        }
        Ok(())
    });
    let file = "comparison_absolute.csv";
    written.map_err(|source| ExportError::Encode { file, source: source.into() })
}

fn absolute_line(
    comparison: &Comparison,
    row: &AbsoluteRow,
    column: &Column,
    cell: &AbsoluteCell,
) -> Vec<String> {
    let run = &comparison.runs[column.run];
    let compared_with = column.compared_with.map(|index| comparison.columns[index].label.clone());
    let mut line = vec![
        column.label.clone(),
        run.name.clone(),
        run.directory.clone(),
        run.started.clone(),
        column.machine.clone(),
        column.clients.to_string(),
        row.candidate.clone(),
        row.group.clone(),
        row.microbenchmark.clone(),
        row.throughput_unit.clone(),
        compared_with.unwrap_or_default(),
    ];
    for kind in AbsoluteFigure::ALL {
        let figure = cell.figure(kind);
        let change = figure.and_then(|figure| figure.change);
        let interval = figure.and_then(|figure| figure.interval);
        let quotient = change.and_then(|change| change.quotient);
        line.extend([
            decimals(figure.map(|figure| figure.value), 3),
            decimals(interval.map(|(low, _)| low), 3),
            decimals(interval.map(|(_, high)| high), 3),
            decimals(change.map(|change| change.ratio.get()), 6),
            decimals(quotient.map(|quotient| quotient.low.get()), 6),
            decimals(quotient.map(|quotient| quotient.high.get()), 6),
            change.map_or_else(String::new, |change| kind.word(change.verdict).to_owned()),
        ]);
    }
    line
}
