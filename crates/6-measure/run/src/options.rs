//! What a session gets in addition to the experiment.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dbdyno_machine::remove_secrets;
use dbdyno_worker::{WorkerError, WorkerHandle};

use crate::session::progress::Progress;

/// The parameters of a session in addition to the experiment.
#[derive(Clone)]
pub struct Options<'a> {
    pub worker: WorkerProgram,
    /// The build cache; `None` for the user's cache directory.
    pub cache: Option<PathBuf>,
    /// Whether to resume a run that this user did not make on this machine.
    pub trust: bool,
    /// Whether to keep the instances' data after a complete or failed run.
    pub keep_data: bool,
    pub progress: Progress<'a>,
    pub version: String,
    /// The current time, RFC 3339.
    pub now: String,
}

/// How a worker is started: a program that runs as a worker when called with these arguments.
#[derive(Clone, Debug)]
pub struct WorkerProgram {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// Set to stop the session after the current slice, and workers whose requests take
    /// [`STOP_TIME`](dbdyno_worker::STOP_TIME) longer than a slice.
    pub cancel: Arc<AtomicBool>,
}

impl WorkerProgram {
    /// Starts a worker with its error output in the file `log`. Only a worker that logs in to an
    /// existing server gets passwords: others run the code of libraries under test.
    pub(crate) fn start(
        &self,
        log: &Path,
        environment: &[(String, String)],
        passwords: bool,
    ) -> Result<WorkerHandle, WorkerError> {
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        if !passwords {
            remove_secrets(&mut command);
        }
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        WorkerHandle::start(&mut command, log, Arc::clone(&self.cancel))
    }
}
