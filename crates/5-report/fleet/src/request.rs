//! What was asked of a fleet run.

use dbdyno_units::Nanos;
use serde::{Deserialize, Serialize};

/// What was asked of a fleet run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub name: String,
    /// The partition; `None` for Slurm's default.
    pub partition: Option<String>,
    /// Features that a node must have, such as `epyc&nvme`.
    pub constraint: Option<String>,
    /// The account that jobs are charged to.
    pub account: Option<String>,
    /// The time limit of a job; `None` for that of the partition.
    pub time: Option<Nanos>,
    /// Whether the microbenchmarks are divided among the nodes.
    pub shard: bool,
    /// Whether the user named the nodes: a node that is lost is not replaced.
    pub named_nodes: bool,
    /// A directory on a local disk of each node.
    pub scratch: String,
    /// The build cache; `None` for the user's cache directory.
    pub cache: Option<String>,
    /// When to try again, and when to give up.
    pub limits: Limits,
}

impl Request {
    /// A request with defaults for all that a user may leave out.
    pub fn new(name: &str, scratch: &str) -> Self {
        Self {
            name: name.to_owned(),
            partition: None,
            constraint: None,
            account: None,
            time: None,
            shard: false,
            named_nodes: false,
            scratch: scratch.to_owned(),
            cache: None,
            limits: Limits::default(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Attempts of a task that fail without having measured more than those before, besides the first.
    pub retries: u32,
    /// The time from a failure to the next attempt; doubled for each further failure.
    pub retry_wait: Nanos,
    /// How long a node may be down or drained while a job waits for it.
    pub node_wait: Nanos,
    /// How long a job that Slurm no longer lists may take to show its result: shared file systems
    /// show new files late.
    pub result_wait: Nanos,
}

/// Attempts of one task, whatever they measure.
pub(crate) const MAX_ATTEMPTS: u32 = 100;

impl Default for Limits {
    fn default() -> Self {
        Self {
            retries: 2,
            retry_wait: Nanos::from_secs(30),
            node_wait: Nanos::from_secs(15 * 60),
            result_wait: Nanos::from_secs(60),
        }
    }
}

/// Seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixTime(pub u64);

impl UnixTime {
    /// The time from `earlier` to this one; zero if it is later.
    pub const fn since(self, earlier: Self) -> Nanos {
        Nanos::from_secs(self.0.saturating_sub(earlier.0))
    }
}
