//! A private server on a host, and its directory.

use dbdyno_bench::protocol::{Reading, TimedUsage};
use dbdyno_engines::server::{Network, ServerPlan};
use dbdyno_record::Counting;
use dbdyno_record::server::Target;

use crate::protocol::{Request, Response, StartRequest, Started};
use crate::{HostConnection, HostError};

/// The directory of one server on a host: its data, its configuration and its log.
#[derive(Clone, Debug)]
pub struct HostDir {
    connection: HostConnection,
    name: String,
}

impl HostDir {
    pub(crate) fn new(connection: HostConnection, name: &str) -> Self {
        Self { connection, name: name.to_owned() }
    }

    /// Whether complete data exists; false if the connection is lost.
    #[must_use]
    pub fn exists(&self) -> bool {
        let response = self.connection.request(&Request::Exists(self.name.clone()));
        matches!(response, Ok(Response::Exists(true)))
    }

    /// Creates a new data directory. If it fails, nothing is left.
    ///
    /// # Errors
    /// The directory exists already, or the system's own program failed.
    pub fn initialise(&self, plan: &ServerPlan) -> Result<(), HostError> {
        let request = Request::Initialise(Box::new(plan.clone()), self.name.clone());
        self.connection.request_done(&request)
    }

    /// Removes the directory, if it exists. The server must not run.
    ///
    /// # Errors
    /// The server runs, or a file cannot be removed.
    pub fn remove(&self) -> Result<(), HostError> {
        self.connection.request_done(&Request::Remove(self.name.clone()))
    }

    /// Copies the data to `to`, a directory on the same host that must not exist. Neither server may run.
    ///
    /// # Errors
    /// The data cannot be copied.
    pub fn clone_to(&self, to: &Self) -> Result<(), HostError> {
        self.connection.request_done(&Request::Clone(self.name.clone(), to.name.clone()))
    }

    /// Renames the directory to `to`, which must not exist. The server must not run.
    ///
    /// # Errors
    /// The directory cannot be renamed.
    pub fn rename_to(&self, to: &Self) -> Result<(), HostError> {
        self.connection.request_done(&Request::Rename(self.name.clone(), to.name.clone()))
    }

    /// Starts the server; with `count`, opens counters of the CPU and the kernel for it.
    ///
    /// # Errors
    /// There is no data, the server exited, or it took too long.
    pub fn start(&self, plan: &ServerPlan, count: bool) -> Result<HostServer, HostError> {
        let system = plan.installation().system;
        let network = self.connection.network(system);
        let request = StartRequest {
            plan: plan.clone(),
            directory: self.name.clone(),
            cpus: self.connection.cpus(),
            network: network.clone(),
            count,
        };
        match self.connection.request(&Request::Start(Box::new(request)))? {
            Response::Started(started) => {
                let Started { server, port, counting, time } = *started;
                // Of what the host answers, only the port is used: otherwise it could lead the workers to
                // a server on this machine.
                let target = Network { port, ..network }.target(system);
                let host = self.connection.name();
                tracing::info!(host, server = self.name, %time, "started a server");
                Ok(HostServer { connection: self.connection.clone(), server, target, counting })
            }
            other => Err(self.connection.unexpected(&other)),
        }
    }
}

/// A running server on a host. Dropping it kills the server.
#[derive(Debug)]
pub struct HostServer {
    connection: HostConnection,
    server: u32,
    target: Target,
    counting: Option<Counting>,
}

impl HostServer {
    /// How the load generator reaches it. The password is [`HostConnection::password`].
    #[must_use]
    pub fn target(&self) -> Target {
        self.target.clone()
    }

    /// Which counters are available; `None` if none were requested.
    #[must_use]
    pub const fn counting(&self) -> Option<&Counting> {
        self.counting.as_ref()
    }

    /// How the server exited, or that the connection is lost; `None` while it runs.
    #[must_use]
    pub fn ended(&self) -> Option<HostError> {
        match self.connection.request(&Request::Ended(self.server)) {
            Ok(Response::Ended(ended)) => {
                let host = self.connection.name().to_owned();
                ended.map(|failed| HostError::Failed { host, failed })
            }
            Ok(other) => Some(self.connection.unexpected(&other)),
            Err(error) => Some(error),
        }
    }

    /// Takes a reading of its usage. `None` if it is unknown, and for readings that do not end a timed
    /// part.
    #[must_use]
    pub fn read(&self, reading: Reading) -> Option<TimedUsage> {
        match self.connection.request(&Request::Read(self.server, reading)) {
            Ok(Response::Read(usage)) => usage,
            // A lost connection ends the worker, too.
            Ok(_) | Err(_) => None,
        }
    }

    /// Shuts the server down cleanly.
    ///
    /// # Errors
    /// It was killed, or exited with an error.
    pub fn stop(self) -> Result<(), HostError> {
        self.connection.request_done(&Request::Stop(self.server))
    }
}

impl Drop for HostServer {
    fn drop(&mut self) {
        // After a stop there is no such server, and after a loss the agent has ended it.
        let _ = self.connection.request_done(&Request::Kill(self.server));
    }
}
