//! This machine and the servers that run on it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use dbdyno_engines::server::{Server, ServerDir, ServerDirs, ServerPlan, initialise};
use dbdyno_live::{OptimizedServer, ServerOptimizer, ServerOptions};
use dbdyno_machine::ProcessIdentity;
use dbdyno_relayout::Profile;
use dbdyno_types::server::Target;

use crate::{HostError, HostMonitor, RunningServer, ServerHost, ServerKey, ServerStart};

/// This machine, with the directories of a run's servers.
#[derive(Debug)]
pub struct LocalHost {
    directories: ServerDirs,
    cpus: Option<String>,
    journals: PathBuf,
    /// The number of servers that were started.
    started: AtomicU32,
}

impl LocalHost {
    /// Servers run on `cpus`, such as `0,2-3`; `journals` is the directory for journals of the live optimizer.
    pub const fn new(directories: ServerDirs, cpus: Option<String>, journals: PathBuf) -> Self {
        Self { directories, cpus, journals, started: AtomicU32::new(0) }
    }

    /// The directory that contains the directories of all servers.
    pub fn root(&self) -> &Path {
        self.directories.root()
    }

    /// Removes the data of all servers, which must have stopped.
    pub fn remove_all(&self) -> Result<(), HostError> {
        Ok(self.directories.remove()?)
    }

    /// Removes the data of all servers, which must have stopped, but not their logs.
    pub fn remove_all_data(&self) -> Result<(), HostError> {
        Ok(self.directories.remove_data()?)
    }

    pub(crate) fn dir(&self, name: &str) -> ServerDir {
        self.directories.server_dir(name)
    }

    /// Takes over a server that was started in one of the directories.
    pub(crate) fn adopt(&self, server: Server) -> LocalServer {
        LocalServer {
            optimizer: None,
            number: self.started.fetch_add(1, Ordering::Relaxed),
            process: ProcessIdentity::of(server.pid()).ok(),
            directories: self.directories.clone(),
            journals: self.journals.clone(),
            server,
        }
    }
}

impl ServerHost for LocalHost {
    fn exists(&self, name: &str) -> bool {
        self.dir(name).exists()
    }

    fn initialise(&self, plan: &ServerPlan, name: &str) -> Result<(), HostError> {
        Ok(initialise(plan, &self.dir(name))?)
    }

    fn remove(&self, name: &str) -> Result<(), HostError> {
        Ok(self.dir(name).remove()?)
    }

    fn remove_data(&self, name: &str) -> Result<(), HostError> {
        Ok(self.dir(name).remove_data()?)
    }

    fn copy(&self, from: &str, to: &str) -> Result<(), HostError> {
        Ok(self.dir(from).clone_to(&self.dir(to))?)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), HostError> {
        Ok(self.dir(from).rename_to(&self.dir(to))?)
    }

    fn files(&self, name: &str) -> Option<PathBuf> {
        Some(self.dir(name).data())
    }

    fn keeps_data(&self) -> bool {
        true
    }

    fn start(
        &self,
        plan: &ServerPlan,
        name: &str,
        _: ServerStart,
    ) -> Result<Box<dyn RunningServer>, HostError> {
        let server = Server::start(plan, &self.dir(name), self.cpus.as_deref())?;
        Ok(Box::new(self.adopt(server)))
    }
}

/// A running private server on this machine. Dropping it kills the server.
pub struct LocalServer {
    /// Ends before the server.
    optimizer: Option<ServerOptimizer>,
    server: Server,
    number: u32,
    /// `None` if it ended before it could be identified.
    process: Option<ProcessIdentity>,
    directories: ServerDirs,
    journals: PathBuf,
}

impl LocalServer {
    fn optimizer(&mut self, options: ServerOptions) -> &mut ServerOptimizer {
        let (pid, family) = (self.server.pid(), self.server.has_process_per_session());
        let journals = &self.journals;
        let new = || ServerOptimizer::new(pid, family, options, journals.clone());
        self.optimizer.get_or_insert_with(new)
    }

    fn sampled(&mut self) -> Result<&mut ServerOptimizer, HostError> {
        self.optimizer.as_mut().ok_or_else(|| HostError::here("the server was not sampled"))
    }
}

impl RunningServer for LocalServer {
    fn key(&self) -> Option<ServerKey> {
        let is_alive = self.process.as_ref().is_some_and(ProcessIdentity::is_alive);
        is_alive.then_some(ServerKey(self.number))
    }

    fn pid(&self) -> Option<u32> {
        Some(self.server.pid())
    }

    fn monitor(&self) -> Option<&HostMonitor> {
        None
    }

    fn warnings(&self) -> Vec<String> {
        self.server.warnings()
    }

    fn target(&self) -> Target {
        self.server.target()
    }

    fn ended(&mut self) -> Option<HostError> {
        self.server.ended().map(HostError::from)
    }

    fn copy_paused(&self, to: &str) -> Result<(), HostError> {
        Ok(self.server.copy_paused(&self.directories.server_dir(to))?)
    }

    fn stop(self: Box<Self>) -> Result<(), HostError> {
        let Self { optimizer, server, .. } = *self;
        drop(optimizer);
        Ok(server.stop()?)
    }

    fn start_sampling(&mut self, options: ServerOptions) -> Result<(), HostError> {
        self.optimizer(options).start_sampling();
        Ok(())
    }

    fn end_sampling(&mut self) -> Result<bool, HostError> {
        self.sampled()?.end_sampling().map_err(HostError::here)
    }

    fn start_counting(&mut self) -> Result<(), HostError> {
        self.sampled()?.start_counting();
        Ok(())
    }

    fn end_counting(&mut self) -> Result<(), HostError> {
        self.sampled()?.end_counting().map_err(HostError::here)
    }

    fn optimize(&mut self) -> Result<OptimizedServer, HostError> {
        self.sampled()?.optimize().map_err(HostError::here)
    }

    fn optimize_by(
        &mut self,
        options: ServerOptions,
        profile: &Profile,
        source: String,
    ) -> Result<OptimizedServer, HostError> {
        self.optimizer(options).optimize_by(profile, source).map_err(HostError::here)
    }
}
