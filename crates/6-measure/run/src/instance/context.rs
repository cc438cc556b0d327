//! State shared by all instances of a run.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use dbdyno_engines::server::ServerDirs;
use dbdyno_hosts::LocalHost;
use dbdyno_machine::CpuAssignment;
use dbdyno_results::RunDirectory;
use dbdyno_spec::experiment::Experiment;
use dbdyno_types::{ClientWait, RunIdentity};

use crate::candidates::{Deployment, ResolvedCandidate};
use crate::error::RunError;
use crate::instance::data::DataLocation;
use crate::options::WorkerProgram;

/// State shared by all instances of a run.
#[derive(Debug)]
pub(crate) struct RunContext<'a> {
    pub experiment: &'a Experiment,
    /// The run that owns the schemas on existing servers; `None` in PGO training, which uses none.
    pub run: Option<RunIdentity>,
    pub directory: RunDirectory,
    pub worker: &'a WorkerProgram,
    pub cpus: CpuAssignment,
    /// How the clients of servers wait for answers.
    pub client_wait: ClientWait,
    /// This machine as the host of private servers; `None` in a run without any here.
    pub local: Option<Arc<LocalHost>>,
    /// Additional environment variables of workers, for instrumented libraries.
    pub environment: Vec<(String, String)>,
    /// The candidates whose schemas on existing servers this session created or reused: `true`; `false` while it tries to.
    pub used_schemas: RefCell<BTreeMap<String, bool>>,
}

impl<'a> RunContext<'a> {
    /// A context without private servers, whose clients sleep while they wait.
    pub const fn new(
        experiment: &'a Experiment,
        run: Option<RunIdentity>,
        directory: RunDirectory,
        worker: &'a WorkerProgram,
        cpus: CpuAssignment,
    ) -> Self {
        Self {
            experiment,
            run,
            directory,
            worker,
            cpus,
            client_wait: ClientWait::Sleep,
            local: None,
            environment: Vec::new(),
            used_schemas: RefCell::new(BTreeMap::new()),
        }
    }

    /// Lets private servers run on this machine, and ends those that killed sessions left running.
    pub fn open_local(&mut self) -> Result<(), RunError> {
        let data = self.directory.data();
        let directories = ServerDirs::open(&data)?;
        let cpus = Some(self.cpus.system.to_string());
        self.local = Some(Arc::new(LocalHost::new(directories, cpus, self.journals())));
        Ok(())
    }

    /// The directory for journals of the live optimizer.
    pub fn journals(&self) -> PathBuf {
        self.directory.data().join(".live")
    }

    /// The location of this name for the candidate's kind of data.
    pub fn data_location(&self, candidate: &ResolvedCandidate, name: &str) -> DataLocation {
        match (&candidate.deployment, &candidate.host, &self.local) {
            (Deployment::Library(_), ..) => {
                DataLocation::Directory(self.directory.data().join(name))
            }
            (Deployment::Private(_), Some(host), _) => {
                DataLocation::Server(Arc::new(host.clone()), name.to_owned())
            }
            (Deployment::Private(_), None, Some(local)) => {
                DataLocation::Server(Arc::<LocalHost>::clone(local), name.to_owned())
            }
            (Deployment::Private(_), None, None) | (Deployment::Existing(_), ..) => {
                DataLocation::Schema
            }
        }
    }

    /// The location of the copy of a candidate's data from before its tables shrink.
    pub fn kept_copy(&self, candidate: &ResolvedCandidate) -> DataLocation {
        self.data_location(candidate, &format!(".kept-{}", candidate.name))
    }
}
