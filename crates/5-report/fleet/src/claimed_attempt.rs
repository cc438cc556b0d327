//! An attempt as its job sees it: the claim with which it begins, the fence, progress, and the result with
//! which it ends.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::controller::{StoreError, poll_interval};
use crate::directory::FleetDirectory;
use crate::files;
use crate::record::{FleetRecord, TaskRecord};
use crate::task_result::{Claim, TaskEnd, TaskProgress, TaskResult};
use crate::task_session::{TaskError, TaskPlace};

/// How often a waiting or running attempt looks whether it must stop.
pub(crate) const FENCE_INTERVAL: Duration = Duration::from_secs(2);

/// An attempt that this process runs.
#[derive(Debug)]
pub(crate) struct ClaimedAttempt {
    pub(crate) record: FleetRecord,
    pub(crate) fleet: FleetDirectory,
    index: usize,
    number: u32,
    pub(crate) node: String,
    pub(crate) directory: PathBuf,
}

impl ClaimedAttempt {
    /// Claims an attempt; `None` if another job has it.
    pub(crate) fn claim(
        fleet: &Path,
        task: &str,
        number: u32,
        place: &TaskPlace,
    ) -> Result<Option<Self>, TaskError> {
        let (fleet, record) = FleetDirectory::read(fleet)?;
        let unknown = || TaskError::Unknown { task: task.to_owned(), attempt: number };
        let index = record.tasks.iter().position(|one| one.name == task).ok_or_else(unknown)?;
        let directory = fleet.attempt(task, number);
        if !directory.is_dir() {
            return Err(unknown());
        }
        let node = place.node.clone();
        let is_own = write_claim(&directory, place)?;
        Ok(is_own.then_some(Self { record, fleet, index, number, node, directory }))
    }

    pub(crate) fn task(&self) -> &TaskRecord {
        &self.record.tasks[self.index]
    }

    /// Whether another attempt took over.
    pub(crate) fn is_fenced(&self) -> bool {
        self.directory.join("fence").exists()
    }

    /// Whether no other attempt follows if this one fails.
    pub(crate) fn is_last_try(&self) -> bool {
        self.task().failures() >= self.record.request.limits.retries
    }

    /// How often progress is shown.
    pub(crate) fn progress_interval(&self) -> Duration {
        poll_interval(self.record.tasks.len()).into()
    }

    pub(crate) fn show(&self, progress: &TaskProgress) {
        if let Err(error) = files::replace_json(&self.directory.join("progress.json"), progress) {
            tracing::warn!(%error, "writing progress");
        }
    }

    pub(crate) fn write_result(&self, measured: u64, end: TaskEnd) -> Result<(), StoreError> {
        let result = TaskResult {
            fleet: self.record.id.clone(),
            task: self.task().name.clone(),
            attempt: self.number,
            node: self.node.clone(),
            measured,
            end,
        };
        files::replace_json(&self.directory.join("result.json"), &result)
    }
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
        Err(source) => Err(StoreError { path, source }),
    }
}
