//! `dbdyno live`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use dbdyno_live::ProbeOptions;

use crate::output;

/// Optimize a running server in place: copy its hot code in a better layout. Can be undone at any
/// time.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno live optimize --pid $(pidof mariadbd)\n  \
    dbdyno live status\n  \
    dbdyno live undo --pid $(pidof mariadbd)\n\n\
    The original code stays in place, and nothing on disk is changed. `undo` also works after the \
    dbdyno that optimized the server was killed.")]
pub struct Live {
    #[command(subcommand)]
    pub command: LiveCommand,
    /// Directory of the journals [default: /run/dbdyno for root, else $XDG_RUNTIME_DIR/dbdyno]
    #[arg(long, value_name = "DIR", global = true)]
    pub state: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum LiveCommand {
    Optimize(Optimize),
    /// List optimized processes
    Status(PidFilter),
    /// Redirect all functions to the original code
    Undo(TargetProcess),
    /// Redirect functions to the optimized code again, after undo
    Redo(TargetProcess),
    Watch(Watch),
}

/// Watch processes and optimize those with high CPU usage.
#[derive(Debug, Args)]
#[command(after_help = "Example of a file:\n  \
    [watch]\n  \
    executables = [\"/usr/sbin/mariadbd\"]\n  \
    cpu = \"50%\"             # of one CPU, on average over poll_interval\n  \
    poll_interval = \"10s\"\n  \
    profile = \"20s\"         # how long to sample\n  \
    coverage = \"70%\"        # optimize again if fewer samples are in optimized code\n  \
    once = false            # true: optimize each process once only")]
pub struct Watch {
    /// TOML file with the programs and limits
    pub file: PathBuf,
    /// Exit after this many seconds
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<u64>,
}

#[derive(Debug, Args)]
pub struct PidFilter {
    /// Only list this process
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
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
    pub options: AttachOptions,
}

#[derive(Clone, Copy, Debug, Args)]
pub struct AttachOptions {
    /// Maximum time for which all threads may be stopped, in milliseconds: 5 to 10000
    #[arg(long, value_name = "MS", default_value_t = 50,
        value_parser = clap::value_parser!(u64).range(5..=10_000))]
    max_pause: u64,
    /// Former name of --max-pause
    #[arg(long, value_name = "MS", hide = true, conflicts_with = "max_pause",
        value_parser = clap::value_parser!(u64).range(5..=10_000))]
    stop_bound: Option<u64>,
    /// Accept a process with a system call filter (seccomp) that permits mmap, munmap and madvise
    #[arg(long)]
    allow_seccomp: bool,
}

impl Default for AttachOptions {
    fn default() -> Self {
        Self { max_pause: 50, stop_bound: None, allow_seccomp: false }
    }
}

impl AttachOptions {
    pub fn probe(&self) -> ProbeOptions {
        ProbeOptions { allow_seccomp: self.allow_seccomp }
    }

    pub fn max_pause(&self) -> Duration {
        Duration::from_millis(self.stop_bound.unwrap_or(self.max_pause))
    }

    /// Warns about former names of options.
    pub fn warn_about_former_names(&self) {
        if self.stop_bound.is_some() {
            output::note("warning: --stop-bound is deprecated: use --max-pause");
        }
    }
}

/// Sample a process, copy its hot code in a better layout, and redirect functions to it.
#[derive(Debug, Args)]
pub struct Optimize {
    #[command(flatten)]
    pub target: TargetProcess,
    /// Duration of sampling in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 15.0)]
    pub seconds: f64,
    /// Samples per second and CPU
    #[arg(long, value_name = "HZ", default_value_t = 7999)]
    pub frequency: u32,
    /// Use this profile instead of sampling
    #[arg(long, value_name = "FILE", conflicts_with = "profile_out")]
    pub profile_in: Option<PathBuf>,
    /// Write the profile to this file
    #[arg(long, value_name = "FILE")]
    pub profile_out: Option<PathBuf>,
    /// Write the samples of the program (not its libraries) in BOLT's text format, for
    /// `llvm-bolt --data`
    #[arg(long, value_name = "FILE", conflicts_with = "profile_in")]
    pub bolt_out: Option<PathBuf>,
    /// Copy functions in their original order, to measure the effect of the order
    #[arg(long)]
    pub keep_order: bool,
    /// A command that prints a counter of the work done by the server. Runs an A/B test of the CPU
    /// time per unit of work, and undoes the optimization if it is worse
    #[arg(long, value_name = "COMMAND")]
    pub work_command: Option<String>,
    /// Duration of the A/B test in seconds: 20 periods, alternating between optimized and original code
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0)]
    ab_test: f64,
    /// Former name of --ab-test
    #[arg(long, value_name = "SECONDS", hide = true, conflicts_with = "ab_test")]
    judge: Option<f64>,
}

impl Optimize {
    /// Duration of the A/B test in seconds.
    pub fn ab_test_seconds(&self) -> f64 {
        self.judge.unwrap_or(self.ab_test)
    }

    /// Warns about former names of options.
    pub fn warn_about_former_names(&self) {
        if self.judge.is_some() {
            output::note("warning: --judge is deprecated: use --ab-test");
        }
        self.target.options.warn_about_former_names();
    }
}
