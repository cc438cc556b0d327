//! Jobs and nodes as Slurm lists them.

use crate::record::JobId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub id: JobId,
    pub name: String,
    pub state: JobState,
    /// Why it is in this state, in Slurm's words.
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    Pending,
    /// It runs, is suspended, or is ending; also a state that this version does not know.
    Active(String),
    Ended(JobEnd),
}

/// How a job ended according to Slurm. That decides only what is tried next: whether its task is done
/// is decided by the task's result file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEnd {
    /// The script exited with 0.
    Completed,
    /// The script exited with another code or was killed by a signal.
    Failed,
    /// Somebody cancelled it.
    Cancelled,
    /// It reached its time limit.
    Timeout,
    /// Its node failed or could not be booted.
    NodeFailed,
    /// Another job took its place.
    Preempted,
    /// It used more memory than it may.
    OutOfMemory,
}

impl JobState {
    /// Reads Slurm's name of a state: `RUNNING`, `CANCELLED by 1000`, `CANCELLED+`.
    pub fn from_name(name: &str) -> Self {
        let first = name.split([' ', '+', ',']).next().unwrap_or_default();
        match first {
            "PENDING" | "REQUEUED" | "REQUEUE_FED" | "REQUEUE_HOLD" | "SPECIAL_EXIT"
            | "RESV_DEL_HOLD" => Self::Pending,
            "COMPLETED" => Self::Ended(JobEnd::Completed),
            "FAILED" => Self::Ended(JobEnd::Failed),
            "CANCELLED" | "REVOKED" => Self::Ended(JobEnd::Cancelled),
            "TIMEOUT" | "DEADLINE" => Self::Ended(JobEnd::Timeout),
            "NODE_FAIL" | "BOOT_FAIL" => Self::Ended(JobEnd::NodeFailed),
            "PREEMPTED" => Self::Ended(JobEnd::Preempted),
            "OUT_OF_MEMORY" => Self::Ended(JobEnd::OutOfMemory),
            other => Self::Active(other.to_owned()),
        }
    }

    /// The word for people.
    pub fn title(&self) -> String {
        match self {
            Self::Pending => "pending".to_owned(),
            Self::Active(name) => name.to_lowercase(),
            Self::Ended(end) => end.title().to_owned(),
        }
    }
}

impl JobEnd {
    /// The words for people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Completed => "ended",
            Self::Failed => "failed",
            Self::Cancelled => "was cancelled",
            Self::Timeout => "reached its time limit",
            Self::NodeFailed => "lost its node",
            Self::Preempted => "was preempted",
            Self::OutOfMemory => "ran out of memory",
        }
    }
}

impl Job {
    /// Whether it can never start because a job that it waits for failed.
    pub fn waits_for_failed_job(&self) -> bool {
        self.state == JobState::Pending && self.reason.contains("DependencyNeverSatisfied")
    }

    /// Whether its node may be down or drained, or failed to launch it. Slurm gives the same reasons for
    /// nodes that are reserved for other jobs, such as `ReqNodeNotAvail, May be reserved for other job`.
    pub fn waits_for_broken_node(&self) -> bool {
        const REASONS: [&str; 2] = ["ReqNodeNotAvail", "DOWN"];
        let names_node = REASONS.iter().any(|one| self.reason.contains(one));
        self.was_not_launched() || self.state == JobState::Pending && names_node
    }

    /// Whether its node failed to launch it, after which Slurm holds it.
    pub fn was_not_launched(&self) -> bool {
        const REASONS: [&str; 2] = ["launch failed", "launch_failed_requeued_held"];
        self.state == JobState::Pending && REASONS.iter().any(|one| self.reason.contains(one))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    /// Its state, in Slurm's words.
    pub state: String,
    pub features: Vec<String>,
    /// Number of its CPUs.
    pub cpus: u32,
}

impl Node {
    /// Whether it can run jobs now or after those that it runs.
    pub fn is_usable(&self) -> bool {
        // `idle*`: does not respond. Drained nodes are `drained`, `draining` or `idle+drain`.
        const BROKEN: [&str; 9] =
            ["down", "drain", "fail", "error", "unknown", "maint", "reboot", "power", "inval"];
        let state = self.state.to_lowercase();
        !state.contains('*') && !BROKEN.iter().any(|word| state.contains(word))
    }

    /// Whether nothing runs on it.
    pub fn is_idle(&self) -> bool {
        self.is_usable() && self.state.to_lowercase().starts_with("idle")
    }
}
