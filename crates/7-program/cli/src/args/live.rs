//! `dbdyno live`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args, Subcommand};
use dbdyno_spec::experiment::Counts;
use dbdyno_units::Share;

/// Optimize a running server in place: copy its hot code in a better layout. Can be undone at any
/// time.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno live optimize --pid $(pidof mariadbd) --dry-run\n  \
    dbdyno live optimize --pid $(pidof mariadbd)\n  \
    dbdyno live status\n  \
    dbdyno live undo --pid $(pidof mariadbd)\n  \
    dbdyno live undo --all\n\n\
    The original code stays in place, and nothing on disk is changed. `undo` also works after the \
    dbdyno that optimized the server was killed.")]
pub struct Live {
    #[command(subcommand)]
    pub command: LiveCommand,
    /// Directory of the journals [default: /run/dbdyno for root, else dbdyno/live in $XDG_STATE_HOME or
    /// in ~/.local/state]
    #[arg(long, value_name = "DIR", global = true)]
    pub state: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum LiveCommand {
    Optimize(Optimize),
    Status(Status),
    Undo(Undo),
    /// Redirect functions to the optimized code again, after undo
    Redo(TargetProcess),
    Watch(Watch),
    /// End the counting of executions when standard input ends; `optimize` starts this
    #[command(hide = true)]
    GuardCounting(TargetProcess),
}

/// Watch processes and optimize those with high CPU usage.
#[derive(Debug, Args)]
#[command(after_help = "Example of a file:\n  \
    [watch]\n  \
    executables = [\"/usr/sbin/mariadbd\"]\n  \
    cpu = \"50%\"             # of one CPU, on average over poll_interval\n  \
    poll_interval = \"10s\"\n  \
    profile = \"20s\"         # how long to sample\n  \
    max_overhead = \"5%\"     # CPU time that sampling may take; lowers the rate\n  \
    coverage = \"70%\"        # optimize again if fewer samples are in new code\n  \
    counts = \"exact\"        # or \"sampled\": estimated from the samples\n  \
    once = false            # true: optimize each process once only\n  \
    unmap = false           # true: unmap replaced code that no thread uses")]
pub struct Watch {
    /// TOML file with the programs and limits
    pub file: PathBuf,
    /// Exit after this many seconds
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<u64>,
}

/// List the processes that were optimized, also those that were undone since.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno live status\n  \
    dbdyno live status --check --pid $(pidof mariadbd)")]
pub struct Status {
    /// Only list this process
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Check whether the processes can be optimized, and list what forbids it. --pid accepts any
    /// process; it is neither stopped nor traced. The exit code is 1 if one cannot be optimized
    #[arg(long)]
    pub check: bool,
    #[command(flatten)]
    pub more: MorePids,
}

/// What follows the process ID in `--pid $(pidof NAME)` if several processes have the name.
#[derive(Debug, Args)]
pub struct MorePids {
    #[arg(hide = true, value_name = "PID")]
    pub pids: Vec<u32>,
}

/// Redirect all functions to the original code.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("processes").required(true).args(["pid", "all"])))]
#[command(after_help = "Examples:\n  \
    dbdyno live undo --pid $(pidof mariadbd)\n  \
    dbdyno live undo --pid $(pgrep -o postgres) --family\n  \
    dbdyno live undo --all")]
pub struct Undo {
    /// Process ID
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Undo the optimizations of all processes that `status` lists
    #[arg(long, conflicts_with = "family")]
    pub all: bool,
    /// Include all descendants, for servers with a process per session
    #[arg(long)]
    pub family: bool,
    #[command(flatten)]
    pub more: MorePids,
    #[command(flatten)]
    pub options: AttachOptions,
}

#[derive(Debug, Args)]
pub struct TargetProcess {
    /// Process ID
    #[arg(long, value_name = "PID")]
    pub pid: u32,
    /// Include all descendants, for servers with a process per session
    #[arg(long)]
    pub family: bool,
    #[command(flatten)]
    pub more: MorePids,
    #[command(flatten)]
    pub options: AttachOptions,
}

#[derive(Clone, Copy, Debug, Args)]
pub struct AttachOptions {
    /// Maximum time for which all threads may be stopped, in milliseconds: 5 to 10000. Longer changes are made in
    /// several stops [default: 20; for undo and redo that of the optimization]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(5..=10_000))]
    max_pause: Option<u64>,
}

impl AttachOptions {
    /// The chosen maximum pause.
    pub fn max_pause(&self) -> Option<Duration> {
        self.max_pause.map(Duration::from_millis)
    }
}

/// Sample a process, copy its hot code in a better layout, and redirect functions to it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno live optimize --pid $(pidof mariadbd) --dry-run\n  \
    dbdyno live optimize --pid $(pidof mariadbd) --max-overhead 1%\n  \
    dbdyno live optimize --pid $(pidof mariadbd) \\\n    \
    --work-command \"mariadb-admin status | grep -o 'Questions: [0-9]*'\"\n  \
    dbdyno live optimize --pid $(pgrep -o postgres) --family")]
pub struct Optimize {
    #[command(flatten)]
    pub target: TargetProcess,
    /// Sample, and show what would be done, without changing the process
    #[arg(long)]
    pub dry_run: bool,
    /// Accept a process whose system call filter (seccomp) dbdyno cannot read. It must permit mmap, munmap,
    /// madvise and rt_sigprocmask
    #[arg(long)]
    pub allow_seccomp: bool,
    /// Optimize even with too few samples, which may make the process slower
    #[arg(long)]
    pub force: bool,
    /// Duration of sampling in seconds [default: 10 before executions are counted, else 15; longer at low
    /// rates]
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<f64>,
    /// Samples per second and CPU [default: up to 7999, within --max-overhead]
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..))]
    pub frequency: Option<u32>,
    /// Share of a busy CPU's time that sampling may take. Lowers the rate and prolongs the sampling
    /// [default: 5%; unlimited with --frequency]
    #[arg(long, value_name = "PERCENT", value_parser = overhead)]
    pub max_overhead: Option<Share>,
    /// Use this profile instead of sampling
    #[arg(long, value_name = "FILE",
        conflicts_with_all = ["profile_out", "seconds", "frequency", "max_overhead"])]
    pub profile_in: Option<PathBuf>,
    /// Write the profile to this file
    #[arg(long, value_name = "FILE")]
    pub profile_out: Option<PathBuf>,
    /// Write the samples of the program (not its libraries) in BOLT's text format, for
    /// `llvm-bolt --data`
    #[arg(long, value_name = "FILE", conflicts_with = "profile_in")]
    pub bolt_out: Option<PathBuf>,
    /// How often each block of code is executed: counted, or estimated from the samples. To count, a first
    /// layout with counters is active ten times for 50 ms. If counting is too expensive, the samples are used
    #[arg(long, value_parser = counts(), default_value = "exact")]
    pub counts: Counts,
    /// Copy functions in their original order, to measure the effect of the order
    #[arg(long)]
    pub keep_order: bool,
    /// A command that prints a counter of the work done by the server. Runs an A/B test of the CPU
    /// time per unit of work, and undoes the optimization unless it is proven better
    #[arg(long, value_name = "COMMAND", conflicts_with = "dry_run")]
    pub work_command: Option<String>,
    /// Unmap code that earlier optimizations replaced and that no thread is known to use. By default it is
    /// kept: a coroutine, whose stack dbdyno does not know, may still return to it
    #[arg(long, conflicts_with = "dry_run")]
    pub unmap: bool,
    /// Leave the optimization active whatever the A/B test shows
    // `requires` has no effect beside --dry-run, which conflicts with what is required.
    #[arg(long, requires = "work_command", conflicts_with = "dry_run")]
    pub keep: bool,
    /// Duration of the A/B test in seconds: periods alternate between optimized and original code
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 20.0,
        requires = "work_command",
        conflicts_with = "dry_run"
    )]
    pub ab_test: f64,
}

fn counts() -> impl TypedValueParser<Value = Counts> {
    let names = PossibleValuesParser::new(Counts::ALL.map(Counts::name));
    names.map(|name| Counts::by_name(&name).unwrap_or(Counts::Exact))
}

fn overhead(text: &str) -> Result<Share, String> {
    let share = dbdyno_document::parse_share(text)
        .map_err(|error| format!("{}; {}", error.message, error.help))?;
    match share.as_percent() {
        percent if percent > 0.0 && percent <= 100.0 => Ok(share),
        _ => Err("must be more than 0% and at most 100%".to_owned()),
    }
}
