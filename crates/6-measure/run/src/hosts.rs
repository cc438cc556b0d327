//! The hosts of an experiment's private servers.

use std::collections::BTreeMap;
use std::path::Path;

use dbdyno_hosts::{HostConnection, HostError, HostOptions};
use dbdyno_results::Warning;
use dbdyno_spec::experiment::{Candidate, Experiment};

use crate::context::WorkerProgram;

/// Connections to the hosts that an experiment's candidates run on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts(BTreeMap<String, HostConnection>);

impl Hosts {
    /// Connects to the hosts of all candidates, with logs in this directory.
    ///
    /// Call it on the main thread: ssh ends with the thread that started it.
    ///
    /// # Errors
    /// One of the hosts cannot be used.
    pub fn connect(
        experiment: &Experiment,
        worker: &WorkerProgram,
        logs: Option<&Path>,
    ) -> Result<Self, HostError> {
        let mut hosts = BTreeMap::new();
        for host in &experiment.hosts {
            let is_used = |one: &Candidate| one.system.host() == Some(host.name.as_str());
            if !experiment.candidates.iter().any(is_used) {
                continue;
            }
            let log = logs.map(|logs| logs.join(format!("host-{}.log", host.name)));
            let connection = HostConnection::connect(&HostOptions {
                name: &host.name,
                ssh: &host.ssh,
                address: &host.address,
                cpus: host.cpus.as_deref(),
                directory: host.directory.as_deref(),
                program: &worker.program,
                log: log.as_deref(),
            })?;
            hosts.insert(host.name.clone(), connection);
        }
        Ok(Self(hosts))
    }

    /// The host that a candidate's server runs on; `None` for this machine.
    ///
    /// # Errors
    /// The experiment, which was stored and changed since, does not define the host.
    pub fn of(&self, candidate: &Candidate) -> Result<Option<&HostConnection>, HostError> {
        let Some(name) = candidate.system.host() else { return Ok(None) };
        match self.0.get(name) {
            Some(host) => Ok(Some(host)),
            None => Err(HostError::Unsuitable {
                host: name.to_owned(),
                reason: "the experiment does not define it".to_owned(),
            }),
        }
    }

    /// All connections.
    pub fn all(&self) -> impl Iterator<Item = &HostConnection> {
        self.0.values()
    }

    /// The timing of each host: label and value.
    pub fn rows(&self) -> Vec<(String, String)> {
        let row = |(name, host): (&String, &HostConnection)| {
            (format!("host {name}"), host.timing().describe())
        };
        self.0.iter().map(row).collect()
    }

    /// Conditions of the network that distort the results.
    pub fn warnings(&self) -> Vec<Warning> {
        let far = self.0.iter().filter(|(_, host)| host.timing().network_dominates());
        let warning = |(name, host): (&String, &HostConnection)| {
            Warning {
            what: format!(
                "the network round trip to host {name} takes {}: more than a short query at the server",
                host.timing().network
            ),
            advice: "compare CPU time per query, or throughput with many clients, or use hosts that are \
                     closer"
                .to_owned(),
        }
        };
        far.map(warning).collect()
    }
}
