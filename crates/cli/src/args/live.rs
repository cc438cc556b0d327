//! `dbdyno live`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Optimize a running server: lay out its hot code anew, in place, and undo it at any time.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno live optimize --pid $(pidof mariadbd)\n  \
    dbdyno live status\n  \
    dbdyno live undo --pid $(pidof mariadbd)\n\n\
    The program's own code stays as it is; nothing on disk is changed. Undo works at any later \
    time, also when the first dbdyno was killed.")]
pub struct Live {
    #[command(subcommand)]
    pub command: LiveCommand,
    /// Where journals are kept [default: /run/dbdyno for root, else $XDG_RUNTIME_DIR/dbdyno]
    #[arg(long, value_name = "DIR", global = true)]
    pub state: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum LiveCommand {
    Optimize(Optimize),
    /// Say which processes are optimized, and how
    Status(Whom),
    /// Take it back: every byte of the program is as it was
    Undo(Chosen),
    /// Put in force again what was undone
    Redo(Chosen),
    Watch(Watch),
}

/// Watch processes, and optimize those that need much CPU.
#[derive(Debug, Args)]
#[command(after_help = "Example of a file:\n  \
    [watch]\n  \
    executables = [\"/usr/sbin/mariadbd\"]\n  \
    cpu = \"50%\"          # of one CPU, over `look`\n  \
    look = \"10s\"\n  \
    profile = \"20s\"\n  \
    once = false         # true: never optimize a process twice")]
pub struct Watch {
    /// Which programs, and from which use of CPU on
    pub file: PathBuf,
    /// End after this many seconds
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<u64>,
}

#[derive(Debug, Args)]
pub struct Whom {
    /// Only this process
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
}

#[derive(Debug, Args)]
pub struct Chosen {
    /// The process
    #[arg(long, value_name = "PID")]
    pub pid: u32,
    /// All that descend from it, too: servers with a process per session
    #[arg(long)]
    pub family: bool,
    #[command(flatten)]
    pub care: Care,
}

#[derive(Clone, Copy, Debug, Args)]
pub struct Care {
    /// For how many milliseconds threads may stand still at most: 5 to 10000
    #[arg(long, value_name = "MS", default_value_t = 50,
        value_parser = clap::value_parser!(u64).range(5..=10_000))]
    pub stop_bound: u64,
    /// Go on although a filter of system calls is in force
    #[arg(long)]
    pub allow_seccomp: bool,
}

/// Sample a process, lay out its hot code anew, and redirect it there.
#[derive(Debug, Args)]
pub struct Optimize {
    #[command(flatten)]
    pub chosen: Chosen,
    /// For how many seconds to sample
    #[arg(long, value_name = "SECONDS", default_value_t = 15.0)]
    pub seconds: f64,
    /// Samples per second and CPU
    #[arg(long, value_name = "HZ", default_value_t = 7999)]
    pub frequency: u32,
    /// Use this profile instead of sampling
    #[arg(long, value_name = "FILE", conflicts_with = "profile_out")]
    pub profile_in: Option<PathBuf>,
    /// Keep the profile in this file
    #[arg(long, value_name = "FILE")]
    pub profile_out: Option<PathBuf>,
    /// Write the samples of the program itself in BOLT's text format, too: for `llvm-bolt --data`
    #[arg(long, value_name = "FILE", conflicts_with = "profile_in")]
    pub bolt_out: Option<PathBuf>,
    /// Copy functions as they are, without another order: to tell what the order brings
    #[arg(long)]
    pub keep_order: bool,
    /// A command that prints how much work was done so far, as a number: judge by CPU time per
    /// work, and undo what makes it worse
    #[arg(long, value_name = "COMMAND")]
    pub work_command: Option<String>,
    /// For how many seconds to judge: undone and in force in 20 turns
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0)]
    pub judge: f64,
}
