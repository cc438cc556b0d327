use super::{Cell, Column, Comparison, RatioRow};
use crate::export::{ExportError, decimals, table};

/// The columns of the comparison's table.
pub const COMPARISON_HEADER: [&str; 13] = [
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

fn line(comparison: &Comparison, row: &RatioRow, column: &Column, cell: &Cell) -> [String; 13] {
    let ratio = |value: Option<f64>| decimals(value, 6);
    [
        column.label.clone(),
        column.run.clone(),
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
        row.agreement.words(&comparison.columns),
    ]
}
