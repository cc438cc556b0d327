//! An instance's data: copies of it, and its removal from existing servers.

use std::path::PathBuf;

use dbdyno_worker::WorkerError;

use super::Instance;
use super::running_server::RunningServer;
use crate::context::RunContext;
use crate::data_location::DataLocation;
use crate::error::RunError;

/// What is done with the copy of an instance's data from before its tables shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeptCopy {
    Keep,
    Restore,
}

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

    /// Whether its data can be copied.
    pub const fn can_be_copied(&self) -> bool {
        self.location.can_be_copied()
    }

    /// Keeps a copy of its data, or replaces the data by it, while it is stopped. Does nothing if its data cannot be
    /// copied.
    pub fn copy_stopped(
        &mut self,
        context: &RunContext<'_>,
        copy: KeptCopy,
    ) -> Result<(), WorkerError> {
        if !self.can_be_copied() {
            return Ok(());
        }
        let kept = context.kept_copy(&self.candidate);
        let copied = match copy {
            KeptCopy::Keep => self.location.copy_to(&kept),
            KeptCopy::Restore => kept.copy_to(&self.location),
        };
        copied.map_err(|error| WorkerError::failed("copying its data", error))?;
        match copy {
            KeptCopy::Keep => self.copy_has_diverged = self.has_diverged,
            KeptCopy::Restore => self.has_diverged = self.copy_has_diverged,
        }
        Ok(())
    }
}
