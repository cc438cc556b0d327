//! Import of published results into a run directory, so that the same reports can be made of them.
//! Supported are published tables and sysbench output.
//!
//! Each value becomes a slice, repeated values become blocks. What a file does not contain stays
//! unknown: a table has no CPU time, and one value has no interval.

mod error;
mod names;
mod store;
mod sysbench;
mod table;
mod value;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

pub use error::ImportError;

use names::shorten;
use value::{Measure, Value, number_blocks};

/// What to import, and the destination.
#[derive(Clone, Debug)]
pub struct Request {
    /// The files, in the order in which repeated values are numbered.
    pub files: Vec<PathBuf>,
    /// The run directory to create.
    pub out: PathBuf,
    /// The run's name; default: the name of the first file.
    pub name: Option<String>,
    /// The name of the baseline; default: the first candidate found.
    pub baseline: Option<String>,
    /// The number of clients for values from tables, which do not contain it.
    pub clients: u32,
    /// The time of the import, RFC 3339.
    pub now: String,
    /// dbdyno's version.
    pub version: String,
}

/// Summary of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The candidates, baseline first.
    pub candidates: Vec<String>,
    /// Number of microbenchmarks, counted once per number of clients.
    pub microbenchmarks: usize,
    /// Number of values.
    pub values: usize,
    /// Microbenchmarks without a published group, which are in the group `other`.
    pub ungrouped: Vec<String>,
    /// Microbenchmarks without a value of the baseline, which reports leave out.
    pub without_baseline: Vec<String>,
}

/// Maximum number of values.
const MAX_VALUES: usize = 100_000;

/// Maximum size of a file in bytes.
const MAX_FILE: u64 = 64 << 20;

/// The text of a regular file; a pipe or a device could have no end.
fn read(path: &Path) -> io::Result<String> {
    let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
    if !std::fs::metadata(path)?.is_file() {
        return Err(invalid("not a regular file"));
    }
    let mut text = String::new();
    let size = File::open(path)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if size as u64 > MAX_FILE { Err(invalid("larger than 64 MiB")) } else { Ok(text) }
}

/// Read the files and create a run directory.
///
/// # Errors
/// A file cannot be read or parsed, the baseline is unknown, or the run cannot be written.
/// Nothing is written before all files have been parsed.
pub fn import(request: &Request) -> Result<Imported, ImportError> {
    let mut values: Vec<Value> = Vec::new();
    let mut text = String::new();
    let mut columns: Vec<String> = Vec::new();
    for path in &request.files {
        let content =
            read(path).map_err(|source| ImportError::Read { path: path.clone(), source })?;
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&format!("{}:\n", path.display()));
        if sysbench::is_output(&content) {
            let found = sysbench::read(path, &content)?;
            found.iter().for_each(|value| text.push_str(&sysbench::describe(value)));
            values.extend(found);
        } else {
            let found = table::read(path, &content, request.clients)?;
            text.push_str(&content);
            columns.extend(found.iter().map(|value| value.candidate.clone()));
            values.extend(found);
        }
    }
    if values.len() > MAX_VALUES {
        return Err(ImportError::TooMuch { what: format!("{} values", values.len()) });
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
    number_blocks(&mut values);
    if values.is_empty() {
        return Err(ImportError::Nothing);
    }
    store::store(request, &values, text)
}
