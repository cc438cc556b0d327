//! What to do next, from what is stored, what Slurm lists, and what the jobs wrote.
//!
//! Without input or output: the same observation always leads to the same actions. A task is done when
//! one of its attempts has written that it is complete. Everything that Slurm says only decides whether
//! there is another attempt.

use std::collections::BTreeMap;

use dbdyno_units::Nanos;

use crate::files::{AttemptFiles, TaskEnd};
use crate::jobs::{Job, JobEnd, JobState, Node};
use crate::record::{
    AttemptRecord, EndKind, FleetRecord, JobId, Limits, MAX_ATTEMPTS, Outcome, TaskRecord, UnixTime,
};

/// How long Slurm may take to list a job whose submission was not answered.
const SUBMIT_WAIT: Nanos = Nanos::from_secs(30);

/// What is known at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    pub now: UnixTime,
    /// The jobs that Slurm lists; `None` if it did not answer.
    pub jobs: Option<&'a [Job]>,
    /// How jobs ended that it lists no more, as far as its accounting knows.
    pub ended: &'a [(JobId, JobEnd)],
    /// The nodes of the partition; `None` if they are unknown.
    pub nodes: Option<&'a [Node]>,
    /// What the attempts of tasks wrote, by index of the task and number of the attempt.
    pub files: &'a BTreeMap<(usize, u32), AttemptFiles>,
}

/// What is to be done, besides cancelling the jobs in [`FleetRecord::not_cancelled`]. The record already contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Submit the job of an attempt.
    Submit {
        /// The index of the task.
        task: usize,
        attempt: u32,
    },
    /// Tell an attempt to stop, if it still runs.
    Fence { task: usize, attempt: u32 },
    /// Take the run of a complete attempt as that of the task.
    Accept { task: usize, attempt: u32 },
}

/// Updates the record by an observation; returns what is to be done. The record must be stored before
/// that, so that no job is forgotten.
pub fn decide(record: &mut FleetRecord, seen: &Observation<'_>) -> Vec<Action> {
    let mut actions = Vec::new();
    for index in 0..record.tasks.len() {
        Decision { record, seen, index, actions: &mut actions }.task();
    }
    actions
}

/// Whether the nodes of the partition must be known to go on.
pub fn needs_nodes(record: &FleetRecord, now: UnixTime) -> bool {
    let wait = record.request.limits.node_wait;
    let is_to_be_replaced = |attempt: &AttemptRecord| match &attempt.end {
        Some(end) => end.kind == EndKind::NodeDown,
        None => attempt.unavailable_since.is_some_and(|since| now.since(since) >= wait),
    };
    let needs = |task: &TaskRecord| {
        task.outcome.is_none() && task.attempts.last().is_some_and(is_to_be_replaced)
    };
    record.tasks.iter().any(needs)
}

/// A decision about one task.
struct Decision<'a, 'b> {
    record: &'a mut FleetRecord,
    seen: &'a Observation<'b>,
    index: usize,
    actions: &'a mut Vec<Action>,
}

impl Decision<'_, '_> {
    fn task(&mut self) {
        self.adopt_jobs();
        if self.task_ref().outcome.is_none() {
            self.look_for_complete();
        }
        if self.task_ref().outcome.is_none() && !self.task_ref().builds {
            self.end_without_builds();
        }
        if self.task_ref().outcome.is_some() {
            self.end_other_attempts();
            return;
        }
        match self.task_ref().attempts.last() {
            Some(attempt) if attempt.end.is_none() => self.follow(attempt.number),
            _ => {}
        }
        let task = self.task_ref();
        if task.outcome.is_none() && !task.has_open_attempt() {
            self.next_attempt();
        }
    }

    fn task_ref(&self) -> &TaskRecord {
        &self.record.tasks[self.index]
    }

    fn attempt_mut(&mut self, number: u32) -> Option<&mut AttemptRecord> {
        let attempts = &mut self.record.tasks[self.index].attempts;
        attempts.iter_mut().find(|attempt| attempt.number == number)
    }

    fn files(&self, attempt: u32) -> Option<&AttemptFiles> {
        self.seen.files.get(&(self.index, attempt))
    }

    /// Finds jobs whose number is not stored, by their claim or their name. If an attempt was submitted
    /// twice, the job that claimed it is its job.
    fn adopt_jobs(&mut self) {
        for at in 0..self.task_ref().attempts.len() {
            let attempt = &self.task_ref().attempts[at];
            let claim = self.files(attempt.number).and_then(|files| files.claim.as_ref()?.job);
            let by_name = || {
                let name = self.record.job_name(self.task_ref(), attempt.number);
                let jobs = self.seen.jobs.filter(|_| attempt.end.is_none())?;
                jobs.iter().find(|job| job.name == name).map(|job| job.id)
            };
            let known = claim.or(attempt.job).or_else(by_name);
            self.record.tasks[self.index].attempts[at].job = known;
        }
    }

    /// Ends the task if an attempt is complete: the first one, if several are.
    fn look_for_complete(&mut self) {
        let complete = self.task_ref().attempts.iter().find_map(|attempt| {
            let result = self.files(attempt.number)?.result.as_ref()?;
            Some((attempt.number, result.end.outcome(attempt.number)?))
        });
        let Some((attempt, outcome)) = complete else { return };
        self.end(attempt, "complete", EndKind::Done);
        self.record.tasks[self.index].outcome = Some(outcome);
        if !self.task_ref().builds {
            self.actions.push(Action::Accept { task: self.index, attempt });
        }
    }

    /// Ends a task that cannot be measured because builds failed.
    fn end_without_builds(&mut self) {
        let Some(builds) = self.record.failed_builds() else { return };
        let reason = format!("it has no builds: see {}", builds.name);
        let outcome = match builds.outcome {
            Some(Outcome::Cancelled { .. }) => Outcome::Cancelled { reason },
            _ => Outcome::Failed { reason },
        };
        self.record.tasks[self.index].outcome = Some(outcome);
    }

    /// Cancels what may still run of a task that has ended.
    fn end_other_attempts(&mut self) {
        let attempts = self.task_ref().attempts.iter();
        let open: Vec<AttemptRecord> =
            attempts.filter(|attempt| attempt.end.is_none()).cloned().collect();
        for AttemptRecord { number, job, submitted, .. } in open {
            match job {
                Some(job) => {
                    self.actions.push(Action::Fence { task: self.index, attempt: number });
                    self.record.not_cancelled.insert(job);
                    self.end(number, "not needed any more", EndKind::Done);
                }
                None if self.was_never_submitted(submitted) => {
                    self.end(number, "not submitted", EndKind::Done);
                }
                None => {}
            }
        }
    }

    /// Whether Slurm lists no job although it had time to.
    fn was_never_submitted(&self, submitted: UnixTime) -> bool {
        self.seen.jobs.is_some() && self.seen.now.since(submitted) > SUBMIT_WAIT
    }

    /// Follows the job of the last attempt.
    fn follow(&mut self, number: u32) {
        let result = self.files(number).and_then(|files| files.result.as_ref());
        let is_interrupted = match result.map(|result| result.end.clone()) {
            Some(TaskEnd::Failed { reason, retry }) => {
                self.end(number, &reason, EndKind::Failed);
                if !retry {
                    self.record.tasks[self.index].outcome = Some(Outcome::Failed { reason });
                }
                return;
            }
            // Slurm knows whether by a time limit or by somebody who cancelled it.
            Some(TaskEnd::Interrupted) => true,
            Some(TaskEnd::Complete { .. } | TaskEnd::Skipped { .. }) | None => false,
        };
        let Some(attempt) = self.task_ref().attempt(number) else { return };
        let (job, submitted) = (attempt.job, attempt.submitted);
        let Some(jobs) = self.seen.jobs else { return };
        let Some(id) = job else {
            if self.was_never_submitted(submitted) {
                if self.record.cancelled {
                    self.end(number, "not submitted", EndKind::Done);
                } else if !self.waits_for_builds() {
                    self.submit(number);
                }
            }
            return;
        };
        let end = match jobs.iter().find(|job| job.id == id) {
            Some(job) => match job.state {
                JobState::Pending | JobState::Active(_) => return self.live(number, job),
                JobState::Ended(end) => Some(end),
            },
            None => {
                let mut ended = self.seen.ended.iter();
                ended.find(|(ended, _)| *ended == id).map(|(_, end)| *end)
            }
        };
        if is_interrupted {
            self.end(number, "was told to stop", EndKind::Interrupted);
            self.end_if_cancelled(id, end);
        } else {
            self.without_result(number, id, end);
        }
    }

    /// Ends the task if somebody cancelled its job.
    fn end_if_cancelled(&mut self, job: JobId, end: Option<JobEnd>) {
        if end == Some(JobEnd::Cancelled) && !self.record.cancelled {
            let reason = format!("job {job} was cancelled in Slurm");
            self.record.tasks[self.index].outcome = Some(Outcome::Cancelled { reason });
        }
    }

    /// A job that waits or runs.
    fn live(&mut self, number: u32, job: &Job) {
        let (now, cancelled) = (self.seen.now, self.record.cancelled);
        let wait = self.record.request.limits.node_wait;
        let is_broken = job.waits_for_broken_node();
        if job.waits_for_failed_job() {
            // The next attempt waits for the next job of the builds.
            self.record.not_cancelled.insert(job.id);
            return self.end(number, "the job of its builds failed", EndKind::Done);
        }
        let Some(attempt) = self.attempt_mut(number) else { return };
        attempt.state = match job.state {
            JobState::Pending if job.reason == "Dependency" => "waiting for builds".to_owned(),
            JobState::Pending => format!("pending ({})", job.reason),
            _ => job.state.title(),
        };
        attempt.missing_since = None;
        let since = is_broken.then(|| *attempt.unavailable_since.get_or_insert(now));
        attempt.unavailable_since = since;
        let node = attempt.node.clone();
        if cancelled {
            self.record.not_cancelled.insert(job.id);
        } else if let Some(since) = since.filter(|since| now.since(*since) >= wait) {
            // They are asked for before the next step.
            let Some(nodes) = self.seen.nodes else { return };
            let is_usable = nodes.iter().any(|one| one.name == node && one.is_usable());
            if is_usable && !job.was_not_launched() {
                // It is reserved for another job.
                if let Some(attempt) = self.attempt_mut(number) {
                    attempt.unavailable_since = None;
                }
                return;
            }
            self.record.not_cancelled.insert(job.id);
            let reason = format!("node {node} was not available for {}", now.since(since));
            self.end(number, &reason, EndKind::NodeDown);
        }
    }

    /// A job that Slurm lists as ended, or no more: its result may be visible a little later.
    fn without_result(&mut self, number: u32, job: JobId, end: Option<JobEnd>) {
        let now = self.seen.now;
        let wait = self.record.request.limits.result_wait;
        let has_begun = self.files(number).is_some_and(|files| files.claim.is_some());
        let Some(attempt) = self.attempt_mut(number) else { return };
        let since = *attempt.missing_since.get_or_insert(now);
        attempt.state = end.map_or_else(|| "not listed".to_owned(), |end| end.title().to_owned());
        if now.since(since) < wait {
            return;
        }
        let node = attempt.node.clone();
        let log = format!("{}/attempts/{number}/job.log", self.task_ref().name);
        let what = end.map_or("is not listed by Slurm any more", JobEnd::title);
        let mut reason = format!("job {job} on {node} {what} and left no result, see {log}");
        if !has_begun && matches!(end, None | Some(JobEnd::Completed | JobEnd::Failed)) {
            reason.push_str(
                ", and dbdyno did not even start: is the directory of the fleet run on a file system \
                 that all nodes share, and can programs be executed there?",
            );
        }
        let kind = match end {
            Some(JobEnd::Timeout | JobEnd::NodeFailed | JobEnd::Preempted) => EndKind::Interrupted,
            _ => EndKind::Failed,
        };
        self.end(number, &reason, kind);
        self.end_if_cancelled(job, end);
    }

    fn end(&mut self, number: u32, reason: &str, kind: EndKind) {
        let seen = self.seen.now;
        let measured = self.files(number).map_or(0, AttemptFiles::measured);
        if let Some(attempt) = self.attempt_mut(number) {
            attempt.finish(seen, reason, measured, kind);
        }
    }

    /// Whether jobs that its job must wait for are not known yet.
    fn waits_for_builds(&self) -> bool {
        !self.task_ref().builds && self.record.build_jobs().is_none()
    }

    /// Starts another attempt, waits before it, or gives up.
    fn next_attempt(&mut self) {
        let task = self.task_ref();
        let number = task.attempts.len() as u32 + 1;
        let failures = task.failures();
        let last = task.attempts.last().and_then(|attempt| attempt.end.clone());
        let limits = self.record.request.limits;
        if self.record.cancelled {
            let reason = "by `dbdyno fleet cancel`".to_owned();
            self.record.tasks[self.index].outcome = Some(Outcome::Cancelled { reason });
            return;
        }
        if self.waits_for_builds() {
            return;
        }
        if let Some(last) = &last {
            let is_over = failures > limits.retries
                || number as usize > task.forgiven + MAX_ATTEMPTS as usize;
            if is_over && task.attempts.len() > task.forgiven {
                let attempts = task.attempts.len();
                let reason = format!("{} (attempt {attempts}, the last one)", last.reason);
                self.record.tasks[self.index].outcome = Some(Outcome::Failed { reason });
                return;
            }
            // A node that was given up may be back when the fleet run is resumed.
            let is_given_up = last.kind == EndKind::NodeDown && task.attempts.len() > task.forgiven;
            if is_given_up && !self.replace_node(&last.reason) {
                return;
            }
            if self.seen.now.since(last.seen) < pause(limits, failures) {
                return;
            }
        }
        let task = &mut self.record.tasks[self.index];
        let (node, submitted) = (task.node.clone(), self.seen.now);
        task.attempts.push(AttemptRecord { number, node, submitted, ..AttemptRecord::default() });
        self.submit(number);
    }

    fn submit(&mut self, number: u32) {
        // Each time: the controller may have been killed after it stored this attempt.
        for attempt in 1..number {
            self.actions.push(Action::Fence { task: self.index, attempt });
        }
        let now = self.seen.now;
        if let Some(attempt) = self.attempt_mut(number) {
            attempt.submitted = now;
            "submitting".clone_into(&mut attempt.state);
        }
        self.actions.push(Action::Submit { task: self.index, attempt: number });
    }

    /// Moves the task to another node. Returns whether the next attempt can start; otherwise it is lost,
    /// or the nodes are not known yet.
    fn replace_node(&mut self, why: &str) -> bool {
        let last = self.task_ref().attempts.last().map(|attempt| attempt.node.clone());
        if last.as_ref() != Some(&self.task_ref().node) {
            return true;
        }
        let request = &self.record.request;
        let reason = if request.named_nodes && !request.shard && !self.task_ref().builds {
            why.to_owned()
        } else {
            let Some(nodes) = self.seen.nodes else { return false };
            if let Some(node) = find_replacement(self.record, self.index, nodes) {
                self.record.tasks[self.index].node = node;
                return true;
            }
            format!("{why}, and there is no other node for it")
        };
        self.record.tasks[self.index].outcome = Some(Outcome::Lost { reason });
        false
    }
}

/// The pause before the next attempt.
fn pause(limits: Limits, failures: u32) -> Nanos {
    match failures {
        0 => Nanos::ZERO,
        failures => limits.retry_wait.times(1 << (failures - 1).min(10)),
    }
}

#[cfg(test)]
mod tests;

/// A usable node for a task: one that no task uses, idle ones first. A shard may also share a node with
/// another shard, after which it runs; it takes the one with the fewest. Builds are made on a node that
/// another task uses. `None` if there is none.
fn find_replacement(record: &FleetRecord, task: usize, nodes: &[Node]) -> Option<String> {
    let failed = |name: &str| {
        let attempts =
            record.tasks.iter().flat_map(|task| task.attempts.iter().skip(task.forgiven));
        attempts
            .filter(|attempt| attempt.node == name)
            .any(|attempt| attempt.end.as_ref().is_some_and(|end| end.kind == EndKind::NodeDown))
    };
    let mut used: BTreeMap<&str, usize> = BTreeMap::new();
    let others = record.tasks.iter().enumerate();
    for (_, other) in others.filter(|(index, other)| *index != task && !other.builds) {
        match other.outcome {
            // Its node was not measured.
            Some(Outcome::Lost { .. }) => {}
            // Each machine is measured once, but can take another shard.
            Some(Outcome::Complete { .. }) if record.request.shard => {
                used.entry(&other.node).or_default();
            }
            _ => *used.entry(&other.node).or_default() += 1,
        }
    }
    let number = |node: &Node| used.get(node.name.as_str()).copied().unwrap_or(0);
    let is_permitted = |node: &&Node| match record.tasks[task].builds {
        true => used.contains_key(node.name.as_str()),
        false => record.request.shard || !used.contains_key(node.name.as_str()),
    };
    let usable = nodes.iter().filter(|node| node.is_usable() && !failed(&node.name));
    let mut candidates: Vec<&Node> = usable.filter(is_permitted).collect();
    candidates.sort_by_key(|node| (number(node), !node.is_idle()));
    candidates.first().map(|node| node.name.clone())
}
