//! Commands that prepare and run experiments.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use dbdyno_document::parse_duration;
use dbdyno_scripts::Version;
use dbdyno_units::Nanos;

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
    Ctrl-C stops after the current slice and reports what was measured; a second Ctrl-C stops \
    immediately. Either way, --resume continues the run.")]
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
    /// Extend the complete run: measure this much more, such as 10min, first where no difference
    /// was found. Loading data and starting instances is not counted
    #[arg(long, value_name = "TIME", value_parser = more_time)]
    pub more: Option<Nanos>,
    /// Also resume a run that you did not make on this machine: start the programs and connect to
    /// the servers that it names
    #[arg(long)]
    pub trust: bool,
    /// Build cache [default: $XDG_CACHE_HOME/dbdyno or ~/.cache/dbdyno; for root
    /// /var/cache/dbdyno]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Keep the databases after a complete run
    #[arg(long)]
    pub keep_data: bool,
    #[command(flatten)]
    pub comparison: super::ComparisonOptions,
    #[command(flatten)]
    pub gate: super::Gate,
    #[command(flatten)]
    pub view: super::View,
}

/// A version of sysbench.
pub(super) fn sysbench_version(text: &str) -> Result<Version, String> {
    let found = Version::ALL.into_iter().find(|(name, _)| *name == text);
    found.map(|(_, version)| version).ok_or_else(|| "write 1.0 or 1.1".to_owned())
}

/// A positive duration.
pub(super) fn more_time(text: &str) -> Result<Nanos, String> {
    match parse_duration(text) {
        Ok(Nanos::ZERO) => Err("must be more than 0".to_owned()),
        Ok(time) => Ok(time),
        Err(bad) => Err(format!("{}: {}", bad.message, bad.help)),
    }
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
    #[arg(long, value_name = "N")]
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
