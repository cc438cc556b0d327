//! Jobs and nodes as `squeue`, `sinfo` and `sacct` print them in the formats that dbdyno asks for.
//!
//! The fields of `--json` differ between versions of Slurm; those of `--format` are the same since
//! version 14. With `--user`, the controller sends only the jobs of one user, which `--json` ignores.

use crate::record::{JobId, is_node_name};

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

/// The format of `squeue`: number, name, state, reason.
pub(crate) const SQUEUE: &str = "%i|%j|%T|%r";

/// The format of `sinfo --Node`: name, state, CPUs, features, partition with `*` for the default.
pub(crate) const SINFO: &str = "%N|%T|%c|%f|%P";

/// The format of `sacct`.
pub(crate) const SACCT: &str = "JobID,State";

/// Reads the jobs. Lines of array jobs, which are not dbdyno's, and damaged lines are ignored.
pub(crate) fn jobs(text: &str) -> Vec<Job> {
    let job = |line: &str| {
        let (id, rest) = line.split_once('|')?;
        // The name of somebody else's job may contain the separator.
        let (rest, reason) = rest.rsplit_once('|')?;
        let (name, state) = rest.rsplit_once('|')?;
        Some(Job {
            id: id.trim().parse().ok()?,
            name: name.to_owned(),
            state: JobState::from_name(state.trim()),
            reason: reason.trim().to_owned(),
        })
    };
    text.lines().filter_map(job).collect()
}

/// Reads the nodes of a partition, or of the default one, each once. Names that no node can have are ignored.
pub(crate) fn nodes(text: &str, partition: Option<&str>) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [name, state, cpus, features, of] = fields[..] else { continue };
        let is_in = match partition {
            Some(partition) => of.trim_end_matches('*') == partition,
            None => of.ends_with('*'),
        };
        if !is_in || !is_node_name(name) || nodes.iter().any(|node| node.name == name) {
            continue;
        }
        let features = match features {
            "(null)" | "" => Vec::new(),
            features => features.split(',').map(str::to_owned).collect(),
        };
        let cpus = cpus.trim_end_matches('+').parse().unwrap_or(0);
        nodes.push(Node { name: name.to_owned(), state: state.to_owned(), features, cpus });
    }
    nodes
}

/// Reads how jobs ended.
pub(crate) fn ended(text: &str) -> Vec<(JobId, JobEnd)> {
    let end = |line: &str| {
        let (id, state) = line.split_once('|')?;
        match JobState::from_name(state.trim()) {
            JobState::Ended(end) => Some((id.trim().parse().ok()?, end)),
            JobState::Pending | JobState::Active(_) => None,
        }
    };
    text.lines().filter_map(end).collect()
}

/// Reads the answer of `sbatch --parsable`: the number, and the cluster if there are several.
pub(crate) fn submitted(text: &str) -> Option<JobId> {
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    line.split(';').next()?.trim().parse().ok()
}

/// The features of a constraint `a&b`; `None` if it has another form, which only Slurm can evaluate.
pub(crate) fn features(constraint: &str) -> Option<Vec<&str>> {
    let features: Vec<&str> = constraint.split('&').map(str::trim).collect();
    let is_name = |name: &&str| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '=');
        !name.is_empty() && name.chars().all(is_part)
    };
    features.iter().all(is_name).then_some(features)
}

#[cfg(test)]
mod tests {
    use dbdyno_fuzz::Fuzz;

    use super::*;

    const JOBS: &str = "12|dbdyno-5eed-n1-1|RUNNING|None\n\
        13|dbdyno-5eed-n2-1|PENDING|ReqNodeNotAvail, UnavailableNodes:n2\n\
        14|a|b|CANCELLED|None\n\
        15_[0-3]|array|PENDING|Resources\n\
        16|x|COMPLETING|None\nslurm_load_jobs error\n";

    #[test]
    fn jobs_are_read_with_any_name() {
        let jobs = jobs(JOBS);
        let shown: Vec<_> =
            jobs.iter().map(|job| (job.id, &*job.name, job.state.title())).collect();
        assert_eq!(
            shown,
            [
                (12, "dbdyno-5eed-n1-1", "running".to_owned()),
                (13, "dbdyno-5eed-n2-1", "pending".to_owned()),
                (14, "a|b", "was cancelled".to_owned()),
                (16, "x", "completing".to_owned())
            ]
        );
        assert!(jobs[1].waits_for_broken_node() && !jobs[0].waits_for_broken_node());
        assert_eq!(JobState::from_name("CANCELLED by 1000"), JobState::Ended(JobEnd::Cancelled));
        assert!(!matches!(JobState::from_name("STAGE_OUT"), JobState::Ended(_)));
    }

    #[test]
    fn nodes_of_one_partition_are_read_once() {
        let text = "n1|idle|64|epyc,nvme|main*\nn1|idle|64|epyc,nvme|debug\nn2|down*|64|(null)|main*\n\
                    n3|mixed|8+|xeon|debug\n";
        let names = |nodes: &[Node]| {
            let names: Vec<String> = nodes.iter().map(|node| node.name.clone()).collect();
            names.join(" ")
        };
        let main = nodes(text, None);
        assert_eq!(names(&main), "n1 n2");
        assert_eq!(main[0].features, ["epyc", "nvme"]);
        assert!(main[0].is_idle() && !main[1].is_usable() && main[1].features.is_empty());
        for name in ["..", "../x", ".x", "--wrap=id", "n1;id", "n\x1b[31m", ""] {
            assert_eq!(nodes(&format!("{name}|idle|2|(null)|main*"), None), [], "{name}");
        }
        let debug = nodes(text, Some("debug"));
        assert_eq!(names(&debug), "n1 n3");
        assert!(debug[1].is_usable() && !debug[1].is_idle() && debug[1].cpus == 8);
    }

    #[test]
    fn accounting_and_submission_are_read() {
        let text = "12|COMPLETED\n13|CANCELLED by 0\n14|RUNNING\n15|NODE_FAIL\n";
        assert_eq!(
            ended(text),
            [(12, JobEnd::Completed), (13, JobEnd::Cancelled), (15, JobEnd::NodeFailed)]
        );
        assert_eq!(submitted("17\n"), Some(17));
        assert_eq!(submitted("notice: maintenance\n18;east\n"), Some(18));
        assert_eq!(submitted(""), None);
    }

    #[test]
    fn constraints_of_features_that_must_all_be_there_are_evaluated() {
        assert_eq!(features("epyc&nvme"), Some(vec!["epyc", "nvme"]));
        for other in ["epyc|xeon", "[a|b]", "epyc*4", "!epyc", ""] {
            assert_eq!(features(other), None, "{other}");
        }
    }

    #[test]
    fn damaged_listings_are_read_without_panic() {
        Fuzz::new(vec![JOBS.into()]).words(&["|", "n1|idle|64|x|main*"]).run(|bytes| {
            let text = String::from_utf8_lossy(bytes);
            let _ = (jobs(&text), nodes(&text, None), ended(&text), submitted(&text));
        });
    }
}
