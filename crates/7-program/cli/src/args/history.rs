//! The command that follows an experiment over time.

use std::path::PathBuf;

use clap::Args;

use super::When;

/// Show where the results of repeated runs of an experiment changed for good.
///
/// Each run measures its baseline again, so that changes of the machine between two runs cancel out. A
/// figure is the relative QPS or relative CPU per query of a candidate, by microbenchmark and group.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno history results/\n  \
    dbdyno history results/nightly-*\n  \
    dbdyno history results/ --experiment nightly --html history.html\n  \
    dbdyno history results/ --export-json history.json --export-csv history.csv\n\n\
    Needs at least 5 runs with the same baseline, matched by the names of candidates and \
    microbenchmarks and ordered by the time they started. A change is listed between two runs, with its \
    size, 95% interval and p-value. A single run that is far off is no change.")]
pub struct History {
    /// Run directories, or directories that hold run directories
    #[arg(required = true, value_name = "DIR")]
    pub directories: Vec<PathBuf>,
    /// Use only runs of the experiment with this name
    #[arg(long, value_name = "NAME")]
    pub experiment: Option<String>,
    /// Write a page with charts
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write all runs, figures and changes as JSON
    #[arg(long, value_name = "FILE")]
    pub export_json: Option<PathBuf>,
    /// Write a line per figure and run as CSV, with the changes
    #[arg(long, value_name = "FILE")]
    pub export_csv: Option<PathBuf>,
    /// When to use colours; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: When,
}
