//! The command that finds the commit that changed a figure.

use std::path::PathBuf;

use clap::Args;

/// Find the commit of a git repository that made a candidate slower or faster.
///
/// Builds the good and the bad revision and measures them. Then each step builds a commit between
/// them and measures it side by side with both, until one commit is left whose figure is like that
/// of the bad revision and whose parent's is like that of the good one. Whether the change made it
/// slower or faster is found out.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno bisect my.toml --good v3.49.0 --bad v3.50.0\n  \
    dbdyno bisect my.toml --good 1a2b3c4 --bad main -m scan_range=100 --out results/bisect\n  \
    dbdyno bisect my.toml --good v1 --bad HEAD --first-parent --export-json bisect.json\n\n\
    The candidate has its source in a git repository:\n  \
    source = { git = \"https://example.org/sqlite.git\", revision = \"main\" }\n\n\
    Ctrl-C stops after the current slice; the same command with the same --out continues. The exit \
    code is 0 if the commit was found, 1 if good and bad do not differ or several commits remain, and \
    2 if a revision or the experiment is not valid.")]
pub struct Bisect {
    /// Experiment file
    #[arg(value_name = "EXPERIMENT")]
    pub file: PathBuf,
    /// Revision before the change: a commit, a tag or a branch; an ancestor of --bad
    #[arg(long, value_name = "REVISION")]
    pub good: String,
    /// Revision after the change
    #[arg(long, value_name = "REVISION")]
    pub bad: String,
    /// Candidate to bisect [default: the one with a git source]
    #[arg(long, value_name = "NAME")]
    pub candidate: Option<String>,
    /// Microbenchmark of the experiment whose figure is judged [default: the one with the largest
    /// difference between good and bad]
    #[arg(short, long, value_name = "NAME")]
    pub microbenchmark: Option<String>,
    /// Follow only the first parent of merges: a merged branch counts as one commit
    #[arg(long)]
    pub first_parent: bool,
    /// Directory of the bisect, with a run directory for each step; continues the same bisect in it
    /// [default: results/NAME-bisect-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Build cache [default: $XDG_CACHE_HOME/dbdyno or ~/.cache/dbdyno; for root
    /// /var/cache/dbdyno]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Write the result and all steps as JSON
    #[arg(long, value_name = "FILE")]
    pub export_json: Option<PathBuf>,
}
