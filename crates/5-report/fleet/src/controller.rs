//! The controller: observes, decides, stores, acts.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::decide::{Action, Observation, decide, needs_nodes};
use crate::files::{AttemptFiles, StoreError};
use crate::jobs::{Job, JobEnd, Node};
use crate::record::{EndKind, FleetRecord, JobId, Outcome, UnixTime};

/// Slurm, or a simulation of it.
pub trait Cluster {
    /// The jobs of this user, also those that have ended lately.
    fn jobs(&mut self) -> Result<Vec<Job>, ClusterError>;

    /// How these jobs ended, as far as the accounting knows.
    fn ended(&mut self, jobs: &[JobId]) -> Vec<(JobId, JobEnd)>;

    /// The nodes that a fleet run may use.
    fn nodes(&mut self, record: &FleetRecord) -> Result<Vec<Node>, ClusterError>;

    fn submit(&mut self, job: &Submission<'_>) -> Result<JobId, ClusterError>;

    fn cancel(&mut self, jobs: &[JobId]) -> Result<(), ClusterError>;
}

/// The directory of a fleet run, or a simulation of it.
pub trait Store {
    fn save(&mut self, record: &FleetRecord) -> Result<(), StoreError>;

    /// What the attempts of tasks that have not ended wrote.
    fn files(&mut self, record: &FleetRecord) -> BTreeMap<(usize, u32), AttemptFiles>;

    /// Creates the directory and the script of an attempt. Returns the directory.
    fn prepare(&mut self, task: &str, attempt: u32) -> Result<PathBuf, StoreError>;

    /// Tells an attempt to stop.
    fn fence(&mut self, task: &str, attempt: u32) -> Result<(), StoreError>;

    /// Makes the run of an attempt that of the task.
    fn accept(&mut self, task: &str, attempt: u32) -> Result<(), StoreError>;
}

/// A job to submit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission<'a> {
    pub name: String,
    pub task: &'a str,
    pub attempt: u32,
    pub node: &'a str,
    /// The directory with its script.
    pub directory: PathBuf,
    /// The jobs of builds that must succeed before it starts.
    pub after: Vec<JobId>,
    pub record: &'a FleetRecord,
}

/// Slurm did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// It did not answer; it may later.
    #[error("{0}")]
    NoAnswer(String),
    /// It refused, or its programs are not installed here.
    #[error("{0}")]
    Refused(String),
    /// It does not have the partition or the nodes that were asked for.
    #[error("{0}")]
    Unknown(String),
}

/// How many jobs are submitted between two writes of the record.
const SUBMISSIONS_PER_SAVE: usize = 50;

/// A fleet run that is controlled by this process.
pub struct Controller<C, S> {
    record: FleetRecord,
    cluster: C,
    store: S,
    /// Since when Slurm does not answer, with its error.
    silent: Option<(UnixTime, String)>,
}

impl<C: Cluster, S: Store> Controller<C, S> {
    /// Controls a fleet run.
    pub const fn new(record: FleetRecord, cluster: C, store: S) -> Self {
        Self { record, cluster, store, silent: None }
    }

    pub const fn record(&self) -> &FleetRecord {
        &self.record
    }

    pub const fn store(&mut self) -> &mut S {
        &mut self.store
    }

    /// Since when Slurm does not answer, with its error; `None` if it does.
    pub fn silent(&self) -> Option<(UnixTime, &str)> {
        self.silent.as_ref().map(|(since, error)| (*since, error.as_str()))
    }

    /// Cancels the fleet run: the next steps cancel its jobs.
    pub const fn cancel(&mut self) {
        self.record.cancelled = true;
    }

    /// Observes, decides, and acts once.
    pub fn step(&mut self, now: UnixTime) -> Result<(), StoreError> {
        let jobs = self.jobs(now);
        let ended = jobs.as_ref().map_or_else(Vec::new, |jobs| self.ended(jobs));
        let needs_nodes = needs_nodes(&self.record, now);
        let nodes = needs_nodes.then(|| self.cluster.nodes(&self.record).ok()).flatten();
        // After the jobs: a job that ends writes its result first.
        let files = self.store.files(&self.record);
        let seen = Observation {
            now,
            jobs: jobs.as_deref(),
            ended: &ended,
            nodes: nodes.as_deref(),
            files: &files,
        };
        let before = self.record.clone();
        let actions = decide(&mut self.record, &seen);
        // Files before the record: an accepted run must be there when the record says so.
        for action in &actions {
            if let Action::Accept { task, attempt } = action {
                self.store.accept(&self.record.tasks[*task].name, *attempt)?;
            }
        }
        if self.record != before {
            self.store.save(&self.record)?;
        }
        self.act(&actions, jobs.as_deref(), now)
    }

    /// The jobs of this fleet run.
    fn jobs(&mut self, now: UnixTime) -> Option<Vec<Job>> {
        match self.cluster.jobs() {
            Ok(mut jobs) => {
                self.silent = None;
                // By name: the numbers in files may be those of other jobs.
                let start = self.record.start_of_job_names();
                jobs.retain(|job| job.name.starts_with(&start));
                Some(jobs)
            }
            Err(error) => {
                tracing::info!(%error, "Slurm does not list its jobs");
                let since = self.silent.as_ref().map_or(now, |(since, _)| *since);
                self.silent = Some((since, error.to_string()));
                None
            }
        }
    }

    /// How jobs ended that are not listed any more.
    fn ended(&mut self, listed: &[Job]) -> Vec<(JobId, JobEnd)> {
        let attempts = self.record.tasks.iter().flat_map(|task| &task.attempts);
        let open = attempts.filter(|attempt| attempt.end.is_none());
        let missing: Vec<JobId> = open
            .filter_map(|attempt| attempt.job)
            .filter(|id| listed.iter().all(|job| job.id != *id))
            .collect();
        if missing.is_empty() { Vec::new() } else { self.cluster.ended(&missing) }
    }

    fn act(
        &mut self,
        actions: &[Action],
        listed: Option<&[Job]>,
        now: UnixTime,
    ) -> Result<(), StoreError> {
        let mut submissions = Vec::new();
        for action in actions {
            match *action {
                // Accepted in `step`.
                Action::Accept { .. } => {}
                Action::Fence { task, attempt } => {
                    self.store.fence(&self.record.tasks[task].name, attempt)?;
                }
                Action::Submit { task, attempt } => submissions.push((task, attempt)),
            }
        }
        self.cancel_jobs(listed)?;
        for some in submissions.chunks(SUBMISSIONS_PER_SAVE) {
            for (task, attempt) in some {
                self.submit(*task, *attempt, now)?;
            }
            self.store.save(&self.record)?;
        }
        Ok(())
    }

    /// Cancels the jobs that are to be cancelled, if they are this fleet run's. Without an answer, the next step tries
    /// again.
    fn cancel_jobs(&mut self, listed: Option<&[Job]>) -> Result<(), StoreError> {
        let Some(listed) = listed.filter(|_| !self.record.not_cancelled.is_empty()) else {
            return Ok(());
        };
        let ids = listed.iter().map(|job| job.id);
        let jobs: Vec<JobId> = ids.filter(|id| self.record.not_cancelled.contains(id)).collect();
        if !jobs.is_empty()
            && let Err(error) = self.cluster.cancel(&jobs)
        {
            tracing::warn!(%error, "cancelling jobs");
            if matches!(error, ClusterError::NoAnswer(_)) {
                return Ok(());
            }
        }
        self.record.not_cancelled.clear();
        self.store.save(&self.record)
    }

    fn submit(&mut self, task: usize, attempt: u32, now: UnixTime) -> Result<(), StoreError> {
        let of = &self.record.tasks[task];
        let directory = self.store.prepare(&of.name, attempt)?;
        let submission = Submission {
            name: self.record.job_name(of, attempt),
            task: &of.name,
            attempt,
            node: &of.node,
            directory,
            after: self.record.build_jobs().filter(|_| !of.builds).unwrap_or_default(),
            record: &self.record,
        };
        let submitted = self.cluster.submit(&submission);
        let task = &mut self.record.tasks[task];
        let Some(last) = task.attempts.iter_mut().find(|one| one.number == attempt) else {
            return Ok(());
        };
        match submitted {
            Ok(job) => {
                last.job = Some(job);
                "submitted".clone_into(&mut last.state);
            }
            // Found by its name later, or submitted again.
            Err(ClusterError::NoAnswer(error)) => last.state = format!("not submitted: {error}"),
            Err(ClusterError::Refused(reason) | ClusterError::Unknown(reason)) => {
                let reason = format!("Slurm refused the job: {reason}");
                last.finish(now, &reason, 0, EndKind::Failed);
                task.outcome = Some(Outcome::Failed { reason });
            }
        }
        Ok(())
    }
}
