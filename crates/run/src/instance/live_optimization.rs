//! The live optimizer on an instance's private server.

use std::fmt::Display;

use dbdyno_bench::worker::WorkerError;
use dbdyno_results::OptimizationRecord;
use dbdyno_spec::experiment::System;

use super::Instance;
use crate::context::RunContext;
use crate::live_optimize::{OptimizedServer, Optimizer, Sampler};

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

    /// Optimizes its server: by the samples of `sampler`, or without one by those of another
    /// candidate. `None` if there are neither.
    pub fn optimize(
        &mut self,
        context: &RunContext<'_>,
        sampler: Option<Sampler>,
        with: u32,
    ) -> Result<Option<OptimizationRecord>, WorkerError> {
        let Some(optimizer) = self.optimizer(context) else { return Ok(None) };
        let outcome = match (sampler, &self.candidate.samples) {
            (Some(sampler), _) => sampler
                .finish()
                .and_then(|sampled| optimizer.optimize(&sampled, with))
                .map_err(failed)?,
            (None, Some(profile)) => {
                let name = optimizer.live.samples_of.as_deref().unwrap_or_default();
                optimizer.optimize_by(profile, name, with).map_err(failed)?
            }
            (None, None) => return Ok(None),
        };
        let (optimized, record) = outcome;
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
