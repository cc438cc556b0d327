use dbdyno_units::{Bytes, Nanos, Share};
use serde::{Deserialize, Serialize};

/// A new layout of a server's code.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NewLayout {
    /// The kind of samples: `branches`, `cycles` or `clock`; or the origin of reused samples.
    pub source: String,
    pub samples: u64,
    /// Share of these samples in functions that were moved.
    pub covered: Option<Share>,
    /// How often blocks of code are executed; `None` if this optimization did not try to count it, as with reused
    /// samples, or with `counts = "sampled"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<BlockCounts>,
    /// Number of functions that were moved.
    pub functions: u64,
    /// Hot functions that were not moved, by reason.
    pub skipped: Vec<(String, u64)>,
    /// Files whose code has a new layout.
    pub files: Vec<String>,
    /// Size of code that is expected to run.
    pub hot: Bytes,
    /// Size of the same functions' code that is not expected to run.
    pub cold: Bytes,
    /// Memory added to each process.
    pub added: Bytes,
    /// Processes that were changed or inherited the layout: several if sessions have their own.
    pub processes: u32,
    /// Number of processes that were not changed, with the reason of one of them.
    pub unchanged: Option<(u32, String)>,
    /// Longest time for which threads were stopped.
    pub longest_pause: Nanos,
    /// Highest number of threads stopped at the same time.
    pub threads: u32,
    pub took: Nanos,
}

/// The outcome of counting how often blocks of code are executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlockCounts {
    Counted {
        executions: u64,
        /// The server's time that was lost.
        lost: Nanos,
    },
    /// They were estimated from the samples, because they could not be counted.
    Estimated { reason: String },
}
