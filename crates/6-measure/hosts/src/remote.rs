//! Another host and the servers that run on it.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use dbdyno_engines::server::{Network, ServerPlan};
use dbdyno_live::{OptimizedServer, ServerOptions};
use dbdyno_relayout::Profile;
use dbdyno_types::Counting;
use dbdyno_types::profile::Profile as StackProfile;
use dbdyno_types::server::Target;
use dbdyno_worker::protocol::{Reading, StepReading, StepUsages, TimedUsage};
use tempfile::NamedTempFile;

use crate::protocol::{self, LONGEST_PROFILE, Request, StartRequest, Started};
use crate::{HostConnection, HostError, RunningServer, ServerHost, ServerKey, ServerStart};

impl ServerHost for HostConnection {
    fn exists(&self, name: &str) -> bool {
        self.call(protocol::Exists(name.to_owned())).unwrap_or(false)
    }

    fn initialise(&self, plan: &ServerPlan, name: &str) -> Result<(), HostError> {
        self.call(protocol::Initialise(Box::new(plan.clone()), name.to_owned()))
    }

    fn remove(&self, name: &str) -> Result<(), HostError> {
        self.call(protocol::Remove(name.to_owned()))
    }

    fn copy(&self, from: &str, to: &str) -> Result<(), HostError> {
        self.call(protocol::Copy(from.to_owned(), to.to_owned()))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), HostError> {
        self.call(protocol::Rename(from.to_owned(), to.to_owned()))
    }

    fn files(&self, _: &str) -> Option<PathBuf> {
        None
    }

    fn keeps_data(&self) -> bool {
        false
    }

    fn start(
        &self,
        plan: &ServerPlan,
        name: &str,
        start: ServerStart,
    ) -> Result<Box<dyn RunningServer>, HostError> {
        let ServerStart { tls, count } = start;
        let system = plan.installation().system;
        let network = self.network(system, tls);
        let started = self.call(protocol::Start(Box::new(StartRequest {
            plan: plan.clone(),
            directory: name.to_owned(),
            cpus: self.cpus(),
            network: network.clone(),
            count,
        })))?;
        let Started { server, port, certificate, public_key, counting, warnings, time } = started;
        // From here on, an error ends the server.
        let monitor = HostMonitor::new(self.clone(), server, counting);
        if tls && certificate.is_none() {
            return Err(self.failed("the server has no certificate"));
        }
        // Of what the host answers, only the port, the certificate and the key are used to connect: otherwise it could lead
        // the workers to a server on this machine.
        let mut target = Network { port, ..network }.target(system, certificate.filter(|_| tls));
        let stored = public_key.map(|key| store_key(&key)).transpose();
        let public_key = stored.map_err(|error| {
            self.failed(format!("storing the server's public key here: {error}"))
        })?;
        target.server_public_key = public_key.as_ref().map(|file| file.path().to_owned());
        tracing::info!(host = self.name(), server = name, %time, "started a server");
        Ok(Box::new(RemoteServer { monitor, target, warnings, _public_key: public_key }))
    }
}

/// A server's public key in a file for the workers, which is removed with the value.
fn store_key(key: &str) -> io::Result<NamedTempFile> {
    let mut file = NamedTempFile::new()?;
    file.write_all(key.as_bytes())?;
    Ok(file)
}

/// A running private server on a host. Dropping it kills the server.
struct RemoteServer {
    monitor: HostMonitor,
    /// The password is [`HostConnection::password`].
    target: Target,
    warnings: Vec<String>,
    /// The file that the target names.
    _public_key: Option<NamedTempFile>,
}

impl RemoteServer {
    fn call<R: Request>(&self, request: impl FnOnce(u32) -> R) -> Result<R::Reply, HostError> {
        self.monitor.connection.call(request(self.monitor.server))
    }
}

impl RunningServer for RemoteServer {
    fn key(&self) -> Option<ServerKey> {
        Some(ServerKey(self.monitor.server))
    }

    fn pid(&self) -> Option<u32> {
        None
    }

    fn monitor(&self) -> Option<&HostMonitor> {
        Some(&self.monitor)
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    fn target(&self) -> Target {
        self.target.clone()
    }

    fn ended(&mut self) -> Option<HostError> {
        match self.call(protocol::Ended) {
            Ok(ended) => {
                ended.map(|failed| HostError::failed_on(self.monitor.connection.name(), failed))
            }
            Err(error) => Some(error),
        }
    }

    fn copy_paused(&self, _: &str) -> Result<(), HostError> {
        Err(self.monitor.connection.failed("the data of a running server is not copied there"))
    }

    fn stop(self: Box<Self>) -> Result<(), HostError> {
        self.call(protocol::Stop)
    }

    fn start_sampling(&mut self, options: ServerOptions) -> Result<(), HostError> {
        self.call(|server| protocol::StartSampling(server, options))
    }

    fn end_sampling(&mut self) -> Result<bool, HostError> {
        self.call(protocol::EndSampling)
    }

    fn start_counting(&mut self) -> Result<(), HostError> {
        self.call(protocol::StartCounting)
    }

    fn end_counting(&mut self) -> Result<(), HostError> {
        self.call(protocol::EndCounting)
    }

    fn optimize(&mut self) -> Result<OptimizedServer, HostError> {
        self.call(protocol::Optimize).map(|optimized| *optimized)
    }

    fn optimize_by(
        &mut self,
        options: ServerOptions,
        profile: &Profile,
        source: String,
    ) -> Result<OptimizedServer, HostError> {
        let profile = Box::new(profile.clone());
        self.call(|server| protocol::OptimizeBy(server, options, profile, source))
            .map(|optimized| *optimized)
    }
}

/// Reads the usage of a server on a host. Dropping it kills the server, unless somebody else started it.
#[derive(Debug)]
pub struct HostMonitor {
    connection: HostConnection,
    /// The agent's number of the server.
    server: u32,
    counting: Option<Counting>,
    /// Whether the reading before the next lead-in was requested already.
    announced: AtomicBool,
}

impl HostMonitor {
    const fn new(connection: HostConnection, server: u32, counting: Option<Counting>) -> Self {
        Self { connection, server, counting, announced: AtomicBool::new(false) }
    }

    /// Prepares to read the usage of this process, which somebody else started; with `count`, opens counters
    /// of the CPU and the kernel. Fails if the user of the login may not read its usage.
    pub fn of(connection: &HostConnection, pid: u32, count: bool) -> Result<Self, HostError> {
        let (server, counting) = connection.call(protocol::Watch(pid, count))?;
        Ok(Self::new(connection.clone(), server, counting))
    }

    /// Which counters are available; `None` if none were requested.
    pub const fn counting(&self) -> Option<&Counting> {
        self.counting.as_ref()
    }

    /// Requests the reading before the next lead-in, without waiting for it. Call it when the next slice is
    /// that of this server, and nothing else is requested from it before.
    pub fn announce(&self) {
        let sent = self.connection.send(protocol::LeadIn(self.server));
        self.announced.store(sent.is_ok(), Ordering::Relaxed);
    }

    /// Takes a reading of its usage. `None` if it is unknown, and for readings that do not end a timed
    /// part.
    pub fn read(&self, reading: Reading) -> Option<TimedUsage> {
        if let Reading::LeadIn { interrupted } = reading {
            let announced = self.announced.swap(false, Ordering::Relaxed);
            if announced && !interrupted {
                return None;
            }
        }
        // A lost connection ends the worker, too.
        self.connection.call(protocol::Read(self.server, reading)).unwrap_or(None)
    }

    /// Prepares to sample its stacks in slices that say so, with this number of samples per second and CPU.
    pub fn start_profile(&self, frequency: u32) -> Result<(), HostError> {
        self.connection.call(protocol::StartStacks(self.server, frequency))
    }

    /// What was sampled since the last call.
    pub fn profile(&self) -> Result<StackProfile, HostError> {
        let text = self.connection.call(protocol::Stacks(self.server))?;
        profile_of(text.get()).map_err(|why| self.connection.failed(why))
    }

    /// Takes a reading in a step of the insert benchmark; what is unknown is `None`.
    pub fn read_step(&self, reading: StepReading) -> StepUsages {
        self.connection.call(protocol::ReadStep(self.server, reading)).unwrap_or_default()
    }
}

/// The profile in a text from a host.
fn profile_of(text: &str) -> Result<StackProfile, String> {
    if text.len() > LONGEST_PROFILE {
        return Err("its profile is too long".to_owned());
    }
    let profile: StackProfile =
        serde_json::from_str(text).map_err(|error| format!("its profile is invalid: {error}"))?;
    let is_consistent = profile.is_consistent();
    is_consistent.then_some(profile).ok_or_else(|| "its profile is invalid".to_owned())
}

impl Drop for HostMonitor {
    fn drop(&mut self) {
        // After a stop there is no such server, and after a loss the agent has ended it.
        let _ = self.connection.call(protocol::Kill(self.server));
    }
}

#[cfg(test)]
mod tests {
    use dbdyno_fuzz::Fuzz;
    use dbdyno_types::profile::{Function, Stack};

    use super::*;

    #[test]
    fn damaged_profiles_of_hosts_are_consistent_or_refused() {
        let function = Function {
            module: "mariadbd".to_owned(),
            name: Some("do_command".to_owned()),
            source: None,
            start: 4096,
        };
        let profile = StackProfile {
            functions: vec![function],
            stacks: vec![Stack { frames: vec![0, 0], samples: 3 }],
            samples: 3,
            ..StackProfile::default()
        };
        let text = serde_json::to_string(&profile).unwrap();
        assert_eq!(profile_of(&text), Ok(profile));
        assert!(profile_of(&text.replace("[0,0]", "[0,1]")).is_err());
        assert!(profile_of(&format!("{text}{}", " ".repeat(LONGEST_PROFILE))).is_err());
        let words = ["18446744073709551615", "4294967295", "null"];
        Fuzz::new(vec![text.into_bytes()]).words(&words).run(|bytes| {
            let read = std::str::from_utf8(bytes).map(profile_of);
            assert!(!matches!(read, Ok(Ok(profile)) if !profile.is_consistent()));
        });
    }
}
