//! Commands that work on run directories.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use dbdyno_report::gate::Rule;

use super::run::positive_count;

/// Print the report of a run and write its exports, or compare several runs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno report results/first\n  \
    dbdyno report results/first --details\n  \
    dbdyno report results/first --markdown > comment.md\n  \
    dbdyno report results/first --fail-if 'worse 2%'\n  \
    dbdyno report results/yesterday results/today\n  \
    dbdyno report results/yesterday results/today --markdown\n  \
    dbdyno report results/small-server results/big-server --out results/both\n\n\
    For one run, complete or not, this writes report.html, report.md and run.json to its directory; of an insert \
    benchmark also insert_steps.csv and insert_series.csv; of others relative.csv and summary.csv, latency.csv \
    and counters.csv if they are known, engine_counters.csv if those of the engines differ, scaling.csv of a sweep, statements.csv of sysbench \
    scripts, effects.csv of a matrix, changes.csv of a series, functions.csv, profile.speedscope.json and stacks/ of \
    a run with a profile, and waits.csv of one with waits. Several runs are \
    compared by candidates of the same name, or if each has only one, by these; --details also \
    prints the absolute figures of runs with several candidates, and --out DIR writes \
    comparison.html, comparison.csv, comparison_absolute.csv and comparison.json.")]
pub struct Report {
    /// Run directories
    #[arg(required = true, value_name = "DIR")]
    pub directories: Vec<PathBuf>,
    /// Write the comparison of several runs, or the report of one, to this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Also print CPU time, context switches, percentiles of response times, counters and statements of each
    /// microbenchmark; of an insert benchmark the whole report, of which otherwise only the answer is printed
    #[arg(long)]
    pub details: bool,
    /// Print GitHub-flavoured Markdown, for a pull request or a wiki
    #[arg(long)]
    pub markdown: bool,
    #[command(flatten)]
    pub gate: Gate,
    #[command(flatten)]
    pub view: View,
}

/// Say in which layers and functions a candidate needs another CPU time than the baseline.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno compare mariadb mariadb:engine=myrocks --profile\n  \
    dbdyno why results/first\n  \
    dbdyno why results/first myrocks point-query_range=100\n  \
    dbdyno why results/first --details --export-json why.json\n\n\
    The run must have been measured with --profile, or with [profile] in its experiment; with --waits it also says \
    where the time per query goes that is no CPU time. report.html \
    has flame graphs, functions.csv all functions, and profile.speedscope.json and stacks/ the stacks for other \
    programs.")]
pub struct Why {
    /// Run directory
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Only this candidate
    #[arg(value_name = "CANDIDATE")]
    pub candidate: Option<String>,
    /// Only this microbenchmark
    #[arg(value_name = "MICROBENCHMARK")]
    pub microbenchmark: Option<String>,
    /// Print all layers and functions, also of many microbenchmarks
    #[arg(long)]
    pub details: bool,
    /// Write the differences of layers and functions as JSON
    #[arg(long, value_name = "FILE")]
    pub export_json: Option<PathBuf>,
    /// When to use colours; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: When,
}

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

/// Import published tables, or output of sysbench or pgbench, as a run directory.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno import published.tsv --out results/published\n  \
    dbdyno import a.point-query.txt b.point-query.txt --baseline a\n\n\
    A table (tabs, CSV or Markdown) has one line per microbenchmark and one column of QPS per \
    candidate. Its first column of figures is the baseline, unless --baseline names another. \
    Files with output of sysbench or pgbench are named CANDIDATE.MICROBENCHMARK.txt; \
    repeated runs are named CANDIDATE.MICROBENCHMARK.1.txt and so on.")]
pub struct Import {
    /// Tables (tabs, CSV, Markdown), or output of `sysbench … run` or pgbench
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Run directory to create [default: results/imported-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Candidate that the others are divided by [default: the first]
    #[arg(long, value_name = "NAME")]
    pub baseline: Option<String>,
    /// Number of clients that the tables were measured with [default: 1]
    #[arg(long, value_name = "N", value_parser = positive_count)]
    pub clients: Option<u32>,
    #[command(flatten)]
    pub view: View,
}

/// Remove the leftovers of an interrupted run: databases, servers, and its schemas on existing servers.
///
/// Measurements are kept.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  dbdyno clean results/quickstart-20260101-120000")]
pub struct Clean {
    /// Run directory
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Also clean a run that you did not make on this machine: connect to the servers that it names
    #[arg(long)]
    pub trust: bool,
}

/// The rules of a gate for continuous integration.
#[derive(Clone, Debug, Default, Args)]
pub struct Gate {
    /// Exit with 3 if a candidate is worse than the baseline by more than this, beyond its 95%
    /// interval and the noise floor: `slower 2%`, `more-cpu 2%`, or `worse 2%` by the metric to
    /// trust; then maybe `in` a group or microbenchmark, and `of` a candidate. Also writes
    /// junit.xml. Can be repeated
    #[arg(long = "fail-if", value_name = "RULE")]
    pub rules: Vec<Rule>,
    /// Also fail where the interval contains the limit of a rule
    #[arg(long, requires = "rules")]
    pub strict: bool,
}

/// How a report is printed.
#[derive(Clone, Copy, Debug, Args)]
pub struct View {
    /// Summarise by the three older groups (point, range, write) instead of five
    #[arg(long)]
    pub three_groups: bool,
    /// When to use colours; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: When,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum When {
    Auto,
    Always,
    Never,
}
