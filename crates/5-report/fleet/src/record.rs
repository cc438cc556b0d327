//! What is stored of a fleet run: `fleet.json`.

use std::collections::BTreeSet;

use dbdyno_units::Nanos;
use serde::{Deserialize, Serialize};

/// The version of the format of `fleet.json`.
pub(crate) const FORMAT: u32 = 1;

/// Whether Slurm can have a node of this name, which becomes part of arguments and of paths.
pub(crate) fn is_node_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty() && !name.starts_with(['.', '-']) && name.chars().all(is_part)
}

/// What names of dbdyno's own files in the directory of a fleet run begin with, up to the first dot.
const OWN_FILES: [&str; 11] = [
    "cancel",
    "comparison",
    "comparison_absolute",
    "cpus",
    "data",
    "dbdyno",
    "experiment",
    "fleet",
    "logs",
    "report",
    "run",
];

/// Whether a name can be that of a task, and so of its directory.
pub(crate) fn is_task_name(name: &str) -> bool {
    is_node_name(name) && !OWN_FILES.contains(&name.split('.').next().unwrap_or_default())
}

/// Whether a text has lowercase hexadecimal digits only, as an ID.
pub(crate) fn is_hexadecimal(text: &str) -> bool {
    !text.is_empty() && text.len() <= 32 && text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
}

/// The number of a job in Slurm.
pub type JobId = u64;

/// A fleet run: what was asked, and its tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetRecord {
    pub format: u32,
    /// A random number in hexadecimal digits, part of the names of jobs.
    pub id: String,
    pub version: String,
    /// When it started, RFC 3339.
    pub started: String,
    pub request: Request,
    /// Whether the user cancelled it.
    pub cancelled: bool,
    pub tasks: Vec<TaskRecord>,
    /// Jobs that are to be cancelled, and that Slurm has not cancelled yet.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub not_cancelled: BTreeSet<JobId>,
}

/// One run: the experiment on a node, or a shard of its microbenchmarks. Or the builds of all runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// The name of its directory.
    pub name: String,
    pub node: String,
    /// The microbenchmarks of a shard; `None` for all.
    pub microbenchmarks: Option<Vec<String>>,
    /// Whether it compiles what the other tasks need, and measures nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub builds: bool,
    /// The attempts, numbered from 1.
    pub attempts: Vec<AttemptRecord>,
    /// Number of attempts whose failures do not count, because the user resumed the fleet run.
    pub forgiven: usize,
    /// How it ended; `None` until then.
    pub outcome: Option<Outcome>,
}

/// One job of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// Its number, from 1.
    pub number: u32,
    pub node: String,
    /// When it was to be submitted.
    pub submitted: UnixTime,
    /// The job; `None` until Slurm's answer is stored.
    pub job: Option<JobId>,
    /// What Slurm said last.
    pub state: String,
    /// Since when its node is down while it waits; `None` if it is not.
    pub unavailable_since: Option<UnixTime>,
    /// Since when Slurm lists it no more, or as ended, without a result; `None` if it does.
    pub missing_since: Option<UnixTime>,
    /// How it ended; `None` until then.
    pub end: Option<AttemptEnd>,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptEnd {
    /// When this was seen.
    pub seen: UnixTime,
    /// The reason, in words.
    pub reason: String,
    /// How much was measured: see [`TaskProgress::measured`](crate::TaskProgress).
    pub measured: u64,
    pub kind: EndKind,
}

/// The kind of an attempt's end, on which the next one depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndKind {
    /// Everything is measured, or it is not needed any more.
    Done,
    /// It was interrupted, such as by a time limit: not a failure if it measured something.
    Interrupted,
    Failed,
    /// It never started because its node was down: the next attempt needs another node.
    NodeDown,
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// Everything was measured.
    Complete {
        /// The attempt whose run it is.
        attempt: u32,
        /// Number of failures of candidates, see the report.
        failures: usize,
    },
    /// Builds would be of no use to the other tasks.
    Skipped {
        /// The reason, in words.
        reason: String,
    },
    /// It failed too often, or cannot succeed.
    Failed { reason: String },
    /// The node is gone, and there is no other one for it.
    Lost { reason: String },
    /// Somebody cancelled it.
    Cancelled {
        /// Who or what, in words.
        reason: String,
    },
}

impl FleetRecord {
    pub fn new(
        id: String,
        version: &str,
        started: &str,
        request: Request,
        tasks: Vec<TaskRecord>,
    ) -> Self {
        let (version, started) = (version.to_owned(), started.to_owned());
        let (cancelled, not_cancelled) = (false, BTreeSet::new());
        Self { format: FORMAT, id, version, started, request, cancelled, tasks, not_cancelled }
    }

    /// The name of a job, by which it is found again if dbdyno is killed while it submits it.
    pub fn job_name(&self, task: &TaskRecord, attempt: u32) -> String {
        format!("{}{}-{attempt}", self.start_of_job_names(), task.name)
    }

    /// What the names of its jobs begin with.
    pub(crate) fn start_of_job_names(&self) -> String {
        format!("dbdyno-{}-", self.id)
    }

    /// Whether all tasks have ended and no job is to be cancelled.
    pub fn has_ended(&self) -> bool {
        let has_ended = |task: &TaskRecord| task.outcome.is_some() && !task.has_open_attempt();
        self.tasks.iter().all(has_ended) && self.not_cancelled.is_empty()
    }

    /// Whether Slurm has accepted a job of it.
    pub(crate) fn has_jobs(&self) -> bool {
        self.tasks.iter().flat_map(|task| &task.attempts).any(|attempt| attempt.job.is_some())
    }

    /// The jobs of builds that have not ended, for which measuring jobs wait; `None` if one of them is not
    /// submitted yet, or has ended without a result.
    pub(crate) fn build_jobs(&self) -> Option<Vec<JobId>> {
        let open = self.tasks.iter().filter(|task| task.builds && task.outcome.is_none());
        open.map(|task| {
            let attempt = task.attempts.iter().find(|attempt| attempt.end.is_none())?;
            attempt.job.filter(|_| attempt.missing_since.is_none())
        })
        .collect()
    }

    /// Whether jobs can be submitted at once because those that they wait for are known now.
    pub fn has_jobs_to_submit(&self) -> bool {
        let is_new = |task: &TaskRecord| task.outcome.is_none() && task.attempts.is_empty();
        self.tasks.iter().any(is_new) && self.build_jobs().is_some()
    }

    /// A task of builds that ended without them.
    pub fn failed_builds(&self) -> Option<&TaskRecord> {
        let has_failed =
            |task: &&TaskRecord| task.outcome.as_ref().is_some_and(|end| !end.is_success());
        self.tasks.iter().filter(|task| task.builds).find(has_failed)
    }

    /// Prepares tasks that ended without everything measured, or are being cancelled, for more attempts.
    /// Returns their number.
    pub fn reopen(&mut self) -> usize {
        let was_cancelled = std::mem::take(&mut self.cancelled);
        let mut number = 0;
        for task in &mut self.tasks {
            let has_failed = task.outcome.as_ref().is_some_and(|end| !end.is_success());
            if has_failed {
                task.outcome = None;
                task.forgiven = task.attempts.len();
            }
            let is_stopped = was_cancelled && task.outcome.is_none() && task.end_cancelled();
            number += usize::from(has_failed || is_stopped);
        }
        number
    }
}

impl Outcome {
    /// Whether nothing is left to do.
    pub const fn is_success(&self) -> bool {
        matches!(self, Self::Complete { .. } | Self::Skipped { .. })
    }
}

impl TaskRecord {
    pub fn new(name: &str, node: &str, microbenchmarks: Option<Vec<String>>) -> Self {
        let (name, node) = (name.to_owned(), node.to_owned());
        Self { name, node, microbenchmarks, ..Self::default() }
    }

    pub fn attempt(&self, number: u32) -> Option<&AttemptRecord> {
        self.attempts.iter().find(|attempt| attempt.number == number)
    }

    /// Whether it has ended, or Slurm has accepted the job of its last attempt.
    pub fn is_submitted(&self) -> bool {
        self.outcome.is_some() || self.attempts.last().is_some_and(|last| last.job.is_some())
    }

    /// Whether a job of it may be waiting or running.
    pub fn has_open_attempt(&self) -> bool {
        self.attempts.iter().any(|attempt| attempt.end.is_none())
    }

    /// Ends the attempts whose jobs Slurm may be cancelling for the user. Otherwise these would later look
    /// as if somebody had cancelled them in Slurm. Returns whether there are any.
    fn end_cancelled(&mut self) -> bool {
        let mut has_any = false;
        let is_open = |one: &&mut AttemptRecord| one.end.is_none() && one.job.is_some();
        for attempt in self.attempts.iter_mut().filter(is_open) {
            // No pause is needed before the next attempt, so the exact time does not matter.
            attempt.finish(attempt.submitted, "cancelled", 0, EndKind::Done);
            has_any = true;
        }
        has_any
    }

    /// Number of attempts that failed, or were interrupted without having measured more than those
    /// before on the same node.
    pub fn failures(&self) -> u32 {
        let mut most = 0;
        let mut failures = 0;
        for (index, attempt) in self.attempts.iter().enumerate() {
            let Some(end) = &attempt.end else { continue };
            // Another node starts anew.
            if index > 0 && self.attempts[index - 1].node != attempt.node {
                most = 0;
            }
            let is_failure = match end.kind {
                EndKind::Done | EndKind::NodeDown => false,
                EndKind::Interrupted => end.measured <= most,
                EndKind::Failed => true,
            };
            most = most.max(end.measured);
            failures += u32::from(is_failure && index >= self.forgiven);
        }
        failures
    }
}

impl AttemptRecord {
    /// Ends it, with this end unless it has one.
    pub(crate) fn finish(&mut self, seen: UnixTime, reason: &str, measured: u64, kind: EndKind) {
        let reason = reason.to_owned();
        self.end.get_or_insert(AttemptEnd { seen, reason, measured, kind });
        self.state.clear();
    }
}

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

/// The time between two steps: Slurm and the file system are asked less often for many tasks.
pub fn poll_interval(tasks: usize) -> Nanos {
    Nanos::from_millis((tasks as u64 * 20).clamp(3_000, 60_000))
}

#[cfg(test)]
pub(crate) mod sample {
    //! Fleet runs for tests.

    use dbdyno_units::Nanos;

    use super::{FleetRecord, Limits, Request, TaskRecord};

    /// A request for nodes of the partition `main`.
    pub(crate) fn request() -> Request {
        Request {
            name: "test".to_owned(),
            partition: Some("main".to_owned()),
            constraint: None,
            account: None,
            time: None,
            shard: false,
            named_nodes: false,
            scratch: "/var/tmp".to_owned(),
            cache: None,
            limits: Limits {
                retries: 2,
                retry_wait: Nanos::from_secs(30),
                node_wait: Nanos::from_secs(15 * 60),
                result_wait: Nanos::from_secs(60),
            },
        }
    }

    /// A fleet run with a task for each of `nodes`.
    pub(crate) fn fleet(nodes: usize) -> FleetRecord {
        let node = |number: usize| format!("n{number:03}");
        let tasks = (1..=nodes).map(|number| TaskRecord::new(&node(number), &node(number), None));
        FleetRecord::new(
            "5eed".to_owned(),
            "1.2.3",
            "2026-01-02T03:04:05Z",
            request(),
            tasks.collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample::fleet;

    fn interrupted(number: u32, node: &str, measured: u64) -> AttemptRecord {
        let (seen, reason) = (UnixTime(1_800_000_000), "time limit".to_owned());
        AttemptRecord {
            number,
            node: node.to_owned(),
            submitted: seen,
            job: Some(1),
            end: Some(AttemptEnd { seen, reason, measured, kind: EndKind::Interrupted }),
            ..AttemptRecord::default()
        }
    }

    #[test]
    fn progress_on_another_node_is_no_failure() {
        let mut task = fleet(1).tasks.remove(0);
        task.attempts = vec![
            interrupted(1, "node1", 4000),
            interrupted(2, "node1", 8000),
            interrupted(3, "node2", 2000),
            interrupted(4, "node2", 4000),
        ];
        assert_eq!(task.failures(), 0);
        task.attempts.push(interrupted(5, "node2", 4000));
        assert_eq!(task.failures(), 1);
    }

    /// The limit that docs/fleet.md names.
    #[test]
    fn record_of_1000_tasks_is_small() {
        let mut record = fleet(1000);
        for task in &mut record.tasks {
            let end = AttemptEnd {
                seen: UnixTime(1_800_000_000),
                reason: "complete".to_owned(),
                measured: 100_000,
                kind: EndKind::Done,
            };
            task.attempts = vec![AttemptRecord {
                number: 1,
                node: task.node.clone(),
                submitted: UnixTime(1_800_000_000),
                job: Some(1_000_000),
                end: Some(end),
                ..AttemptRecord::default()
            }];
            task.outcome = Some(Outcome::Complete { attempt: 1, failures: 0 });
        }
        let size = serde_json::to_vec_pretty(&record).unwrap().len();
        assert!((600_000..800_000).contains(&size), "{size}");
    }
}
