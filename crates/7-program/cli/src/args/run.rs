//! Commands that prepare and measure experiments.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use dbdyno_document::{parse_count, parse_duration};
use dbdyno_scripts::Version;
use dbdyno_units::Nanos;

use super::results::{Gate, View};

/// Build and start the candidates of an experiment, measure them, and report.
///
/// With --script a sysbench script is measured without an experiment file: on the servers that are
/// installed, or on candidates as for `compare`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno run experiments/quickstart.toml\n  \
    dbdyno run my.toml --out results/first\n  \
    dbdyno run --resume results/first\n  \
    dbdyno run --resume results/first --more 10min   narrower intervals\n  \
    dbdyno run ci.toml --fail-if 'slower 2%' --fail-if 'more-cpu 5% in writes'\n  \
    dbdyno run --script oltp_read_only.lua\n  \
    dbdyno run --script tpcc.lua --option scale=1 mariadb mariadb:engine=myrocks\n\n\
    Ctrl-C stops after the current slice and reports what was measured; what takes 10 s longer than \
    a slice is ended. A second Ctrl-C stops immediately. Either way, --resume continues the run.")]
pub struct Run {
    /// Experiment file; with --script the candidates, of which the first is the baseline [default:
    /// the installed servers]
    #[arg(
        value_name = "FILE|CANDIDATE",
        required_unless_present_any = ["resume", "script"],
        conflicts_with = "resume"
    )]
    pub words: Vec<PathBuf>,
    /// Run directory to create [default: results/NAME-TIME]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub out: Option<PathBuf>,
    /// Resume the interrupted run in this directory
    #[arg(long, value_name = "DIR", conflicts_with = "script")]
    pub resume: Option<PathBuf>,
    /// Extend the complete run: measure this much more, such as 10min, only where no difference was
    /// found; everywhere if all differ. Loading data and starting instances is not counted
    #[arg(long, value_name = "TIME", value_parser = more_time)]
    pub more: Option<Nanos>,
    /// Also resume a run that you did not make on this machine: start the programs and connect to
    /// the servers that it names
    #[arg(long)]
    pub trust: bool,
    #[command(flatten)]
    pub comparison: ComparisonOptions,
    #[command(flatten)]
    pub session: SessionOptions,
}

/// Compare databases in one line: start them, measure them in turns, report.
///
/// The first candidate is the baseline. The microbenchmarks of all candidates are interleaved, as with
/// `run`, so changes of the machine's speed cancel out. The first ratio is shown as soon as one start
/// of the servers gives an interval; more starts refine it.
#[derive(Debug, Args)]
#[command(after_help = "Candidates:\n  \
    SYSTEM                mariadb, mysql, postgresql or sqlite\n  \
    SYSTEM@RELEASE        a release that is installed (postgresql@15) or is fetched:\n                        \
    of a suite of Debian (mariadb@trixie, mysql@9.7), or of\n                        \
    a registry (mysql@8.0.33); see `dbdyno list releases`\n  \
    SYSTEM:VARIANT        compiled in this way: see `dbdyno list variants`\n  \
    SYSTEM:KEY=VALUE      a key of a candidate in an experiment file, such as\n                        \
    engine=myrocks, durability=strict, program=/a/server\n  \
    'SYSTEM{NAME=VALUE}'  with this setting; several are separated by commas\n  \
    URL                   an existing server\n  \
    A value with commas is quoted: \"mariadb{sql_mode='A,B'}\"\n\n\
    Examples:\n  \
    dbdyno compare mariadb mariadb:engine=myrocks -m point-1\n  \
    dbdyno compare postgresql@15 postgresql@18 -m read-only_range=100 --clients 16\n  \
    dbdyno compare mysql@5.6.14 mysql@8.0.33 mariadb@trixie\n  \
    dbdyno compare mariadb 'mariadb{innodb_doublewrite=OFF}' --for 30s\n  \
    dbdyno compare postgresql@15 postgresql@17 --rows 2M --target 2% --fail-if 'slower 5%'\n  \
    dbdyno compare mariadb 'mariadb{sync_binlog=0,innodb_io_capacity=2000}' --each-option\n  \
    dbdyno compare mysql://bench@db1/ mysql://bench@db2/\n  \
    dbdyno compare sqlite:rel_o2 sqlite:rel_lto_pgo\n  \
    dbdyno compare mariadb postgresql --script tpcc.lua --option scale=1\n  \
    dbdyno compare postgresql@15 postgresql@17 --sql queries.sql --setup tables.sql\n\n\
    Ctrl-C stops after the current slice and reports what was measured; dbdyno run --resume DIR \
    continues. For all other keys, edit the file that --save writes.")]
pub struct Compare {
    /// Candidates; the first one is the baseline
    #[arg(required = true, value_name = "CANDIDATE")]
    pub candidates: Vec<String>,
    /// Microbenchmark: a name, a group such as point-1, or a pattern such as 'point-*'; repeatable, or
    /// separated by commas [default: read-only.pre_range=100,read-write_range=100]
    #[arg(
        short,
        long = "microbenchmark",
        value_name = "NAME",
        value_delimiter = ',',
        conflicts_with_all = ["script", "sql"]
    )]
    pub microbenchmarks: Vec<String>,
    /// File of SQL statements: each is a microbenchmark, named by a comment `-- name: NAME` above it
    #[arg(long, value_name = "FILE", conflicts_with = "script")]
    pub sql: Option<String>,
    /// File of SQL that creates and fills the tables of --sql
    #[arg(
        long,
        value_name = "FILE",
        requires = "sql",
        // `requires` does not hold beside what conflicts with --sql.
        conflicts_with_all = ["script", "microbenchmarks"]
    )]
    pub setup: Option<String>,
    #[command(flatten)]
    pub comparison: ComparisonOptions,
    /// Find out which of the settings matter in which the second of two candidates differs from the first:
    /// leave out each one, first shortly, then those that count as long as --for says
    #[arg(
        long,
        conflicts_with_all = [
            "rules", "strict", "save", "details", "three_groups", "export_json", "export_csv",
            "export_markdown"
        ]
    )]
    pub each_option: bool,
    /// Run directory to create [default: results/NAME-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub session: SessionOptions,
}

/// What each session of a run is given: the first one, and those that resume it.
#[derive(Clone, Debug, Args)]
pub struct SessionOptions {
    /// Build cache [default: $XDG_CACHE_HOME/dbdyno or ~/.cache/dbdyno; for root
    /// /var/cache/dbdyno]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Keep the databases after a complete or failed run
    #[arg(long)]
    pub keep_data: bool,
    #[command(flatten)]
    pub gate: Gate,
    /// Write all results as JSON
    #[arg(long, value_name = "FILE")]
    pub export_json: Option<PathBuf>,
    /// Write a line per microbenchmark and candidate as CSV
    #[arg(long, value_name = "FILE")]
    pub export_csv: Option<PathBuf>,
    /// Write the report as Markdown
    #[arg(long, value_name = "FILE")]
    pub export_markdown: Option<PathBuf>,
    /// Print the whole report, with CPU time, context switches, percentiles and counters of each microbenchmark; of
    /// comparisons, with --script, and of an insert benchmark, otherwise only the answer is printed
    #[arg(long)]
    pub details: bool,
    #[command(flatten)]
    pub view: View,
}

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
    #[arg(long, value_name = "VERSION", value_parser = sysbench_version)]
    pub sysbench: Option<Version>,
    /// Number of concurrent clients; several numbers, such as 1,4,16, for a sweep [default: 1]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub clients: Vec<String>,
    /// Measuring time in all, such as 30s: of all candidates, the control and all microbenchmarks,
    /// with warm-up, without loading and starting. Less if differences of 1% are resolved earlier
    /// [default: 5s for each microbenchmark and candidate, 2s for SQLite]
    #[arg(long = "for", value_name = "TIME")]
    pub time: Option<String>,
    /// Sample stacks in slices after those that are measured, to tell with `dbdyno why` in which functions and layers
    /// the difference in CPU time is
    #[arg(long)]
    pub profile: bool,
    /// The same, and count the instructions that functions execute, to tell more work from slower work. Changes the code
    /// of servers in memory for the time of a slice; on x86-64, not for PostgreSQL, servers on hosts, candidates with
    /// `live`, and servers that dbdyno did not start
    #[arg(long)]
    pub instructions: bool,
    /// Also record where the threads of servers wait, in other slices for the same time; implies --profile
    #[arg(long)]
    pub waits: bool,
    /// Rows in the table, such as 100k or 2M; with a script, the rows that servers get caches for [default: 20000; with
    /// a script its options tables times table_size if that is more]
    #[arg(long, value_name = "N")]
    pub rows: Option<String>,
    /// Measuring may end before --for when the 95% intervals of all microbenchmarks are within this, such as
    /// 2% [default: 1%, for SQLite 0.5%]
    #[arg(long, value_name = "PERCENT")]
    pub target: Option<String>,
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

    /// The first option that is given for the profile.
    pub fn of_profile(&self) -> Option<&'static str> {
        let given = [
            (self.profile, "--profile"),
            (self.instructions, "--instructions"),
            (self.waits, "--waits"),
        ];
        given.into_iter().find_map(|(is_given, name)| is_given.then_some(name))
    }

    /// The first option that is given, except those of a script.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            (!self.clients.is_empty(), "--clients"),
            (self.time.is_some(), "--for"),
            (self.rows.is_some(), "--rows"),
            (self.target.is_some(), "--target"),
            (self.save.is_some(), "--save"),
        ];
        given.into_iter().find_map(|(is_given, name)| is_given.then_some(name))
    }
}

impl SessionOptions {
    /// The files for JSON, CSV and Markdown.
    pub fn exports(&self) -> [&Option<PathBuf>; 3] {
        [&self.export_json, &self.export_csv, &self.export_markdown]
    }
}

/// Find the commit of a git repository that made a candidate slower or faster.
///
/// Builds the good and the bad revision and measures them. Then each step builds a commit between
/// them and measures it side by side with both, until one commit is left that performs like the bad
/// revision while its parent performs like the good one. It detects whether the change made the
/// candidate slower or faster.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno bisect my.toml --good v3.49.0 --bad v3.50.0\n  \
    dbdyno bisect my.toml --good 1a2b3c4 --bad main -m scan_range=100 --out results/bisect\n  \
    dbdyno bisect my.toml --good v1 --bad HEAD --first-parent --export-json bisect.json\n  \
    dbdyno bisect my.toml --good v1 --bad v2 --profile   names the functions that changed\n\n\
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
    /// Sample the stacks of the commit that is found and of its parent, to name the functions and layers whose CPU time
    /// changed
    #[arg(long)]
    pub profile: bool,
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

/// Validate an experiment, print its plan, and check that this machine is ready for it.
///
/// Looks for programs and compilers, logs in to existing servers, and compares the size of the data
/// with the free disk space. Nothing is compiled, started or created.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno check experiments/quickstart.toml\n  \
    dbdyno check my.toml --out /srv/results/first\n  \
    dbdyno check my.toml --file-only      for a run on another machine\n\n\
    The exit code is 0 if a run can start, 1 if the file is valid but this machine is not ready, \
    and 2 if the file is not valid.")]
pub struct Check {
    /// Experiment file
    pub file: PathBuf,
    /// Run directory that `run` would get, to check the space on its disk [default: as `run`]
    #[arg(long, value_name = "DIR", conflicts_with = "file_only")]
    pub out: Option<PathBuf>,
    /// Do not look at this machine
    #[arg(long)]
    pub file_only: bool,
}

/// List the names an experiment can use: microbenchmarks, variants, systems, releases; or the
/// statements of a sysbench script.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno list\n  \
    dbdyno list microbenchmarks 'point-*'\n  \
    dbdyno list microbenchmarks oltp_read_write --sql\n  \
    dbdyno list variants\n  \
    dbdyno list systems      also shows which servers are installed\n  \
    dbdyno list releases     servers of which several releases are here, and what can be fetched\n  \
    dbdyno list script oltp_read_only.lua --events 2 --option tables=4")]
pub struct List {
    /// What to list [default: everything]
    pub what: Option<Listed>,
    /// Only microbenchmarks with these names, patterns or groups; or the file of the script
    #[arg(value_name = "PATTERN")]
    pub words: Vec<String>,
    /// Also print the statements of each microbenchmark, with the source of each parameter
    #[arg(long)]
    pub sql: bool,
    /// Number of events of the script to print; none of them is executed [default: 1]
    #[arg(long, value_name = "N", value_parser = count::<u32>)]
    pub events: Option<u32>,
    /// Option of the script, such as tables=4; can be repeated
    #[arg(long = "option", value_name = "NAME=VALUE")]
    pub options: Vec<String>,
    /// Version of sysbench that the script is written for: 1.0 or 1.1 [default: 1.0]
    #[arg(long, value_name = "VERSION", value_parser = sysbench_version)]
    pub sysbench: Option<Version>,
    /// Seed of the script's random numbers, as --rand-seed of sysbench [default: 42]
    #[arg(long, value_name = "N")]
    pub seed: Option<u32>,
}

impl List {
    /// The first option of a script that is given.
    pub fn of_script(&self) -> Option<&'static str> {
        let given = [
            (self.events.is_some(), "--events"),
            (!self.options.is_empty(), "--option"),
            (self.sysbench.is_some(), "--sysbench"),
            (self.seed.is_some(), "--seed"),
        ];
        given.into_iter().find_map(|(is_given, name)| is_given.then_some(name))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Listed {
    Microbenchmarks,
    Variants,
    Systems,
    Releases,
    /// The statements of a sysbench script, without a database
    Script,
}

/// Check this machine for anything that would distort results.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno doctor\n  \
    dbdyno doctor --disk /srv/benchmarks --json\n\n\
    The exit code is 1 if there is a warning, so that scripts can require a suitable machine.")]
pub struct Doctor {
    /// A directory on the disk to check
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub disk: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A version of sysbench.
fn sysbench_version(text: &str) -> Result<Version, String> {
    Version::by_name(text).ok_or_else(|| "write 1.0 or 1.1".to_owned())
}

/// A count, such as 100k.
pub(super) fn count<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let count = parse_count(text).map_err(|bad| format!("{}: {}", bad.message, bad.help))?;
    T::try_from(count).map_err(|_| "too large".to_owned())
}

pub(super) fn positive_count(text: &str) -> Result<u32, String> {
    match count(text)? {
        0 => Err("must be more than 0".to_owned()),
        count => Ok(count),
    }
}

/// A positive duration.
pub(super) fn more_time(text: &str) -> Result<Nanos, String> {
    match parse_duration(text) {
        Ok(Nanos::ZERO) => Err("must be more than 0".to_owned()),
        Ok(time) => Ok(time),
        Err(bad) => Err(format!("{}: {}", bad.message, bad.help)),
    }
}
