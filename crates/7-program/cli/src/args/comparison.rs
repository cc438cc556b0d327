//! The work of a comparison without an experiment file.

use std::path::PathBuf;

use clap::Args;
use dbdyno_scripts::Version;

/// What a comparison measures, and for how long.
#[derive(Debug, Args)]
pub struct ComparisonOptions {
    /// sysbench script to measure: a file, or the name of one of sysbench's own scripts
    #[arg(long, value_name = "FILE")]
    pub script: Option<String>,
    /// Option of the script, such as tables=4; can be repeated
    #[arg(long = "option", value_name = "NAME=VALUE")]
    pub options: Vec<String>,
    /// Version of sysbench that the script is written for: 1.0 or 1.1 [default: 1.0]
    #[arg(long, value_name = "VERSION", value_parser = super::run::sysbench_version)]
    pub sysbench: Option<Version>,
    /// Number of concurrent clients; several numbers, such as 1,4,16, for a sweep [default: 1]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub clients: Vec<String>,
    /// Measuring time in all, such as 30s: of all candidates, the control and all microbenchmarks,
    /// without loading and starting. Less if differences of 1% are resolved earlier [default: 5s for
    /// each microbenchmark and candidate, 2s for SQLite]
    #[arg(long = "for", value_name = "TIME")]
    pub time: Option<String>,
    /// Rows in the table; with a script, the rows that servers get caches for [default: 20000; with
    /// a script its options tables times table_size if that is more]
    #[arg(long, value_name = "N")]
    pub rows: Option<String>,
    /// Write the experiment, with comments, for `dbdyno run FILE`
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
}

impl ComparisonOptions {
    /// The first option of a script that is given. clap's `requires` has no effect on options that are given
    /// together with what conflicts with `--script`.
    pub fn of_script(&self) -> Option<&'static str> {
        let given =
            [(!self.options.is_empty(), "--option"), (self.sysbench.is_some(), "--sysbench")];
        given.into_iter().find_map(|(is_given, name)| is_given.then_some(name))
    }

    /// The first option that is given, except those of a script.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            (!self.clients.is_empty(), "--clients"),
            (self.time.is_some(), "--for"),
            (self.rows.is_some(), "--rows"),
            (self.save.is_some(), "--save"),
        ];
        given.into_iter().find_map(|(is_given, name)| is_given.then_some(name))
    }
}
