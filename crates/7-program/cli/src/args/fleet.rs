//! The commands that run an experiment on many machines.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use dbdyno_units::Nanos;

use super::results::View;
use super::run::{count, more_time};

/// Run an experiment on many machines, with Slurm.
///
/// Each node runs the whole experiment in an exclusive job, or with --shard a share of its
/// microbenchmarks. Jobs whose node dies or whose time limit is too short are submitted again and
/// continue.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno fleet run my.toml --partition bench --nodes 5\n  \
    dbdyno fleet run my.toml --nodelist 'node[1-3]' --time 4h --out results/fleet\n  \
    dbdyno fleet status results/fleet\n  \
    dbdyno fleet run --resume results/fleet\n  \
    dbdyno fleet collect results/fleet\n  \
    dbdyno fleet cancel results/fleet")]
pub struct Fleet {
    #[command(subcommand)]
    pub command: FleetCommand,
}

#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    Run(Box<FleetRun>),
    Status(FleetStatus),
    Collect(FleetCollect),
    Cancel(FleetCancel),
    /// Run one attempt of a task, in its job
    #[command(hide = true)]
    Task(FleetTask),
}

/// Submit the jobs, follow them until all have ended, and report.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno fleet run my.toml --partition bench --nodes 5\n  \
    dbdyno fleet run my.toml --nodelist 'node[1-3]' --time 4h\n  \
    dbdyno fleet run my.toml --nodes 10 --shard\n  \
    dbdyno fleet run --resume results/fleet\n\n\
    Ctrl-C only stops this program: the jobs go on. --resume continues to follow them, and also \
    submits tasks again that failed, were lost or were cancelled.\n\n\
    The directory must be on a file system that all nodes share. The options can also be in the \
    experiment, under [fleet].\n\n\
    The exit code is 0 if all nodes measured everything without failures, 1 if not, 2 if the \
    experiment or the options are not valid, and 130 after Ctrl-C.")]
pub struct FleetRun {
    /// Experiment file
    #[arg(required_unless_present = "resume", conflicts_with = "resume")]
    pub file: Option<PathBuf>,
    /// Continue the fleet run in this directory
    #[arg(long, value_name = "DIR")]
    pub resume: Option<PathBuf>,
    /// Also continue a fleet run that you did not make on this machine: run what its files name
    #[arg(long, conflicts_with = "file")]
    pub trust: bool,
    /// Directory to create [default: results/NAME-fleet-TIME]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub out: Option<PathBuf>,
    /// Number of nodes; idle ones are chosen first
    #[arg(long, value_name = "N", conflicts_with_all = ["resume", "nodelist"],
        value_parser = count::<u32>)]
    pub nodes: Option<u32>,
    /// Names of the nodes, such as node[1-3],big1
    #[arg(long, value_name = "LIST", conflicts_with = "resume")]
    pub nodelist: Option<String>,
    /// Partition [default: Slurm's default]
    #[arg(long, value_name = "NAME", conflicts_with = "resume")]
    pub partition: Option<String>,
    /// Features that the nodes must have, such as 'epyc&nvme'
    #[arg(long, value_name = "FEATURES", conflicts_with = "resume")]
    pub constraint: Option<String>,
    /// Account that the jobs are charged to
    #[arg(long, value_name = "NAME", conflicts_with = "resume")]
    pub account: Option<String>,
    /// Time limit of a job, such as 4h; a task that needs longer gets several jobs [default: the
    /// partition's]
    #[arg(long, value_name = "TIME", conflicts_with = "resume", value_parser = more_time)]
    pub time: Option<Nanos>,
    /// Divide the microbenchmarks among the nodes, which should be equal
    #[arg(long, conflicts_with = "resume")]
    pub shard: bool,
    /// Directory on a local disk of each node, for the data and the run [default: /var/tmp]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub scratch: Option<PathBuf>,
    /// Build cache; on a shared file system, each build is compiled once, in a job of its own [default:
    /// $XDG_CACHE_HOME/dbdyno or ~/.cache/dbdyno; for root /var/cache/dbdyno]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub cache: Option<PathBuf>,
    /// Number of retries after a failure
    #[arg(long, value_name = "N", default_value_t = 2, conflicts_with = "resume")]
    pub retries: u32,
    /// The time before a task is tried again; doubled each time
    #[arg(
        long, value_name = "TIME", default_value = "30s", conflicts_with = "resume",
        value_parser = more_time
    )]
    pub retry_wait: Nanos,
    /// How long to wait for a node that is down, before its task is given to another node or is lost
    #[arg(
        long, value_name = "TIME", default_value = "15min", conflicts_with = "resume",
        value_parser = more_time
    )]
    pub node_wait: Nanos,
    /// How long a result may take to become visible after its job has ended
    #[arg(
        long, value_name = "TIME", default_value = "1min", conflicts_with = "resume",
        value_parser = more_time
    )]
    pub result_wait: Nanos,
    /// Submit the jobs and exit; `fleet run --resume` follows them
    #[arg(long)]
    pub detach: bool,
    #[command(flatten)]
    pub view: View,
}

/// Show the state of each node.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno fleet status results/fleet\n  \
    dbdyno fleet status results/fleet --watch")]
pub struct FleetStatus {
    /// Directory of the fleet run
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Show it until all tasks have ended
    #[arg(long)]
    pub watch: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "watch")]
    pub json: bool,
}

/// Report on the nodes that are done, also while others still run.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dbdyno fleet collect results/fleet\n  \
    dbdyno fleet collect results/fleet --out results/fleet-report")]
pub struct FleetCollect {
    /// Directory of the fleet run
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Write the comparison to this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub view: View,
}

/// Cancel the jobs; measurements are kept.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  dbdyno fleet cancel results/fleet")]
pub struct FleetCancel {
    /// Directory of the fleet run
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Also cancel the jobs of a fleet run that you did not make on this machine
    #[arg(long)]
    pub trust: bool,
}

/// Run one attempt of a task, in its job.
#[derive(Debug, Args)]
pub struct FleetTask {
    /// Directory of the fleet run
    pub directory: PathBuf,
    /// The task
    pub task: String,
    /// The number of the attempt
    pub attempt: u32,
}
