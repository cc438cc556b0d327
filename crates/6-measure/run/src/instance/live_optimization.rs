//! The live optimizer on an instance's private server, here or on its host.

use dbdyno_hosts::{HostError, RunningServer, ServerKey};
use dbdyno_live::{OptimizedServer, ServerOptions};
use dbdyno_relayout::Profile;
use dbdyno_results::OptimizationRecord;
use dbdyno_spec::experiment::{Counts, Live};
use dbdyno_types::SliceMeasured;
use dbdyno_worker::WorkerError;
use dbdyno_worker::protocol::Prepare;
use dbdyno_worker::protocol::SliceRequest;

use crate::instance::context::RunContext;
use crate::instance::{Instance, SliceError};

/// What the live optimizer does with an instance's server.
#[derive(Default)]
pub(super) struct LiveState {
    optimized: Option<OptimizedProcess>,
    /// Whether executions are to be counted in the next slice of a training.
    counts_next: bool,
    /// Optimizations after a restart, not yet stored.
    reoptimizations: Vec<OptimizationRecord>,
}

/// A server that was optimized, or refused.
#[derive(Debug)]
struct OptimizedProcess {
    server: ServerKey,
    /// ID of the microbenchmark it was sampled with.
    trained_with: u32,
    /// The samples, for another process of the same program; `None` if they were too few.
    profile: Option<Profile>,
    source: String,
}

impl Instance {
    /// The server that is to be optimized; `None` if there is none, or it does not run.
    pub fn optimized_server(&self) -> Option<ServerKey> {
        self.candidate.spec.live.as_ref()?;
        self.server.as_ref().filter(|_| self.is_running())?.key()
    }

    /// Whether the server that is to be optimized is still this one.
    pub fn has_server(&self, key: ServerKey) -> bool {
        self.server.as_ref().is_some_and(|server| server.key() == Some(key))
    }

    /// Whether its server is to be optimized with this microbenchmark but is not optimized yet.
    pub fn needs_training(&self, with: u32) -> bool {
        let is_trained = |optimized: &OptimizedProcess| {
            optimized.trained_with == with && self.has_server(optimized.server)
        };
        self.is_running()
            && self.candidate.spec.live.is_some()
            && !self.live.optimized.as_ref().is_some_and(is_trained)
    }

    /// Starts sampling its server, if it is to be sampled. Returns the server.
    pub fn start_sampling(&mut self) -> Result<Option<ServerKey>, WorkerError> {
        self.live.counts_next = false;
        let is_sampled = |live: &Live| live.samples_of.is_none();
        if !self.candidate.spec.live.as_ref().is_some_and(is_sampled) {
            return Ok(None);
        }
        let key = self.optimized_server();
        if let Some((server, options)) = self.optimizer() {
            server.start_sampling(options).map_err(failed)?;
        }
        Ok(key)
    }

    /// Ends the sampling of its server, and makes code that counts if executions are to be counted, in the next
    /// slice. Returns whether they are.
    pub fn end_sampling(&mut self) -> Result<bool, WorkerError> {
        let counts = self.optimizer().map(|(server, _)| server.end_sampling());
        self.live.counts_next = counts.transpose().map_err(failed)?.unwrap_or(false);
        Ok(self.live.counts_next)
    }

    /// As [`Instance::run_slice`]; executions are counted meanwhile if that is prepared.
    pub fn run_training_slice(
        &mut self,
        context: &RunContext<'_>,
        request: SliceRequest,
        prepare: &Prepare,
    ) -> Result<SliceMeasured, SliceError> {
        if !std::mem::take(&mut self.live.counts_next) {
            return self.run_slice(context, request, prepare);
        }
        let of_error = |error| SliceError::Failed(failed(error));
        let counting = self.optimizer().map(|(server, _)| server.start_counting());
        counting.transpose().map_err(of_error)?;
        let server = self.optimized_server();
        let slice = self.run_slice(context, request, prepare);
        let is_counted = match &slice {
            Ok(_) => true,
            // The server may have survived the loss of its connections.
            Err(SliceError::Lost(_)) => server.is_some_and(|server| self.has_server(server)),
            Err(SliceError::Failed(_)) => false,
        };
        if is_counted {
            let counting = self.optimizer().map(|(server, _)| server.end_counting());
            counting.transpose().map_err(of_error)?;
        }
        slice
    }

    /// Optimizes its server: by its training, if it was sampled, else by the samples of another candidate. `None`
    /// if there are neither.
    pub fn optimize(
        &mut self,
        is_sampled: bool,
        with: u32,
    ) -> Result<Option<OptimizationRecord>, WorkerError> {
        let Some(live) = self.candidate.spec.live.clone() else { return Ok(None) };
        let samples = self.candidate.samples.clone();
        let Some((server, options)) = self.optimizer() else { return Ok(None) };
        let optimized = match samples {
            _ if is_sampled => server.optimize(),
            Some(profile) => {
                let name = live.samples_of.as_deref().unwrap_or_default();
                server.optimize_by(options, &profile, format!("those of {name}"))
            }
            None => return Ok(None),
        };
        Ok(self.store_optimized(optimized.map_err(failed)?, with))
    }

    /// Optimizes a restarted server with the samples of the previous process.
    pub(super) fn reoptimize(&mut self) -> Result<(), WorkerError> {
        let Some(before) = self.live.optimized.take() else { return Ok(()) };
        let profile = match &before.profile {
            Some(profile) if !self.has_server(before.server) => profile.clone(),
            _ => {
                self.live.optimized = Some(before);
                return Ok(());
            }
        };
        let Some((server, options)) = self.optimizer() else { return Ok(()) };
        let optimized = server.optimize_by(options, &profile, before.source.clone());
        let record = self.store_optimized(optimized.map_err(failed)?, before.trained_with);
        let again = |record| OptimizationRecord { after_restart: true, ..record };
        self.live.reoptimizations.extend(record.map(again));
        Ok(())
    }

    /// The optimizations of restarted servers since the last call.
    pub fn take_reoptimizations(&mut self) -> Vec<OptimizationRecord> {
        std::mem::take(&mut self.live.reoptimizations)
    }

    /// Keeps what restarted servers need, and makes the record; `None` if the server has ended.
    fn store_optimized(
        &mut self,
        optimized: OptimizedServer,
        trained_with: u32,
    ) -> Option<OptimizationRecord> {
        let OptimizedServer { layout, refused, profile } = optimized;
        let (server, source) = (self.server.as_ref()?.key()?, layout.source.clone());
        self.live.optimized = Some(OptimizedProcess { server, trained_with, profile, source });
        Some(OptimizationRecord {
            candidate: 0,
            trained_with,
            measured_next: trained_with,
            after_restart: false,
            refused,
            layout,
        })
    }

    /// Its server and how it is optimized; `None` if it is not to be optimized or does not run.
    fn optimizer(&mut self) -> Option<(&mut dyn RunningServer, ServerOptions)> {
        let options = options(self.candidate.spec.live.as_ref()?);
        self.worker.as_ref()?;
        Some((self.server.as_deref_mut()?, options))
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

fn failed(error: HostError) -> WorkerError {
    WorkerError::failed("optimizing the server", error)
}
