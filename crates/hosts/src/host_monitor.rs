//! Readings of a server's usage on its host.

use std::sync::atomic::{AtomicBool, Ordering};

use dbdyno_bench::protocol::{Reading, StepReading, StepUsages, TimedUsage};
use dbdyno_record::Counting;

use crate::protocol::{Request, Response};
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
            // A lost connection ends the worker, too.
            Ok(_) | Err(_) => None,
        }
    }

    /// Takes a reading in a step of the insert benchmark; what is unknown is `None`.
    #[must_use]
    pub fn read_step(&self, reading: StepReading) -> StepUsages {
        match self.connection.request(&Request::ReadStep(self.server, reading)) {
            Ok(Response::ReadStep(usages)) => *usages,
            // A lost connection ends the worker, too.
            Ok(_) | Err(_) => StepUsages::default(),
        }
    }
}

impl Drop for HostMonitor {
    fn drop(&mut self) {
        // After a stop there is no such server, and after a loss the agent has ended it.
        let _ = self.connection.request_done(&Request::Kill(self.server));
    }
}
