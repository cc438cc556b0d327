//! The live optimizer on an instance's private server.

use std::fmt::Display;

use dbdyno_bench::protocol::Prepare;
use dbdyno_bench::slice::SliceRequest;
use dbdyno_bench::worker::WorkerError;
use dbdyno_live::{Counted, Sampled};
use dbdyno_record::SliceMeasured;
use dbdyno_results::OptimizationRecord;
use dbdyno_spec::experiment::{Counts, System};

use super::{Instance, SliceError};
use crate::context::RunContext;
use crate::live_counting::ExecutionCounting;
use crate::live_optimize::{OptimizedServer, Optimizer, Sampler};

/// What a server's layout is made from.
#[derive(Debug)]
pub(crate) struct Training {
    /// Process ID of the server's first process.
    pub pid: u32,
    /// Its samples.
    sampled: Sampled,
    /// Code that counts executions, if it is to be used in the next slice.
    counting: Option<ExecutionCounting>,
    /// What it counted.
    counted: Option<Counted>,
}

impl Training {
    /// Whether executions are to be counted in the next slice.
    pub const fn counts(&self) -> bool {
        self.counting.is_some()
    }
}

impl Instance {
    /// The optimizer for its server; `None` if the server is not to be optimized or does not run.
    pub fn optimizer(&self, context: &RunContext<'_>) -> Option<Optimizer<'_>> {
        let System::Private(server) = &self.candidate.spec.system else { return None };
        let live = self.candidate.spec.live.as_ref()?;
        let pid = self.server.as_ref().filter(|_| self.is_running())?.pid()?;
        Some(Optimizer::of(server, live, pid, context.directory.data().join(".live")))
    }

    /// Whether its server is to be optimized with this microbenchmark but is not optimized yet.
    pub fn needs_training(&self, with: u32) -> bool {
        let is_trained =
            |server: &OptimizedServer| server.trained_with == with && server.is_alive();
        self.is_running()
            && self.candidate.spec.live.is_some()
            && !self.optimized.as_ref().is_some_and(is_trained)
    }

    /// Ends the sampling of its server, and makes code that counts if executions are to be counted.
    pub fn end_sampling(
        &self,
        context: &RunContext<'_>,
        sampler: Sampler,
    ) -> Result<Option<Training>, WorkerError> {
        let Some(optimizer) = self.optimizer(context) else { return Ok(None) };
        let sampled = sampler.finish().map_err(failed)?;
        let counts = optimizer.live.counts == Counts::Exact && !optimizer.family;
        let counting = counts.then(|| ExecutionCounting::prepare(&optimizer, &sampled)).transpose();
        Ok(Some(Training {
            pid: optimizer.pid,
            sampled,
            counting: counting.map_err(failed)?,
            counted: None,
        }))
    }

    /// As [`Instance::run_slice`]; executions are counted meanwhile if the training is ready to.
    pub fn run_training_slice(
        &mut self,
        context: &RunContext<'_>,
        request: SliceRequest,
        prepare: &Prepare,
        training: Option<&mut Training>,
    ) -> Result<SliceMeasured, SliceError> {
        let ready = training.and_then(|training| {
            let counting = training.counting.take()?;
            Some((counting, &mut training.counted))
        });
        let Some((counting, counted)) = ready else {
            return self.run_slice(context, request, prepare);
        };
        let (slice, outcome) = counting.during(|| self.run_slice(context, request, prepare));
        let slice = slice?;
        *counted = Some(outcome.map_err(|error| SliceError::Failed(failed(error)))?);
        Ok(slice)
    }

    /// Optimizes its server: by its training, or without one by the samples of another candidate. `None` if
    /// there are neither.
    pub fn optimize(
        &mut self,
        context: &RunContext<'_>,
        training: Option<Training>,
        with: u32,
    ) -> Result<Option<OptimizationRecord>, WorkerError> {
        let Some(optimizer) = self.optimizer(context) else { return Ok(None) };
        let outcome = match (training, &self.candidate.samples) {
            (Some(Training { sampled, counted, .. }), _) => {
                optimizer.optimize(&sampled, counted.as_ref(), with)
            }
            (None, Some(profile)) => {
                let name = optimizer.live.samples_of.as_deref().unwrap_or_default();
                optimizer.optimize_by(profile, name, with)
            }
            (None, None) => return Ok(None),
        };
        let (optimized, record) = outcome.map_err(failed)?;
        self.optimized = Some(optimized);
        Ok(Some(record))
    }

    /// Optimizes a restarted server with the samples of the previous process.
    pub(super) fn reoptimize(&mut self, context: &RunContext<'_>) -> Result<(), WorkerError> {
        let before = self.optimized.as_ref().filter(|server| !server.is_alive());
        let Some((before, optimizer)) = before.zip(self.optimizer(context)) else { return Ok(()) };
        let again = optimizer.optimize_again(before).map_err(failed)?;
        if let Some((optimized, record)) = again {
            self.optimized = Some(optimized);
            self.reoptimizations.push(record);
        }
        Ok(())
    }

    /// The optimizations of restarted servers since the last call.
    pub fn take_reoptimizations(&mut self) -> Vec<OptimizationRecord> {
        std::mem::take(&mut self.reoptimizations)
    }
}

fn failed(error: impl Display) -> WorkerError {
    WorkerError::Failed { doing: "optimizing the server", message: error.to_string() }
}
