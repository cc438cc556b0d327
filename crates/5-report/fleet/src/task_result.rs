//! Files that an attempt writes, by which its task is judged.

use serde::{Deserialize, Serialize};

use crate::record::JobId;

/// How an attempt ended, written by the job as its last act: `result.json`. It decides, not the exit
/// code of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskResult {
    /// The fleet run.
    pub fleet: String,
    pub task: String,
    pub attempt: u32,
    pub node: String,
    /// How much is measured in the run beside it: see [`TaskProgress::measured`].
    pub measured: u64,
    /// How it ended.
    pub end: TaskEnd,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "kebab-case")]
pub enum TaskEnd {
    /// Everything is measured, or built.
    Complete {
        /// Number of failures of candidates.
        failures: usize,
    },
    /// Builds would be of no use to the other tasks.
    Skipped { reason: String },
    /// It was told to stop, by Slurm before a time limit or by a user; it can be resumed.
    Interrupted,
    /// The run failed.
    Failed {
        /// The error.
        reason: String,
        /// Whether another attempt may succeed: not with an invalid experiment or directory.
        retry: bool,
    },
}

/// Which job runs an attempt, written by the job as its first act: `claim.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The job; `None` outside Slurm.
    pub job: Option<JobId>,
    pub node: String,
}

/// What an attempt does, replaced every few seconds: `progress.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskProgress {
    /// What it does, in words.
    pub doing: String,
    /// Number of slices and of steps of an insert benchmark in the copy of the run beside it, or of
    /// finished builds.
    pub measured: u64,
}

/// What the files of an attempt say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttemptFiles {
    /// The job that runs it; `None` if none has begun.
    pub claim: Option<Claim>,
    /// What it did last.
    pub progress: Option<TaskProgress>,
    /// How it ended; `None` until then.
    pub result: Option<TaskResult>,
}

impl AttemptFiles {
    /// How much is measured: see [`TaskProgress::measured`].
    #[must_use]
    pub fn measured(&self) -> u64 {
        let result = self.result.as_ref().map(|result| result.measured);
        result.or_else(|| Some(self.progress.as_ref()?.measured)).unwrap_or(0)
    }
}
