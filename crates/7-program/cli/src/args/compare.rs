//! The command that compares systems without an experiment file.

use std::path::PathBuf;

use clap::Args;

/// Compare databases in one line: start them, measure them in turns, report.
///
/// The first candidate is the baseline. The microbenchmarks of all candidates are interleaved, as with
/// `run`, so changes of the machine's speed cancel out. The first ratio is shown as soon as one start
/// of the servers gives an interval; more starts refine it.
#[derive(Debug, Args)]
#[command(after_help = "Candidates:\n  \
    SYSTEM                mariadb, mysql, postgresql or sqlite\n  \
    SYSTEM@RELEASE        an installed release (postgresql@15), or a suite of\n                        \
    Debian (mariadb@trixie): see `dbdyno list releases`\n  \
    SYSTEM:VARIANT        compiled in this way: see `dbdyno list variants`\n  \
    SYSTEM:KEY=VALUE      a key of a candidate in an experiment file, such as\n                        \
    engine=myrocks, durability=strict, program=/a/server\n  \
    'SYSTEM{NAME=VALUE}'  with this setting; several are separated by commas\n  \
    URL                   an existing server\n\n\
    Examples:\n  \
    dbdyno compare mariadb mariadb:engine=myrocks -m point-1\n  \
    dbdyno compare postgresql@15 postgresql@18 -m read-only_range=100 --clients 16\n  \
    dbdyno compare mariadb 'mariadb{innodb_doublewrite=OFF}' --for 30s\n  \
    dbdyno compare mysql://bench@db1/ mysql://bench@db2/\n  \
    dbdyno compare sqlite:rel_o2 sqlite:rel_lto_pgo\n  \
    dbdyno compare mariadb postgresql --script tpcc.lua --option scale=1\n\n\
    Ctrl-C stops after the current slice and reports what was measured; dbdyno run --resume DIR \
    continues. For all other keys, edit the file that --save writes.")]
pub struct Compare {
    /// What to compare; the first one is the baseline
    #[arg(required = true, value_name = "CANDIDATE")]
    pub candidates: Vec<String>,
    /// Microbenchmark: a name, a group such as point-1, or a pattern such as 'point-*'; repeatable, or
    /// separated by commas [default: read-only.pre_range=100,read-write_range=100]
    #[arg(
        short,
        long = "microbenchmark",
        value_name = "NAME",
        value_delimiter = ',',
        conflicts_with = "script"
    )]
    pub microbenchmarks: Vec<String>,
    #[command(flatten)]
    pub comparison: super::ComparisonOptions,
    /// Run directory to create [default: results/NAME-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write all results as JSON
    #[arg(long, value_name = "FILE")]
    pub export_json: Option<PathBuf>,
    /// Write a line per microbenchmark and candidate as CSV
    #[arg(long, value_name = "FILE")]
    pub export_csv: Option<PathBuf>,
    /// Write the report as Markdown
    #[arg(long, value_name = "FILE")]
    pub export_markdown: Option<PathBuf>,
    /// Build cache [default: $XDG_CACHE_HOME/dbdyno or ~/.cache/dbdyno; for root
    /// /var/cache/dbdyno]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Keep the databases after a complete run
    #[arg(long)]
    pub keep_data: bool,
    #[command(flatten)]
    pub view: super::View,
}
