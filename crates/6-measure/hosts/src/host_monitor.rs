//! Readings of a server's usage on its host.

use std::sync::atomic::{AtomicBool, Ordering};

use dbdyno_live::{OptimizedServer, ServerOptions};
use dbdyno_relayout::Profile;
use dbdyno_types::Counting;
use dbdyno_worker::protocol::{Reading, StepReading, StepUsages, TimedUsage};

use crate::protocol::{LiveRequest, Request, Response};
use crate::{HostConnection, HostError};

/// Reads the usage of a server on a host. Dropping it kills the server, unless somebody else started it.
#[derive(Debug)]
pub struct HostMonitor {
    pub(crate) connection: HostConnection,
    /// The agent's number of the server.
    pub(crate) server: u32,
    counting: Option<Counting>,
    /// Whether the reading before the next lead-in was requested already.
    announced: AtomicBool,
}

impl HostMonitor {
    pub(crate) const fn new(
        connection: HostConnection,
        server: u32,
        counting: Option<Counting>,
    ) -> Self {
        Self { connection, server, counting, announced: AtomicBool::new(false) }
    }

    /// Prepares to read the usage of this process, which somebody else started; with `count`, opens counters
    /// of the CPU and the kernel.
    ///
    /// # Errors
    /// The process has ended, or the user of the login may not read its usage.
    pub fn of(connection: &HostConnection, pid: u32, count: bool) -> Result<Self, HostError> {
        match connection.request(&Request::Watch(pid, count))? {
            Response::Watching(server, counting) => {
                Ok(Self::new(connection.clone(), server, counting))
            }
            other => Err(connection.unexpected(&other)),
        }
    }

    /// Which counters are available; `None` if none were requested.
    #[must_use]
    pub const fn counting(&self) -> Option<&Counting> {
        self.counting.as_ref()
    }

    /// Its number among the servers on the host. A restarted server has another.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.server
    }

    /// Starts sampling the server for the live optimizer there.
    ///
    /// # Errors
    /// The connection is lost, or the server has ended, as for all steps of the optimizer.
    pub fn start_sampling(&self, options: ServerOptions) -> Result<(), HostError> {
        self.connection.request_done(&self.live(LiveRequest::StartSampling(options)))
    }

    /// Ends sampling. Returns whether executions are to be counted.
    ///
    /// # Errors
    /// Sampling is not permitted there, or the process cannot be changed.
    pub fn end_sampling(&self) -> Result<bool, HostError> {
        match self.connection.request(&self.live(LiveRequest::EndSampling))? {
            Response::Sampled(counts) => Ok(counts),
            other => Err(self.connection.unexpected(&other)),
        }
    }

    /// Starts counting executions, while somebody keeps the server busy.
    ///
    /// # Errors
    /// See [`Self::start_sampling`].
    pub fn start_counting(&self) -> Result<(), HostError> {
        self.connection.request_done(&self.live(LiveRequest::StartCounting))
    }

    /// Waits for the end of counting.
    ///
    /// # Errors
    /// The code that counts could not be deactivated.
    pub fn end_counting(&self) -> Result<(), HostError> {
        self.connection.request_done(&self.live(LiveRequest::EndCounting))
    }

    /// Optimizes with what was sampled and counted.
    ///
    /// # Errors
    /// The process could not be changed.
    pub fn optimize(&self) -> Result<OptimizedServer, HostError> {
        self.optimized(LiveRequest::Optimize)
    }

    /// Optimizes with samples of another process; `source` describes them.
    ///
    /// # Errors
    /// The process could not be changed.
    pub fn optimize_by(
        &self,
        options: ServerOptions,
        profile: Profile,
        source: String,
    ) -> Result<OptimizedServer, HostError> {
        self.optimized(LiveRequest::OptimizeBy(options, Box::new(profile), source))
    }

    fn optimized(&self, request: LiveRequest) -> Result<OptimizedServer, HostError> {
        match self.connection.request(&self.live(request))? {
            Response::Optimized(optimized) => Ok(*optimized),
            other => Err(self.connection.unexpected(&other)),
        }
    }

    const fn live(&self, request: LiveRequest) -> Request {
        Request::Live(self.server, request)
    }

    /// Requests the reading before the next lead-in, without waiting for it. Call it when the next slice is
    /// that of this server, and nothing else is requested from it before.
    pub fn announce(&self) {
        let sent = self.connection.send(&Request::LeadIn(self.server));
        self.announced.store(sent.is_ok(), Ordering::Relaxed);
    }

    /// Takes a reading of its usage. `None` if it is unknown, and for readings that do not end a timed
    /// part.
    #[must_use]
    pub fn read(&self, reading: Reading) -> Option<TimedUsage> {
        if let Reading::LeadIn { interrupted } = reading {
            let announced = self.announced.swap(false, Ordering::Relaxed);
            if announced && !interrupted {
                return None;
            }
        }
        match self.connection.request(&Request::Read(self.server, reading)) {
            Ok(Response::Read(usage)) => usage,
            Ok(other) => {
                self.warn_of(&other);
                None
            }
            // A lost connection ends the worker, too.
            Err(_) => None,
        }
    }

    /// Takes a reading in a step of the insert benchmark; what is unknown is `None`.
    #[must_use]
    pub fn read_step(&self, reading: StepReading) -> StepUsages {
        match self.connection.request(&Request::ReadStep(self.server, reading)) {
            Ok(Response::ReadStep(usages)) => *usages,
            Ok(other) => {
                self.warn_of(&other);
                StepUsages::default()
            }
            // A lost connection ends the worker, too.
            Err(_) => StepUsages::default(),
        }
    }

    /// Logs that the usage is unknown because of a response of another kind than requested.
    fn warn_of(&self, response: &Response) {
        let host = self.connection.name();
        tracing::warn!(host, ?response, "the agent sent another answer than the server's usage");
    }
}

impl Drop for HostMonitor {
    fn drop(&mut self) {
        // After a stop there is no such server, and after a loss the agent has ended it.
        let _ = self.connection.request_done(&Request::Kill(self.server));
    }
}
