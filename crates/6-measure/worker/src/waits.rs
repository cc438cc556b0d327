//! Recording of waits in the timed part of slices.

use std::collections::HashSet;
use std::fs;

use dbdyno_machine::{CpuSet, threads_of};
use dbdyno_profile::WaitSampler;
use dbdyno_types::SliceMeasured;
use dbdyno_types::profile::{SliceWaits, Waits};

use crate::error::RequestError;
use crate::protocol::SliceRequest;

/// The beginning of the names of the threads that execute statements of an embedded database.
const CLIENTS: &str = "clients-";

/// Records where the threads of processes wait.
pub(crate) struct WaitMeter {
    sampler: WaitSampler,
    /// The threads that execute statements; `None` if they are those of a server.
    sessions: Option<HashSet<u32>>,
}

impl WaitMeter {
    /// With `is_embedded`, the statements are executed by threads of this process.
    pub fn open(is_embedded: bool) -> Result<Self, RequestError> {
        let online = CpuSet::online().ok_or("the CPUs to record are unknown")?;
        let cpus: Vec<usize> = online.iter().map(|cpu| cpu as usize).collect();
        Ok(Self {
            sampler: WaitSampler::open(&cpus),
            sessions: is_embedded.then(threads_of_clients),
        })
    }

    pub fn begin(&mut self, pids: &HashSet<u32>) -> Result<(), RequestError> {
        Ok(self.sampler.begin(pids).map_err(|error| error.to_string())?)
    }

    pub fn end(&mut self) -> Result<(), RequestError> {
        Ok(self.sampler.end().map_err(|error| error.to_string())?)
    }

    /// Adds what was recorded of these processes in a slice.
    pub fn add(
        &mut self,
        pids: &HashSet<u32>,
        request: SliceRequest,
        measured: &SliceMeasured,
    ) -> Result<(), RequestError> {
        let slice = SliceWaits {
            block: request.block,
            clients: request.clients.unwrap_or_default(),
            statements: measured.statements,
            wall: measured.wall,
            cpu: measured.server.as_ref().map_or(measured.cpu, |server| server.cpu),
            ..SliceWaits::default()
        };
        let added = self.sampler.add(pids, slice, measured.started, self.sessions.as_ref());
        Ok(added.map_err(|error| error.to_string())?)
    }

    /// All that was recorded since the last call.
    pub fn take(&mut self) -> Waits {
        self.sampler.take()
    }
}

fn threads_of_clients() -> HashSet<u32> {
    let is_of_client = |thread: &u32| {
        let name = fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
        name.is_ok_and(|name| name.starts_with(CLIENTS))
    };
    let threads = threads_of(std::process::id()).unwrap_or_default();
    threads.into_iter().filter(is_of_client).collect()
}
