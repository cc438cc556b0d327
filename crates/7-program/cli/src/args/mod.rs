//! The command line: commands, options and their help.

mod builds;
mod fleet;
mod live;
mod results;
mod run;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, Args, Parser, Subcommand};
use clap_complete::Shell;

pub use builds::{Audit, Builds, BuildsAction, CleanBuilds, MakeBuilds};
pub use fleet::{Fleet, FleetCancel, FleetCollect, FleetCommand, FleetRun, FleetStatus, FleetTask};
pub use live::{AttachOptions, Live, LiveCommand, Optimize, Status, TargetProcess, Undo, Watch};
pub use results::{Clean, Gate, History, Import, Report, View, When, Why};
pub use run::{
    Bisect, Check, Compare, ComparisonOptions, Doctor, List, Listed, Run, SessionOptions,
};

/// Benchmark databases: compare servers, builds and settings by throughput and CPU time.
///
/// All candidates of an experiment run at the same time. dbdyno measures them in turns of a few
/// milliseconds, in random order, so that changes of the machine's speed affect all of them
/// equally and cancel out in the ratios.
#[derive(Debug, Parser)]
#[command(
    version = env!("DBDYNO_VERSION"),
    after_help = "Examples:\n  \
        dbdyno doctor                            check this machine\n  \
        dbdyno compare mariadb postgresql        compare two servers\n  \
        dbdyno check my.toml                     validate an experiment\n  \
        dbdyno run experiments/quickstart.toml   measure and report\n  \
        dbdyno report results/first --details    report on a run again\n  \
        dbdyno history results/                  find changes over repeated runs\n  \
        dbdyno fleet run my.toml --nodes 5       run it on five machines\n\n\
        Environment:\n  \
        DBDYNO_LOG        log filter such as dbdyno_engines=trace; overrides --verbose\n  \
        DBDYNO_PASSWORD   password for servers given by URL\n  \
        GITHUB_ACTIONS    if true, broken rules of --fail-if are annotated in its log\n  \
        NO_COLOR          disables colours\n\n\
        Exit codes:\n  \
        0     success\n  \
        1     a run or candidate failed; `check`, `doctor` or `audit` found a problem\n  \
        2     invalid usage, experiment or input file\n  \
        3     a rule of --fail-if is broken\n  \
        130   stopped by Ctrl-C, SIGTERM or SIGHUP"
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
    /// Log progress to standard error; -vv and -vvv log more
    #[arg(short, long, action = ArgAction::Count, global = true)]
    pub verbose: u8,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Compare(Compare),
    Run(Run),
    Bisect(Bisect),
    Check(Check),
    Report(Report),
    Why(Why),
    History(History),
    Fleet(Fleet),
    Import(Import),
    Clean(Clean),
    Audit(Audit),
    Builds(Builds),
    List(List),
    Doctor(Doctor),
    Live(Live),
    /// Execute requests of `run` from standard input
    #[command(hide = true)]
    Worker,
    Agent(Agent),
    Completions(Completions),
    Man(Man),
}

/// Start servers on this machine for `run` on another one, by requests from standard input
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct Agent {
    /// Clean up in this directory of an agent when standard input is closed
    #[arg(long, value_name = "DIR")]
    pub guard: Option<std::path::PathBuf>,
}

/// Print a completion script for a shell.
#[derive(Debug, Args)]
#[command(
    hide = true,
    after_help = "Example:\n  \
        dbdyno completions bash > ~/.local/share/bash-completion/completions/dbdyno"
)]
pub struct Completions {
    /// The shell
    pub shell: Shell,
}

/// Write the man pages to a directory.
#[derive(Debug, Args)]
#[command(hide = true, after_help = "Example:\n  dbdyno man /usr/local/share/man/man1")]
pub struct Man {
    /// The directory; created if missing
    #[arg(value_name = "DIR")]
    pub directory: std::path::PathBuf,
}

/// The error with a reason if `--pid` has no value, as in `--pid $(pidof NAME)` without such a process.
pub fn with_advice(mut error: clap::Error) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let has_no_pid = error.kind() == ErrorKind::InvalidValue
        && text(ContextKind::InvalidArg).starts_with("--pid")
        && text(ContextKind::InvalidValue).is_empty();
    if has_no_pid {
        let advice = "if the value is from $(pidof NAME), no process has this name".into();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice]));
    }
    error
}
