//! The instances that are alive, each with its worker.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use dbdyno_bench::measure::Runner;
use dbdyno_bench::protocol::{Open, Opened, SystemUnderTest};
use dbdyno_bench::slice::SliceOrder;
use dbdyno_bench::worker::{WorkerError, WorkerHandle};
use dbdyno_engines::sqlite::{Settings, Sqlite};
use dbdyno_record::SliceMeasured;
use dbdyno_results::RunDirectory;
use dbdyno_spec::experiment::{Experiment, System};

use crate::candidates::Contender;
use crate::data;
use crate::error::RunError;
use crate::settings;

/// How a worker is started: a program that serves as a worker when it is given these arguments.
#[derive(Clone, Debug)]
pub struct WorkerProgram {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

impl WorkerProgram {
    fn start(&self, log: &Path) -> Result<WorkerHandle, WorkerError> {
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        WorkerHandle::start(&mut command, log)
    }
}

/// Everything that opening an instance takes.
#[derive(Clone, Debug)]
pub(crate) struct Site<'a> {
    pub experiment: &'a Experiment,
    pub directory: RunDirectory,
    pub worker: &'a WorkerProgram,
    /// CPUs of the systems under test.
    pub cpus: Option<String>,
}

impl Site<'_> {
    /// The database file of one contender.
    pub fn file(&self, name: &str) -> PathBuf {
        Sqlite::file_in(&self.directory.data().join(name))
    }

    /// Starts a worker and opens a contender's instance on `file`.
    pub fn open(
        &self,
        contender: &Contender,
        file: &Path,
        clients: u32,
    ) -> Result<(WorkerHandle, Opened), WorkerError> {
        let log = self.directory.logs().join(format!("{}.log", contender.name));
        let mut worker = self.worker.start(&log)?;
        let System::Sqlite(config) = &contender.candidate.system;
        let opened = worker.open(Open {
            system: SystemUnderTest::Sqlite {
                library: contender.build.library.clone(),
                settings: Settings {
                    page_size: config.page_size,
                    cache_size: config.cache_size,
                    journal_mode: settings::journal_mode(config),
                    synchronous: settings::synchronous(config),
                },
                file: file.to_owned(),
            },
            clients,
            tables: self.experiment.workload.tables,
            rows: self.experiment.workload.rows,
            seed: self.experiment.seed,
            cpus: self.cpus.clone(),
            injected_delay: contender.candidate.injected_delay,
        })?;
        Ok((worker, opened))
    }
}

/// One contender's place in the run: its worker, as long as it lives.
pub(crate) struct Instance {
    pub contender: Contender,
    pub worker: Option<WorkerHandle>,
}

impl Instance {
    /// Starts the instance and reads its data into its caches.
    pub fn start(&mut self, site: &Site<'_>) -> Result<(), WorkerError> {
        self.stop();
        let file = site.file(&self.contender.name);
        let (mut worker, _) =
            site.open(&self.contender, &file, site.experiment.workload.clients)?;
        worker.warm()?;
        self.worker = Some(worker);
        Ok(())
    }

    /// Ends the worker: two must not hold the same file. It closes the file properly; one that
    /// does not is ended, and the next recovers what it left.
    fn stop(&mut self) {
        if let Some(worker) = self.worker.take() {
            let _ = worker.close();
        }
    }

    /// Keeps a copy of the data as it stands, for [`Self::restore`].
    pub fn keep(&mut self, site: &Site<'_>) -> Result<(), WorkerError> {
        self.copy(site, data::keep)
    }

    /// Goes back to the data that was kept.
    pub fn restore(&mut self, site: &Site<'_>) -> Result<(), WorkerError> {
        self.copy(site, data::restore)
    }

    fn copy(
        &mut self,
        site: &Site<'_>,
        copy: fn(&Path) -> Result<(), RunError>,
    ) -> Result<(), WorkerError> {
        if self.worker.is_none() {
            return Ok(());
        }
        self.stop();
        copy(&site.file(&self.contender.name)).map_err(|error| WorkerError::Failed {
            doing: "copying its data",
            message: error.to_string(),
        })?;
        self.start(site)
    }
}

/// A worker that is lent for the blocks of one microbenchmark.
pub(crate) struct Lent<'a>(pub &'a mut WorkerHandle);

impl Runner for Lent<'_> {
    fn slice(&mut self, order: SliceOrder) -> Result<SliceMeasured, WorkerError> {
        self.0.slice(order)
    }
}
