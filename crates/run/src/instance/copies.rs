//! An instance's data: copies of it, and its removal from existing servers.

use std::path::PathBuf;

use dbdyno_bench::worker::WorkerError;

use super::Instance;
use super::running_server::RunningServer;
use crate::context::RunContext;
use crate::data_location::DataLocation;
use crate::error::RunError;

impl Instance {
    /// The directory of its database's files; `None` for an existing server.
    pub fn files(&self) -> Option<PathBuf> {
        self.location.files()
    }

    /// Removes the run's tables from an existing server. Errors are ignored: the next run that needs
    /// the schema reports them.
    pub fn remove_schema(&mut self) {
        if let (DataLocation::Schema, Some(worker)) = (&self.location, &mut self.worker) {
            let _ = worker.remove();
        }
    }

    /// Copies the data while the instance runs but no request is in progress. A server started on
    /// the copy recovers everything that was committed.
    pub fn copy_live(&self, to: &DataLocation) -> Result<(), RunError> {
        match (&self.location, &self.server, to) {
            (
                DataLocation::ServerDir(_),
                Some(RunningServer::Here(server)),
                DataLocation::ServerDir(to),
            ) => Ok(server.copy_paused(to)?),
            (location, ..) => location.copy_to(to),
        }
    }

    /// Keeps a copy of its data for [`Self::restore_copy`], and restarts.
    pub fn keep_copy(&mut self, context: &RunContext<'_>) -> Result<(), WorkerError> {
        let kept = context.kept_copy(&self.candidate);
        self.copy_has_diverged = self.has_diverged;
        self.copy_stopped(context, |location| location.copy_to(&kept)).map(drop)
    }

    /// Replaces its data by the kept copy, and restarts.
    pub fn restore_copy(&mut self, context: &RunContext<'_>) -> Result<(), WorkerError> {
        let kept = context.kept_copy(&self.candidate);
        if self.copy_stopped(context, |location| kept.copy_to(location))? {
            self.has_diverged = self.copy_has_diverged;
        }
        Ok(())
    }

    /// Copies while the instance is stopped. Returns false, and does nothing, if its data cannot be
    /// copied.
    fn copy_stopped(
        &mut self,
        context: &RunContext<'_>,
        copy: impl FnOnce(&DataLocation) -> Result<(), RunError>,
    ) -> Result<bool, WorkerError> {
        if !self.location.can_be_copied() {
            return Ok(false);
        }
        self.stop();
        copy(&self.location).map_err(|error| WorkerError::failed("copying its data", error))?;
        self.start(context)?;
        Ok(true)
    }
}
