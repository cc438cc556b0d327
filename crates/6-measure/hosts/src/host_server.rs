//! A private server on a host, and its directory.

use std::io::{self, Write as _};

use dbdyno_engines::server::{Network, ServerPlan};
use dbdyno_types::server::Target;

use tempfile::NamedTempFile;

use crate::protocol::{Failed, Request, Response, StartRequest, Started};
use crate::{HostConnection, HostError, HostMonitor};

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

    /// Starts the server; with `tls`, connections to it are encrypted and its certificate is verified; with
    /// `count`, opens counters of the CPU and the kernel for it.
    ///
    /// # Errors
    /// There is no data, the server exited, or it took too long.
    pub fn start(
        &self,
        plan: &ServerPlan,
        tls: bool,
        count: bool,
    ) -> Result<HostServer, HostError> {
        let system = plan.installation().system;
        let network = self.connection.network(system, tls);
        let request = StartRequest {
            plan: plan.clone(),
            directory: self.name.clone(),
            cpus: self.connection.cpus(),
            network: network.clone(),
            count,
        };
        match self.connection.request(&Request::Start(Box::new(request)))? {
            Response::Started(started) => {
                let Started { server, port, certificate, public_key, counting, time } = *started;
                if tls && certificate.is_none() {
                    return Err(self.connection.failed("the server has no certificate".to_owned()));
                }
                // Of what the host answers, only the port, the certificate and the key are used: otherwise it
                // could lead the workers to a server on this machine.
                let mut target =
                    Network { port, ..network }.target(system, certificate.filter(|_| tls));
                let public_key = public_key.map(|key| self.store_key(&key)).transpose()?;
                target.server_public_key = public_key.as_ref().map(|file| file.path().to_owned());
                let host = self.connection.name();
                tracing::info!(host, server = self.name, %time, "started a server");
                let monitor = HostMonitor::new(self.connection.clone(), server, counting);
                Ok(HostServer { monitor, target, _public_key: public_key })
            }
            other => Err(self.connection.unexpected(&other)),
        }
    }
}

impl HostDir {
    /// A server's public key in a file for the workers, which is removed with the value.
    fn store_key(&self, key: &str) -> Result<NamedTempFile, HostError> {
        let store = || -> io::Result<NamedTempFile> {
            let mut file = NamedTempFile::new()?;
            file.write_all(key.as_bytes())?;
            Ok(file)
        };
        store().map_err(|error| HostError::Failed {
            host: self.connection.name().to_owned(),
            failed: Failed::because(format!("storing the server's public key here: {error}")),
        })
    }
}

/// A running server on a host. Dropping it kills the server.
#[derive(Debug)]
pub struct HostServer {
    monitor: HostMonitor,
    target: Target,
    /// The file that the target names.
    _public_key: Option<NamedTempFile>,
}

impl HostServer {
    /// How the load generator reaches it. The password is [`HostConnection::password`].
    #[must_use]
    pub fn target(&self) -> Target {
        self.target.clone()
    }

    /// The readings of its usage.
    #[must_use]
    pub const fn monitor(&self) -> &HostMonitor {
        &self.monitor
    }

    /// How the server exited, or that the connection is lost; `None` while it runs.
    #[must_use]
    pub fn ended(&self) -> Option<HostError> {
        let HostMonitor { connection, server, .. } = &self.monitor;
        match connection.request(&Request::Ended(*server)) {
            Ok(Response::Ended(ended)) => {
                let host = connection.name().to_owned();
                ended.map(|failed| HostError::Failed { host, failed })
            }
            Ok(other) => Some(connection.unexpected(&other)),
            Err(error) => Some(error),
        }
    }

    /// Shuts the server down cleanly.
    ///
    /// # Errors
    /// It was killed, or exited with an error.
    pub fn stop(self) -> Result<(), HostError> {
        self.monitor.connection.request_done(&Request::Stop(self.monitor.server))
    }
}
