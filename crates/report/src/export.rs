//! The report as files: the page, two tables for spreadsheets and scripts, and everything as JSON.

mod files;
mod tables;

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::html;
use crate::inserts;
use crate::model::Report;

pub use tables::{COUNTERS_HEADER, RELATIVE_HEADER, SUMMARY_HEADER};
pub(crate) use tables::{decimals, table};

/// The version of `run.json`'s layout: goes up when a field changes its name or its meaning.
pub const RUN_JSON_FORMAT: u32 = 3;

/// Why a file could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The directory or a file in it could not be written.
    #[error(
        "cannot write {}: {source}; check that the directory exists, that you may write to it and \
         that the disk is not full",
        path.display()
    )]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The contents could not be made from the report.
    #[error("cannot make {file} from the report: {source}; please report this as a bug of dbdyno")]
    Encode {
        /// The file's name.
        file: &'static str,
        /// What went wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Writes `report.html`, `relative.csv`, `summary.csv` and `run.json` into `dir`, which is created
/// if it is missing; for an insert benchmark `insert_steps.csv` and `insert_series.csv` in place of
/// the two tables. Where something was counted, `counters.csv` comes last. Returns the paths in this
/// order.
///
/// Each file is written under a temporary name in `dir` and renamed: a reader sees the old file or
/// the new one, never half of one.
///
/// # Errors
/// If a file cannot be encoded or written. Files written before it stay.
pub fn write_all(report: &Report, dir: &Path) -> Result<Vec<PathBuf>, ExportError> {
    let page = ("report.html", html::render(report));
    let json = ("run.json", run_json(report)?);
    let mut contents = match &report.insert {
        None => vec![
            page,
            ("relative.csv", relative_csv(report)?),
            ("summary.csv", summary_csv(report)?),
            json,
        ],
        Some(insert) => vec![
            page,
            ("insert_steps.csv", insert_csv("insert_steps.csv", inserts::steps(insert))?),
            ("insert_series.csv", insert_csv("insert_series.csv", inserts::series(insert))?),
            json,
        ],
    };
    if report.microbenchmarks.iter().any(|one| !one.baseline.counters.is_empty()) {
        contents.push(("counters.csv", counters_csv(report)?));
    }
    contents.into_iter().map(|(name, text)| files::replace(dir, name, &text)).collect()
}

fn insert_csv(
    file: &'static str,
    table: Result<String, csv::Error>,
) -> Result<String, ExportError> {
    table.map_err(|source| ExportError::Encode { file, source: source.into() })
}

/// One line per microbenchmark and candidate, the control included. An unknown value is an empty
/// field.
///
/// # Errors
/// If the table cannot be encoded.
pub fn relative_csv(report: &Report) -> Result<String, ExportError> {
    tables::relative(report)
        .map_err(|source| ExportError::Encode { file: "relative.csv", source: source.into() })
}

/// One line per microbenchmark, candidate and figure of what was counted, the baseline included.
///
/// # Errors
/// If the table cannot be encoded.
pub fn counters_csv(report: &Report) -> Result<String, ExportError> {
    tables::counters(report)
        .map_err(|source| ExportError::Encode { file: "counters.csv", source: source.into() })
}

/// One line per group (of five) and candidate.
///
/// # Errors
/// If the table cannot be encoded.
pub fn summary_csv(report: &Report) -> Result<String, ExportError> {
    tables::summary(report)
        .map_err(|source| ExportError::Encode { file: "summary.csv", source: source.into() })
}

/// The whole report with the layout's version, without the ratio of every block: those are in the
/// run's own database.
///
/// # Errors
/// If the report cannot be encoded.
pub fn run_json(report: &Report) -> Result<String, ExportError> {
    #[derive(Serialize)]
    struct Exported<'a> {
        format: u32,
        #[serde(flatten)]
        report: &'a Report,
    }
    let mut report = report.clone();
    for microbenchmark in &mut report.microbenchmarks {
        for row in &mut microbenchmark.rows {
            row.ratios.clear();
        }
    }
    let exported = Exported { format: RUN_JSON_FORMAT, report: &report };
    let mut text = serde_json::to_string_pretty(&exported)
        .map_err(|source| ExportError::Encode { file: "run.json", source: source.into() })?;
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
mod tests;
