//! An attempt as its job sees it: the claim with which it begins, the fence, progress, and the result with
//! which it ends.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dbdyno_results::ResultsError;

use crate::directory::{FleetDirectory, FleetError};
use crate::files::{self, Claim, StoreError, TaskEnd, TaskProgress, TaskResult};
use crate::record::{FleetRecord, JobId, TaskRecord, poll_interval};

/// An attempt cannot run.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error(transparent)]
    Fleet(#[from] FleetError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// There is no such task or attempt.
    #[error("the fleet run has no attempt {attempt} of task {task}")]
    Unknown { task: String, attempt: u32 },
    /// The local directory cannot be used.
    #[error(
        "{}: {source}. Runs of a fleet need a directory on a local disk of each node: choose one with \
         --scratch", path.display()
    )]
    Scratch { path: PathBuf, source: std::io::Error },
}

/// The node and the job that this process runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskPlace {
    pub node: String,
    pub job: Option<JobId>,
}

/// What became of the end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The result is written.
    Written,
    /// Another attempt took over; nothing is written.
    Fenced,
}

/// How often a waiting or running attempt looks whether it must stop.
pub(crate) const FENCE_INTERVAL: Duration = Duration::from_secs(2);

/// An attempt that this process runs.
#[derive(Debug)]
pub struct Attempt {
    pub record: FleetRecord,
    pub fleet: FleetDirectory,
    index: usize,
    number: u32,
    pub node: String,
    pub(crate) directory: PathBuf,
    last: Mutex<LastTimes>,
}

/// When something was done last.
#[derive(Debug)]
struct LastTimes {
    fence: Instant,
    progress: Option<Instant>,
}

impl Attempt {
    /// Claims an attempt; `None` if another job has it.
    pub(crate) fn claim(
        fleet: &Path,
        task: &str,
        number: u32,
        place: &TaskPlace,
    ) -> Result<Option<Self>, TaskError> {
        let (fleet, record) = FleetDirectory::read_own(fleet)?;
        let unknown = || TaskError::Unknown { task: task.to_owned(), attempt: number };
        let index = record.tasks.iter().position(|one| one.name == task).ok_or_else(unknown)?;
        let directory = fleet.attempt(task, number);
        if !directory.is_dir() {
            return Err(unknown());
        }
        let node = place.node.clone();
        let is_own = write_claim(&directory, place)?;
        let last = Mutex::new(LastTimes { fence: Instant::now(), progress: None });
        Ok(is_own.then_some(Self { record, fleet, index, number, node, directory, last }))
    }

    pub fn task(&self) -> &TaskRecord {
        &self.record.tasks[self.index]
    }

    /// Whether another attempt took over.
    pub(crate) fn is_fenced(&self) -> bool {
        self.directory.join("fence").exists()
    }

    /// Whether no other attempt follows if this one fails.
    pub fn is_last_try(&self) -> bool {
        self.task().failures() >= self.record.request.limits.retries
    }

    /// Looks every few seconds whether another attempt took over. Returns whether to go on.
    pub(crate) fn may_go_on(&self) -> bool {
        let mut last = self.last();
        if last.fence.elapsed() < FENCE_INTERVAL {
            return true;
        }
        last.fence = Instant::now();
        !self.is_fenced()
    }

    /// Shows progress to the others, not more often than they look at it.
    pub(crate) fn show(&self, doing: &str, measured: u64) {
        let mut last = self.last();
        let interval = Duration::from(poll_interval(self.record.tasks.len()));
        if last.progress.is_some_and(|time| time.elapsed() < interval) {
            return;
        }
        last.progress = Some(Instant::now());
        let progress = TaskProgress { doing: doing.to_owned(), measured };
        if let Err(error) = files::replace_json(&self.directory.join("progress.json"), &progress) {
            tracing::warn!(%error, "writing progress");
        }
    }

    fn last(&self) -> MutexGuard<'_, LastTimes> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an end of this attempt does not count, because another one took over.
    pub(crate) fn is_superseded(&self, end: &TaskEnd) -> bool {
        self.is_fenced() && !matches!(end, TaskEnd::Complete { .. })
    }

    pub(crate) fn write_result(&self, measured: u64, end: TaskEnd) -> Result<Finish, StoreError> {
        let (task, node) = (&self.task().name, &self.node);
        write_result(&self.directory, &self.record, (task, self.number), node, measured, end)?;
        Ok(Finish::Written)
    }
}

fn write_result(
    directory: &Path,
    record: &FleetRecord,
    (task, attempt): (&str, u32),
    node: &str,
    measured: u64,
    end: TaskEnd,
) -> Result<(), StoreError> {
    let (fleet, task, node) = (record.id.clone(), task.to_owned(), node.to_owned());
    let result = TaskResult { fleet, task, attempt, node, measured, end };
    files::replace_json(&directory.join("result.json"), &result)
}

/// Writes the claim; returns whether this job has it.
fn write_claim(directory: &Path, place: &TaskPlace) -> Result<bool, StoreError> {
    let path = directory.join("claim.json");
    let claim = Claim { job: place.job, node: place.node.clone() };
    let write = || {
        let file = files::create_new(&path)?;
        serde_json::to_writer(&file, &claim)?;
        file.sync_all()
    };
    match write() {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(files::at(&path)(error)),
    }
}

/// Writes that an attempt failed before it could begin. There may be another attempt.
pub fn report_failure(
    fleet: &Path,
    task: &str,
    attempt: u32,
    place: &TaskPlace,
    reason: &str,
) -> Result<(), TaskError> {
    let (fleet, record) = FleetDirectory::read_own(fleet)?;
    let (directory, end) =
        (fleet.attempt(task, attempt), TaskEnd::Failed { reason: reason.to_owned(), retry: true });
    Ok(write_result(&directory, &record, (task, attempt), &place.node, 0, end)?)
}
