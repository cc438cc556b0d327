//! One attempt of a task, in its job: where its run is, and what the others see of it.
//!
//! The run directory is on a local disk of the node, where only one attempt at a time can use it: a lock
//! of the local kernel is held until the process is dead. A copy of the run is put into the directory of
//! the attempt on the shared file system, between slices. So an attempt on a node that is cut off can
//! never damage what another attempt writes.

mod scratch;

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dbdyno_results::{ResultsError, RunReader, snapshot};

use crate::build_session::BuildSession;
use crate::claimed_attempt::{ClaimedAttempt, FENCE_INTERVAL};
use crate::controller::StoreError;
use crate::directory::{FleetDirectory, FleetError};
use crate::files;
use crate::record::{FleetRecord, JobId};
use crate::task_result::{TaskEnd, TaskProgress, TaskResult};

/// How often the run is copied to the shared file system.
const COPY_INTERVAL: Duration = Duration::from_secs(60);

/// How often copying the run is tried at the end, and the time between.
const LAST_COPIES: (u32, Duration) = (3, Duration::from_secs(5));

/// An attempt cannot run.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The directory of the fleet run cannot be used.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// A file of it cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The run cannot be read or copied.
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
    Scratch {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// The node and the job that this process runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskPlace {
    pub node: String,
    pub job: Option<JobId>,
}

/// Whether an attempt is to run.
#[derive(Debug)]
pub enum Begin {
    /// It is to measure.
    Run(Box<TaskSession>),
    Build(Box<BuildSession>),
    /// Another job runs it, or it is not needed any more; with the reason.
    NotNeeded(String),
}

/// What became of the end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The result is written.
    Written,
    /// Another attempt took over; nothing is written.
    Fenced,
}

/// A running attempt.
#[derive(Debug)]
pub struct TaskSession {
    attempt: ClaimedAttempt,
    /// The run directory.
    run: PathBuf,
    /// Whether there is a run in it to continue.
    resumes: bool,
    last: Mutex<LastTimes>,
    _lock: File,
}

/// When something was done last.
#[derive(Debug)]
struct LastTimes {
    fence: Instant,
    progress: Option<Instant>,
    copy: Instant,
    measured: u64,
}

impl TaskSession {
    /// Claims the attempt. If it measures, waits until no other attempt runs on this node, and finds the run
    /// to continue.
    ///
    /// # Errors
    /// The directories cannot be used.
    pub fn begin(
        fleet: &Path,
        task: &str,
        attempt: u32,
        place: &TaskPlace,
        stop: &AtomicBool,
    ) -> Result<Begin, TaskError> {
        let Some(claimed) = ClaimedAttempt::claim(fleet, task, attempt, place)? else {
            return Ok(Begin::NotNeeded("another job runs this attempt".to_owned()));
        };
        if claimed.task().builds {
            return Ok(Begin::Build(Box::new(BuildSession::new(claimed))));
        }
        let (fleet, record) = (&claimed.fleet, &claimed.record);
        let scratch = scratch::open(Path::new(&record.request.scratch), &place.node)?;
        let lock_file = scratch.join("node.lock");
        let at_lock = |source| TaskError::Scratch { path: lock_file.clone(), source };
        let open = File::options().create(true).truncate(false).write(true).open(&lock_file);
        let lock = open.map_err(at_lock)?;
        while let Err(error) = lock.try_lock() {
            // Some shared file systems have no locks.
            if let TryLockError::Error(source) = error {
                return Err(at_lock(source));
            }
            let is_fenced = claimed.is_fenced();
            if is_fenced || stop.load(Ordering::Relaxed) {
                if !is_fenced {
                    claimed.write_result(0, TaskEnd::Interrupted)?;
                }
                return Ok(Begin::NotNeeded("told to stop while another attempt ran".to_owned()));
            }
            std::thread::sleep(FENCE_INTERVAL / 4);
        }
        let is_complete = |number: u32| {
            let result = fleet.files_of(record, task, number).result;
            result.is_some_and(|result| matches!(result.end, TaskEnd::Complete { .. }))
        };
        if (1..attempt).any(is_complete) {
            return Ok(Begin::NotNeeded("an earlier attempt is complete".to_owned()));
        }
        let run = scratch.join(format!("{}-{task}", record.id));
        let copies = (1..attempt).rev().filter_map(|number| {
            let claim = fleet.files_of(record, task, number).claim?;
            (claim.node == place.node).then(|| fleet.attempt(task, number))
        });
        let resumes = scratch::prepare_run(&run, copies)?;
        let now = Instant::now();
        let last = LastTimes { fence: now, progress: None, copy: now, measured: 0 };
        let (attempt, last) = (claimed, Mutex::new(last));
        Ok(Begin::Run(Box::new(Self { attempt, run, resumes, last, _lock: lock })))
    }

    /// The run directory, on a local disk.
    #[must_use]
    pub fn run(&self) -> &Path {
        &self.run
    }

    /// Whether there is a run to continue.
    #[must_use]
    pub const fn resumes(&self) -> bool {
        self.resumes
    }

    /// The microbenchmarks of a shard; `None` for all.
    #[must_use]
    pub fn microbenchmarks(&self) -> Option<&[String]> {
        self.attempt.task().microbenchmarks.as_deref()
    }

    /// Whether no other attempt follows if this one fails.
    #[must_use]
    pub fn is_last_try(&self) -> bool {
        self.attempt.is_last_try()
    }

    /// The fleet run.
    #[must_use]
    pub const fn record(&self) -> &FleetRecord {
        &self.attempt.record
    }

    /// The directory of the fleet run.
    #[must_use]
    pub const fn fleet(&self) -> &FleetDirectory {
        &self.attempt.fleet
    }

    /// Shows progress to the others and looks whether the attempt must stop, both not more often than
    /// every few seconds; `between_slices`, also copies the run now and then. Returns whether to go on.
    pub fn tick(&self, doing: &str, between_slices: bool) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.fence.elapsed() >= FENCE_INTERVAL {
            last.fence = Instant::now();
            if self.attempt.is_fenced() {
                return false;
            }
        }
        if between_slices && last.copy.elapsed() >= COPY_INTERVAL {
            last.copy = Instant::now();
            match self.copy() {
                Ok(measured) => last.measured = measured,
                // The next copy may succeed; what was measured is on the local disk.
                Err(error) => tracing::warn!(%error, "copying the run"),
            }
        }
        let interval = self.attempt.progress_interval();
        if last.progress.is_none_or(|time| time.elapsed() >= interval) {
            last.progress = Some(Instant::now());
            let progress = TaskProgress { doing: doing.to_owned(), measured: last.measured };
            self.attempt.show(&progress);
        }
        true
    }

    /// Copies the run and writes the result, unless another attempt took over. What is on the local disk
    /// is removed if it is not needed any more.
    ///
    /// # Errors
    /// The run or the result cannot be written: there is no result then, and the run stays on the local
    /// disk.
    pub fn finish(self, end: TaskEnd) -> Result<Finish, TaskError> {
        let mut tries = LAST_COPIES.0;
        let copied = loop {
            if self.attempt.is_fenced() && !matches!(end, TaskEnd::Complete { .. }) {
                return Ok(Finish::Fenced);
            }
            tries -= 1;
            match self.copy() {
                Err(_) if tries > 0 && self.has_run() => std::thread::sleep(LAST_COPIES.1),
                copied => break copied,
            }
        };
        let measured = match (copied, &end) {
            (Ok(measured), _) => measured,
            // An error may have come before there was anything to copy.
            (Err(_), TaskEnd::Failed { .. } | TaskEnd::Interrupted) if !self.has_run() => 0,
            (Err(error), _) => return Err(error.into()),
        };
        let is_over =
            matches!(end, TaskEnd::Complete { .. } | TaskEnd::Failed { retry: false, .. });
        self.attempt.write_result(measured, end)?;
        if is_over && let Err(error) = scratch::remove(&self.run) {
            tracing::warn!(%error, "removing the local run directory");
        }
        Ok(Finish::Written)
    }

    fn has_run(&self) -> bool {
        RunReader::open(&self.run).is_ok()
    }

    /// Copies the run to the shared file system. Returns how much is measured in it, at least.
    fn copy(&self) -> Result<u64, ResultsError> {
        let measured = RunReader::open(&self.run)?.measurements()?;
        snapshot(&self.run, &self.attempt.directory.join("run.sqlite"))?;
        Ok(measured)
    }
}

/// Writes that an attempt failed before it could begin. There may be another attempt.
///
/// # Errors
/// There is no such attempt, or the result cannot be written.
pub fn report_failure(
    fleet: &Path,
    task: &str,
    attempt: u32,
    place: &TaskPlace,
    reason: &str,
) -> Result<(), TaskError> {
    let (fleet, record) = FleetDirectory::read(fleet)?;
    let result = TaskResult {
        fleet: record.id,
        task: task.to_owned(),
        attempt,
        node: place.node.clone(),
        measured: 0,
        end: TaskEnd::Failed { reason: reason.to_owned(), retry: true },
    };
    Ok(files::replace_json(&fleet.attempt(task, attempt).join("result.json"), &result)?)
}

#[cfg(test)]
mod tests;
