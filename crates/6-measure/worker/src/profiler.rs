//! Sampling of stacks in the timed part of slices.

use std::collections::HashSet;

use dbdyno_machine::CpuSet;
use dbdyno_profile::{Collector, Sampler};
use dbdyno_types::profile::Profile;

use crate::error::RequestError;

/// Samples processes on all CPUs, and collects their stacks between slices.
pub(crate) struct Profiler {
    sampler: Sampler,
    collector: Collector,
}

impl Profiler {
    pub fn open() -> Result<Self, RequestError> {
        let online = CpuSet::online().ok_or("the CPUs to sample are unknown")?;
        let cpus: Vec<usize> = online.iter().map(|cpu| cpu as usize).collect();
        let sampler = Sampler::open(&cpus).map_err(|error| error.to_string())?;
        Ok(Self { sampler, collector: Collector::default() })
    }

    pub fn begin(&mut self) -> Result<(), RequestError> {
        Ok(self.sampler.enable().map_err(|error| error.to_string())?)
    }

    /// Ends sampling, and collects what was sampled of these processes.
    pub fn end(&mut self, pids: &HashSet<u32>) -> Result<(), RequestError> {
        self.sampler.disable().map_err(|error| error.to_string())?;
        self.collector.collect(&mut self.sampler, pids);
        Ok(())
    }

    /// All that was collected since the last call.
    pub fn take(&mut self) -> Profile {
        self.collector.take()
    }
}
