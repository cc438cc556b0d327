//! Exports of the report: HTML page, Markdown, CSV tables, JSON.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use dbdyno_text::decimals;
use dbdyno_units::Ratio;
use serde::Serialize;

use crate::inserts;
use crate::key_results::{self, KeyResult};
use crate::metric::Grouping;
use crate::model::{MicrobenchmarkRows, Report};
use crate::sections::counters::counters_csv;
use crate::sections::effects::effects_csv;
use crate::sections::operations::latency_csv;
pub use crate::sections::operations::relative_csv;
use crate::sections::series::changes_csv;
use crate::sections::summaries::summary_csv;
use crate::sections::sweep::scaling_csv;
use crate::{html, markdown};

/// The version of the JSON structure; it changes when a field is renamed, removed or changes its meaning.
pub const RUN_JSON_FORMAT: u32 = 3;

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(
        "cannot write {}: {source}; check that the directory exists, that you may write to it and \
         that the disk is not full",
        path.display()
    )]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot make {file} from the report: {source}; please report this as a bug of dbdyno")]
    Encode { file: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
}

/// Write the page, the Markdown text, the tables and `run.json` to `dir`, which is created if missing.
/// Returns the paths.
///
/// Each file is written under a temporary name in `dir` and renamed, so a reader sees the complete
/// old or new file. Files that were written before an error remain.
pub fn write_all(report: &Report, dir: &Path) -> Result<Vec<PathBuf>, ExportError> {
    let mut contents =
        vec![("report.html", html::render(report)), ("report.md", markdown::render(report))];
    let mut tables = tables(report);
    let rest = tables.split_off(2);
    contents.extend(tables);
    contents.push(("run.json", run_json(report)?));
    contents.extend(rest);
    contents.into_iter().map(|(name, text)| replace(dir, name, &text)).collect()
}

/// The CSV tables with their file names. Two are always made; the others only if there is something to
/// say.
pub fn tables(report: &Report) -> Vec<(&'static str, String)> {
    let mut tables = match &report.insert {
        None => vec![("relative.csv", relative_csv(report)), ("summary.csv", summary_csv(report))],
        Some(insert) => vec![
            ("insert_steps.csv", inserts::steps_csv(insert)),
            ("insert_series.csv", inserts::series_csv(insert)),
        ],
    };
    let mut add = |is_known: bool, name: &'static str, make: fn(&Report) -> String| {
        if is_known {
            tables.push((name, make(report)));
        }
    };
    let counted = |one: &MicrobenchmarkRows| {
        let candidates = one.rows.iter().map(|row| &row.absolute);
        candidates.chain([&one.baseline]).any(|absolute| !absolute.counters.is_empty())
    };
    let all = &report.microbenchmarks;
    add(!report.scaling.is_empty(), "scaling.csv", scaling_csv);
    add(all.iter().any(|one| one.baseline.latency.is_some()), "latency.csv", latency_csv);
    add(all.iter().any(counted), "counters.csv", counters_csv);
    add(!report.effects.is_empty(), "effects.csv", effects_csv);
    add(!report.series.is_empty(), "changes.csv", changes_csv);
    tables
}

/// The whole report with all numbers, except single blocks, as JSON.
pub fn run_json(report: &Report) -> Result<String, ExportError> {
    #[derive(Serialize)]
    struct Exported<'a> {
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
    versioned_json("run.json", RUN_JSON_FORMAT, &Exported { report: &report, key_results })
}

/// A result with the format version.
pub(crate) fn versioned_json<T: Serialize>(
    file: &'static str,
    format: u32,
    content: &T,
) -> Result<String, ExportError> {
    #[derive(Serialize)]
    struct Exported<'a, T> {
        format: u32,
        #[serde(flatten)]
        content: &'a T,
    }
    let mut text = serde_json::to_string_pretty(&Exported { format, content })
        .map_err(|source| ExportError::Encode { file, source: source.into() })?;
    text.push('\n');
    Ok(text)
}

/// Ratios have six decimals in every table, which is more precise than any interval.
pub(crate) fn ratio(ratio: Option<Ratio>) -> String {
    decimals(ratio.map(Ratio::get), 6)
}

/// Values with a unit have three decimals.
pub(crate) fn number(number: Option<f64>) -> String {
    decimals(number, 3)
}

/// Write a file under a temporary name and rename it.
pub fn replace(dir: &Path, name: &str, text: &str) -> Result<PathBuf, ExportError> {
    let path = dir.join(name);
    match write(dir, &path, name, text) {
        Ok(()) => Ok(path),
        Err(source) => Err(ExportError::Write { path, source }),
    }
}

fn write(dir: &Path, path: &Path, name: &str, text: &str) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    // The temporary file is removed if anything fails before it is renamed.
    let mut builder = tempfile::Builder::new();
    let prefix = format!(".{name}.");
    builder.prefix(&prefix);
    // Temporary files are private by default; a report should be readable for others, as far as the
    // user's umask permits.
    #[cfg(unix)]
    builder.permissions(<Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666));
    let mut file = builder.tempfile_in(dir)?;
    file.write_all(text.as_bytes())?;
    // Otherwise the new name could refer to an empty file after a system crash.
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests;
