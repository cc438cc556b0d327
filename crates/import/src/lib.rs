//! Results that others measured, read into a run directory, so that the same reports can be made
//! of them: published tables, and sysbench's own output.
//!
//! Each value becomes a slice, repeated values become blocks. What a file does not say stays
//! unknown: a table has no CPU time, and one value has no interval.

mod error;
mod names;
mod store;
mod sysbench;
mod table;
mod value;

use std::path::{Path, PathBuf};

pub use error::ImportError;

use names::shorten;
use value::{Measure, Value};

/// What to import, and where to.
#[derive(Clone, Debug)]
pub struct Request {
    /// The files, in the order in which repeated values are numbered.
    pub sources: Vec<Source>,
    /// The run directory to make.
    pub out: PathBuf,
    /// The run's name; that of the first file without it.
    pub name: Option<String>,
    /// The candidate that the others are divided by; the first one found without it.
    pub baseline: Option<String>,
    /// How many clients the values of tables were measured with, which tables do not say.
    pub clients: u32,
    /// The time of the import, RFC 3339.
    pub now: String,
    /// dbdyno's version.
    pub version: String,
}

/// A file to import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Where it is.
    pub path: PathBuf,
    /// Candidate and microbenchmark of sysbench's output, where the file's name is not
    /// `CANDIDATE.MICROBENCHMARK.txt`.
    pub names: Option<(String, String)>,
}

impl Source {
    /// A file whose name or contents say what it holds.
    #[must_use]
    pub fn file(path: &Path) -> Self {
        Self { path: path.to_owned(), names: None }
    }
}

/// What was imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The candidates, baseline first.
    pub candidates: Vec<String>,
    /// Microbenchmarks, each counted once per number of clients.
    pub microbenchmarks: usize,
    /// Values.
    pub values: usize,
    /// Microbenchmarks that have no published group and went into the group `other`.
    pub ungrouped: Vec<String>,
    /// Microbenchmarks that the baseline has no value of: reports leave them out.
    pub without_baseline: Vec<String>,
}

/// Reads the files and makes a run directory of them.
///
/// # Errors
/// A file cannot be read or understood, the baseline is unknown, or the run cannot be written.
/// Nothing is written before all files were understood.
pub fn import(request: &Request) -> Result<Imported, ImportError> {
    let mut values: Vec<Value> = Vec::new();
    let mut text = String::new();
    let mut columns: Vec<String> = Vec::new();
    for source in &request.sources {
        let path = &source.path;
        let content = std::fs::read_to_string(path)
            .map_err(|source| ImportError::Read { path: path.clone(), source })?;
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&format!("{}:\n", path.display()));
        if sysbench::is_output(&content) {
            let found = sysbench::read(source, &content)?;
            found.iter().for_each(|value| text.push_str(&sysbench::describe(value)));
            values.extend(found);
        } else {
            let found = table::read(path, &content, request.clients)?;
            text.push_str(&content);
            columns.extend(found.iter().map(|value| value.candidate.clone()));
            values.extend(found);
        }
    }
    columns.sort();
    columns.dedup();
    let short = shorten(&columns);
    for value in &mut values {
        if let (Measure::Table, Ok(at)) = (&value.measure, columns.binary_search(&value.candidate))
        {
            value.candidate.clone_from(&short[at]);
        }
    }
    if values.is_empty() {
        return Err(ImportError::Nothing);
    }
    store::store(request, &values, text)
}
