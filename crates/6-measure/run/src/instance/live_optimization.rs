//! The live optimizer on an instance's private server, here or on its host.

use std::fmt::Display;

use dbdyno_hosts::{HostMonitor, HostServer};
use dbdyno_live::{OptimizedServer, ServerOptimizer, ServerOptions};
use dbdyno_machine::ProcessIdentity;
use dbdyno_relayout::Profile;
use dbdyno_results::OptimizationRecord;
use dbdyno_spec::experiment::{Counts, Live, System};
use dbdyno_types::SliceMeasured;
use dbdyno_types::server::ServerSystem;
use dbdyno_worker::WorkerError;
use dbdyno_worker::protocol::{Prepare, SliceRequest};

use super::running_server::RunningServer;
use super::{Instance, SliceError};
use crate::context::RunContext;

/// What tells a server from the one after a restart.
#[derive(Clone, Debug)]
pub(crate) enum ServerKey {
    /// The first process, on this machine.
    Here(ProcessIdentity),
    /// The number on the host.
    OnHost(u32),
}

/// A server that was optimized, or refused.
#[derive(Debug)]
pub(super) struct OptimizedProcess {
    server: ServerKey,
    /// ID of the microbenchmark it was sampled with.
    trained_with: u32,
    /// The samples, for another process of the same program; `None` if they were too few.
    profile: Option<Profile>,
    /// Source of the samples.
    source: String,
}

/// The optimizer for a server.
enum Optimizer<'a> {
    Here(&'a mut ServerOptimizer),
    OnHost(&'a HostMonitor, ServerOptions),
}

impl Optimizer<'_> {
    fn start_sampling(&mut self) -> Result<(), WorkerError> {
        match self {
            Self::Here(optimizer) => {
                optimizer.start_sampling();
                Ok(())
            }
            Self::OnHost(server, options) => server.start_sampling(*options).map_err(failed),
        }
    }

    fn end_sampling(&mut self) -> Result<bool, WorkerError> {
        match self {
            Self::Here(optimizer) => optimizer.end_sampling().map_err(failed),
            Self::OnHost(server, _) => server.end_sampling().map_err(failed),
        }
    }

    fn start_counting(&mut self) -> Result<(), WorkerError> {
        match self {
            Self::Here(optimizer) => {
                optimizer.start_counting();
                Ok(())
            }
            Self::OnHost(server, _) => server.start_counting().map_err(failed),
        }
    }

    fn end_counting(&mut self) -> Result<(), WorkerError> {
        match self {
            Self::Here(optimizer) => optimizer.end_counting().map_err(failed),
            Self::OnHost(server, _) => server.end_counting().map_err(failed),
        }
    }

    fn optimize(&mut self) -> Result<OptimizedServer, WorkerError> {
        match self {
            Self::Here(optimizer) => optimizer.optimize().map_err(failed),
            Self::OnHost(server, _) => server.optimize().map_err(failed),
        }
    }

    fn optimize_by(
        &self,
        profile: &Profile,
        source: String,
    ) -> Result<OptimizedServer, WorkerError> {
        match self {
            Self::Here(optimizer) => optimizer.optimize_by(profile, source).map_err(failed),
            Self::OnHost(server, options) => {
                server.optimize_by(*options, profile.clone(), source).map_err(failed)
            }
        }
    }
}

impl Instance {
    /// The server that is to be optimized; `None` if there is none, or it does not run.
    pub fn optimized_server(&self) -> Option<ServerKey> {
        self.candidate.spec.live.as_ref()?;
        let server = self.server.as_ref().filter(|_| self.is_running())?;
        server_key(server)
    }

    /// Whether the server that is to be optimized is still this one.
    pub fn has_server(&self, key: &ServerKey) -> bool {
        match (key, &self.server) {
            (ServerKey::Here(process), Some(RunningServer::Here(server))) => {
                process.pid == server.pid() && process.is_alive()
            }
            (ServerKey::OnHost(number), Some(RunningServer::OnHost(server))) => {
                server.monitor().number() == *number
            }
            _ => false,
        }
    }

    /// Whether its server is to be optimized with this microbenchmark but is not optimized yet.
    pub fn needs_training(&self, with: u32) -> bool {
        let is_trained = |optimized: &OptimizedProcess| {
            optimized.trained_with == with && self.has_server(&optimized.server)
        };
        self.is_running()
            && self.candidate.spec.live.is_some()
            && !self.optimized.as_ref().is_some_and(is_trained)
    }

    /// Starts sampling its server, if it is to be sampled. Returns the server.
    pub fn start_sampling(
        &mut self,
        context: &RunContext<'_>,
    ) -> Result<Option<ServerKey>, WorkerError> {
        self.counts_next = false;
        let is_sampled = |live: &Live| live.samples_of.is_none();
        if !self.candidate.spec.live.as_ref().is_some_and(is_sampled) {
            return Ok(None);
        }
        let key = self.optimized_server();
        if let Some(mut optimizer) = self.optimizer(context) {
            optimizer.start_sampling()?;
        }
        Ok(key)
    }

    /// Ends the sampling of its server, and makes code that counts if executions are to be counted, in the next
    /// slice. Returns whether they are.
    pub fn end_sampling(&mut self, context: &RunContext<'_>) -> Result<bool, WorkerError> {
        let counts = self.optimizer(context).map(|mut optimizer| optimizer.end_sampling());
        self.counts_next = counts.transpose()?.unwrap_or(false);
        Ok(self.counts_next)
    }

    /// As [`Instance::run_slice`]; executions are counted meanwhile if that is prepared.
    pub fn run_training_slice(
        &mut self,
        context: &RunContext<'_>,
        request: SliceRequest,
        prepare: &Prepare,
    ) -> Result<SliceMeasured, SliceError> {
        if !std::mem::take(&mut self.counts_next) {
            return self.run_slice(context, request, prepare);
        }
        let of_error = SliceError::Failed;
        let counting = self.optimizer(context).map(|mut optimizer| optimizer.start_counting());
        counting.transpose().map_err(of_error)?;
        let server = self.optimized_server();
        let slice = self.run_slice(context, request, prepare);
        let is_counted = match &slice {
            Ok(_) => true,
            // The server may have survived the loss of its connections.
            Err(SliceError::Lost(_)) => server.is_some_and(|server| self.has_server(&server)),
            Err(SliceError::Failed(_)) => false,
        };
        if is_counted {
            let counting = self.optimizer(context).map(|mut optimizer| optimizer.end_counting());
            counting.transpose().map_err(of_error)?;
        }
        slice
    }

    /// Optimizes its server: by its training, if it was sampled, else by the samples of another candidate. `None`
    /// if there are neither.
    pub fn optimize(
        &mut self,
        context: &RunContext<'_>,
        is_sampled: bool,
        with: u32,
    ) -> Result<Option<OptimizationRecord>, WorkerError> {
        let Some(live) = self.candidate.spec.live.clone() else { return Ok(None) };
        let samples = self.candidate.samples.clone();
        let Some(mut optimizer) = self.optimizer(context) else { return Ok(None) };
        let optimized = match samples {
            _ if is_sampled => optimizer.optimize()?,
            Some(profile) => {
                let name = live.samples_of.as_deref().unwrap_or_default();
                optimizer.optimize_by(&profile, format!("those of {name}"))?
            }
            None => return Ok(None),
        };
        Ok(self.store_optimized(optimized, with))
    }

    /// Optimizes a restarted server with the samples of the previous process.
    pub(super) fn reoptimize(&mut self, context: &RunContext<'_>) -> Result<(), WorkerError> {
        let Some(before) = self.optimized.take() else { return Ok(()) };
        let profile = match &before.profile {
            Some(profile) if !self.has_server(&before.server) => profile.clone(),
            _ => {
                self.optimized = Some(before);
                return Ok(());
            }
        };
        let Some(optimizer) = self.optimizer(context) else { return Ok(()) };
        let optimized = optimizer.optimize_by(&profile, before.source.clone())?;
        let record = self.store_optimized(optimized, before.trained_with);
        let again = |record| OptimizationRecord { after_restart: true, ..record };
        self.reoptimizations.extend(record.map(again));
        Ok(())
    }

    /// The optimizations of restarted servers since the last call.
    pub fn take_reoptimizations(&mut self) -> Vec<OptimizationRecord> {
        std::mem::take(&mut self.reoptimizations)
    }

    /// Keeps what restarted servers need, and makes the record; `None` if the server has ended.
    fn store_optimized(
        &mut self,
        optimized: OptimizedServer,
        trained_with: u32,
    ) -> Option<OptimizationRecord> {
        let OptimizedServer { layout, refused, profile } = optimized;
        let (server, source) = (server_key(self.server.as_ref()?)?, layout.source.clone());
        self.optimized = Some(OptimizedProcess { server, trained_with, profile, source });
        Some(OptimizationRecord {
            candidate: 0,
            trained_with,
            measured_next: trained_with,
            after_restart: false,
            refused,
            layout,
        })
    }

    /// The optimizer for its server; `None` if the server is not to be optimized or does not run.
    fn optimizer(&mut self, context: &RunContext<'_>) -> Option<Optimizer<'_>> {
        let System::Private(private) = &self.candidate.spec.system else { return None };
        let options = options(self.candidate.spec.live.as_ref()?);
        self.worker.as_ref()?;
        match self.server.as_ref()? {
            RunningServer::OnHost(server) => {
                Some(Optimizer::OnHost(HostServer::monitor(server), options))
            }
            RunningServer::Here(server) => {
                let pid = server.pid();
                if self.optimizer.as_ref().is_none_or(|known| known.pid() != pid) {
                    let family = private.system == ServerSystem::PostgreSql;
                    let state = context.directory.data().join(".live");
                    self.optimizer = Some(ServerOptimizer::new(pid, family, options, state));
                }
                self.optimizer.as_mut().map(Optimizer::Here)
            }
        }
    }
}

fn server_key(server: &RunningServer) -> Option<ServerKey> {
    match server {
        RunningServer::Here(server) => ProcessIdentity::of(server.pid()).ok().map(ServerKey::Here),
        RunningServer::OnHost(server) => Some(ServerKey::OnHost(server.monitor().number())),
    }
}

const fn options(live: &Live) -> ServerOptions {
    ServerOptions {
        frequency: live.frequency,
        count: matches!(live.counts, Counts::Exact),
        max_pause: live.max_pause,
        keep_order: live.keep_order,
        force: live.force,
    }
}

fn failed(error: impl Display) -> WorkerError {
    WorkerError::failed("optimizing the server", error)
}
