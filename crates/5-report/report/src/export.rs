//! Exports of the report: HTML page, CSV tables, JSON.

mod files;
mod tables;

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::html;
use crate::inserts;
use crate::key_results::{self, KeyResult};
use crate::markdown;
use crate::metric::Grouping;
use crate::model::{MicrobenchmarkRows, Report};

pub use files::replace;
pub use tables::{
    CHANGES_HEADER, COUNTERS_HEADER, EFFECTS_HEADER, LATENCY_HEADER, RELATIVE_HEADER,
    SCALING_HEADER, SUMMARY_HEADER,
};
pub(crate) use tables::{decimals, table};

/// The format version of `run.json`; incremented if a field is renamed or changes its meaning.
pub const RUN_JSON_FORMAT: u32 = 3;

/// A file could not be written.
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
        /// The system's error.
        source: io::Error,
    },
    /// The content could not be encoded.
    #[error("cannot make {file} from the report: {source}; please report this as a bug of dbdyno")]
    Encode {
        /// The file's name.
        file: &'static str,
        /// What went wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Write `report.html`, `report.md`, `relative.csv`, `summary.csv` and `run.json` to `dir`, which is created if
/// missing. An insert benchmark has `insert_steps.csv` and `insert_series.csv` instead of the two
/// tables. `scaling.csv` of a sweep, `latency.csv` and `counters.csv` follow if response times and counters are known,
/// `effects.csv` with a matrix of settings, `changes.csv` with a series of candidates. Returns
/// the paths in this order.
///
/// Each file is written under a temporary name in `dir` and renamed, so a reader sees the complete
/// old or new file.
///
/// # Errors
/// A file cannot be encoded or written. Files that were written before remain.
pub fn write_all(report: &Report, dir: &Path) -> Result<Vec<PathBuf>, ExportError> {
    let page = ("report.html", html::render(report));
    let text = ("report.md", markdown::render(report));
    let json = ("run.json", run_json(report)?);
    let mut contents = match &report.insert {
        None => vec![
            page,
            text,
            ("relative.csv", relative_csv(report)?),
            ("summary.csv", summary_csv(report)?),
            json,
        ],
        Some(insert) => vec![
            page,
            text,
            ("insert_steps.csv", insert_csv("insert_steps.csv", inserts::steps(insert))?),
            ("insert_series.csv", insert_csv("insert_series.csv", inserts::series(insert))?),
            json,
        ],
    };
    if !report.scaling.is_empty() {
        contents.push(("scaling.csv", scaling_csv(report)?));
    }
    if report.microbenchmarks.iter().any(|one| one.baseline.latency.is_some()) {
        contents.push(("latency.csv", latency_csv(report)?));
    }
    let counted = |one: &MicrobenchmarkRows| {
        let candidates = one.rows.iter().map(|row| &row.absolute);
        candidates.chain([&one.baseline]).any(|absolute| !absolute.counters.is_empty())
    };
    if report.microbenchmarks.iter().any(counted) {
        contents.push(("counters.csv", counters_csv(report)?));
    }
    if !report.effects.is_empty() {
        contents.push(("effects.csv", effects_csv(report)?));
    }
    if !report.series.is_empty() {
        contents.push(("changes.csv", changes_csv(report)?));
    }
    contents.into_iter().map(|(name, text)| replace(dir, name, &text)).collect()
}

fn insert_csv(
    file: &'static str,
    table: Result<String, csv::Error>,
) -> Result<String, ExportError> {
    table.map_err(|source| ExportError::Encode { file, source: source.into() })
}

/// One line per microbenchmark and candidate, including the control. An unknown value is an empty
/// field.
///
/// # Errors
/// The table cannot be encoded.
pub fn relative_csv(report: &Report) -> Result<String, ExportError> {
    tables::relative(report)
        .map_err(|source| ExportError::Encode { file: "relative.csv", source: source.into() })
}

/// Of a sweep, one line per microbenchmark, candidate and number of clients: relative to the next
/// smaller number, and one relative to the smallest.
///
/// # Errors
/// The table cannot be encoded.
pub fn scaling_csv(report: &Report) -> Result<String, ExportError> {
    tables::scaling(report)
        .map_err(|source| ExportError::Encode { file: "scaling.csv", source: source.into() })
}

/// One line per microbenchmark, candidate and percentile of response times, including the baseline.
///
/// # Errors
/// The table cannot be encoded.
pub fn latency_csv(report: &Report) -> Result<String, ExportError> {
    tables::latency(report)
        .map_err(|source| ExportError::Encode { file: "latency.csv", source: source.into() })
}

/// One line per microbenchmark, candidate and counter figure, including the baseline.
///
/// # Errors
/// The table cannot be encoded.
pub fn counters_csv(report: &Report) -> Result<String, ExportError> {
    tables::counters(report)
        .map_err(|source| ExportError::Encode { file: "counters.csv", source: source.into() })
}

/// One line per matrix, microbenchmark, and setting or pair of settings.
///
/// # Errors
/// The table cannot be encoded.
pub fn effects_csv(report: &Report) -> Result<String, ExportError> {
    tables::effects(report)
        .map_err(|source| ExportError::Encode { file: "effects.csv", source: source.into() })
}

/// One line per series, microbenchmark and pair of neighbours, the largest certain change first.
///
/// # Errors
/// The table cannot be encoded.
pub fn changes_csv(report: &Report) -> Result<String, ExportError> {
    tables::changes(report)
        .map_err(|source| ExportError::Encode { file: "changes.csv", source: source.into() })
}

/// One line per group (five groups) and candidate.
///
/// # Errors
/// The table cannot be encoded.
pub fn summary_csv(report: &Report) -> Result<String, ExportError> {
    tables::summary(report)
        .map_err(|source| ExportError::Encode { file: "summary.csv", source: source.into() })
}

/// The whole report with the format version, without the ratios of the blocks, which are in
/// `run.sqlite`.
///
/// # Errors
/// The report cannot be encoded.
pub fn run_json(report: &Report) -> Result<String, ExportError> {
    #[derive(Serialize)]
    struct Exported<'a> {
        format: u32,
        #[serde(flatten)]
        report: &'a Report,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        key_results: Vec<KeyResult<'a>>,
    }
    let mut report = report.clone();
    for microbenchmark in &mut report.microbenchmarks {
        for row in &mut microbenchmark.rows {
            row.ratios.clear();
        }
    }
    let key_results = key_results::of(&report, Grouping::Five);
    let exported = Exported { format: RUN_JSON_FORMAT, report: &report, key_results };
    let mut text = serde_json::to_string_pretty(&exported)
        .map_err(|source| ExportError::Encode { file: "run.json", source: source.into() })?;
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
mod tests;
