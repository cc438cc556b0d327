//! How the clients of servers wait for answers.
//!
//! A client that polls uses its CPU all the time, so it must not take CPU time from a server.

use dbdyno_machine::{CpuAssignment, CpuSet, FsRoot, Topology, has_cpu_quota};
use dbdyno_spec::experiment::{Experiment, System};
use dbdyno_types::ClientWait;

use crate::error::RunError;
use crate::server_process;

/// How the clients of a run wait, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WaitChoice {
    pub wait: ClientWait,
    why: String,
}

/// Which CPUs a server may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerCpus {
    /// These CPUs of this machine.
    Here(CpuSet),
    /// Those of another machine.
    Elsewhere,
    Unknown,
}

/// What the choice depends on.
struct Conditions<'a> {
    /// dbdyno's CPUs.
    dbdyno: &'a CpuSet,
    /// The servers' candidates and CPUs.
    servers: Vec<(&'a str, ServerCpus)>,
    topology: Topology,
    /// Whether a control group limits the CPU time of dbdyno; `None` if unknown.
    quota: Option<bool>,
}

impl WaitChoice {
    /// The choice for an experiment on this machine; `None` without servers.
    ///
    /// # Errors
    /// The experiment asks for polling on CPUs that a server may use.
    pub(crate) fn of(
        experiment: &Experiment,
        cpus: &CpuAssignment,
    ) -> Result<Option<Self>, RunError> {
        let servers: Vec<_> = experiment
            .candidates
            .iter()
            .filter_map(|candidate| {
                let of_server = match &candidate.system {
                    System::Sqlite { .. } => return None,
                    System::Private(server) if server.host.is_some() => ServerCpus::Elsewhere,
                    System::Private(_) => ServerCpus::Here(cpus.system.clone()),
                    System::Existing(server) => server_process::cpus(server),
                };
                Some((candidate.name.as_str(), of_server))
            })
            .collect();
        if servers.is_empty() {
            return Ok(None);
        }
        let root = FsRoot::this_machine();
        let (topology, quota) = (Topology::read(&root), has_cpu_quota(&root));
        let conditions = Conditions { dbdyno: &cpus.dbdyno, servers, topology, quota };
        conditions.choose(experiment.cpus.wait).map(Some)
    }

    /// The choice and its reason, for reports.
    pub(crate) fn description(&self) -> String {
        format!("{}: {}", self.wait.name(), self.why)
    }
}

impl Conditions<'_> {
    fn choose(&self, requested: Option<ClientWait>) -> Result<WaitChoice, RunError> {
        let choice = |wait, why: String| Ok(WaitChoice { wait, why });
        match requested {
            Some(wait @ ClientWait::Sleep) => return choice(wait, "set under [cpus]".to_owned()),
            Some(wait @ ClientWait::Poll) => {
                return match self.shared() {
                    Some((candidate, shared)) => {
                        Err(RunError::PollsOnServerCpus { candidate: candidate.to_owned(), shared })
                    }
                    None => choice(wait, "set under [cpus]".to_owned()),
                };
            }
            None => {}
        }
        if let Some((candidate, shared)) = self.shared() {
            let why = format!("{candidate} may use dbdyno's CPUs {shared}");
            return choice(ClientWait::Sleep, why);
        }
        let unknown = self.servers.iter().find(|(_, cpus)| *cpus == ServerCpus::Unknown);
        if let Some((candidate, _)) = unknown {
            let why = format!("which CPUs the server of {candidate} may use is unknown");
            return choice(ClientWait::Sleep, why);
        }
        if let Some(core) = self.shared_core() {
            let why = format!("dbdyno and a server use hardware threads of one core, {core}");
            return choice(ClientWait::Sleep, why);
        }
        let dbdyno = self.dbdyno;
        match self.quota {
            Some(false) => {
                choice(ClientWait::Poll, format!("no server uses dbdyno's CPUs {dbdyno}"))
            }
            Some(true) => {
                choice(ClientWait::Sleep, "a control group limits dbdyno's CPU time".to_owned())
            }
            None => {
                let why = "whether a control group limits dbdyno's CPU time is unknown";
                choice(ClientWait::Sleep, why.to_owned())
            }
        }
    }

    /// A server that may use CPUs of dbdyno, with these CPUs.
    fn shared(&self) -> Option<(&str, CpuSet)> {
        self.here().find_map(|(candidate, cpus)| {
            let shared = cpus.intersection(self.dbdyno);
            (!shared.is_empty()).then_some((candidate, shared))
        })
    }

    /// A core with CPUs of dbdyno and of a server.
    fn shared_core(&self) -> Option<&CpuSet> {
        self.topology.cores.iter().find(|core| {
            let has = |cpus: &CpuSet| !core.intersection(cpus).is_empty();
            has(self.dbdyno) && self.here().any(|(_, cpus)| has(cpus))
        })
    }

    /// The servers whose CPUs on this machine are known.
    fn here(&self) -> impl Iterator<Item = (&str, &CpuSet)> {
        self.servers.iter().filter_map(|(candidate, cpus)| match cpus {
            ServerCpus::Here(cpus) => Some((*candidate, cpus)),
            ServerCpus::Elsewhere | ServerCpus::Unknown => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(cpus: &str) -> ServerCpus {
        ServerCpus::Here(cpus.parse().unwrap())
    }

    /// The choice as text for dbdyno on CPU 0, one core per CPU and no quota.
    fn choose(servers: &[ServerCpus], change: impl FnOnce(&mut Conditions<'_>)) -> String {
        let dbdyno: CpuSet = "0".parse().unwrap();
        let cores = ["0", "1", "2"].map(|core| core.parse().unwrap()).into();
        let mut conditions = Conditions {
            dbdyno: &dbdyno,
            servers: servers.iter().map(|cpus| ("db", cpus.clone())).collect(),
            topology: Topology { cores, ..Topology::default() },
            quota: Some(false),
        };
        change(&mut conditions);
        conditions.choose(None).unwrap().description()
    }

    fn by_default(servers: &[ServerCpus]) -> String {
        choose(servers, |_| ())
    }

    fn requested(
        wait: ClientWait,
        server: ServerCpus,
        quota: Option<bool>,
    ) -> Result<String, String> {
        let dbdyno: CpuSet = "0-1".parse().unwrap();
        let servers = vec![("db", server)];
        let conditions =
            Conditions { dbdyno: &dbdyno, servers, topology: Topology::default(), quota };
        match conditions.choose(Some(wait)) {
            Ok(choice) => Ok(choice.description()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn clients_poll_on_cpus_that_no_server_uses() {
        let polls = "poll: no server uses dbdyno's CPUs 0";
        assert_eq!(by_default(&[here("1-2")]), polls);
        assert_eq!(by_default(&[ServerCpus::Elsewhere]), polls);
        assert_eq!(by_default(&[here("2"), ServerCpus::Elsewhere]), polls);
    }

    #[test]
    fn clients_sleep_on_cpus_that_a_server_may_use() {
        let shared = "sleep: db may use dbdyno's CPUs 0";
        assert_eq!(by_default(&[here("0")]), shared);
        assert_eq!(by_default(&[here("1"), here("0-2")]), shared);
        let unknown = "sleep: which CPUs the server of db may use is unknown";
        assert_eq!(by_default(&[here("1"), ServerCpus::Unknown]), unknown);
    }

    #[test]
    fn clients_sleep_on_a_core_that_a_server_may_use() {
        let cores = vec!["0,2".parse().unwrap(), "1".parse().unwrap()];
        let siblings = |cpus| choose(&[here(cpus)], |one| one.topology.cores = cores.clone());
        let shared = "sleep: dbdyno and a server use hardware threads of one core, 0,2";
        assert_eq!(siblings("2"), shared);
        assert!(siblings("1").starts_with("poll"));
    }

    #[test]
    fn clients_sleep_if_cpu_time_may_be_limited() {
        let limited = choose(&[here("1")], |one| one.quota = Some(true));
        assert_eq!(limited, "sleep: a control group limits dbdyno's CPU time");
        let unknown = choose(&[here("1")], |one| one.quota = None);
        assert_eq!(unknown, "sleep: whether a control group limits dbdyno's CPU time is unknown");
    }

    #[test]
    fn request_is_fulfilled_except_polling_on_cpus_of_a_server() {
        let (poll, sleep) = (ClientWait::Poll, ClientWait::Sleep);
        let set = |wait: ClientWait| Ok(format!("{}: set under [cpus]", wait.name()));
        assert_eq!(requested(sleep, here("2"), Some(false)), set(sleep));
        assert_eq!(requested(sleep, here("0"), Some(false)), set(sleep));
        assert_eq!(requested(poll, here("2"), Some(true)), set(poll));
        assert_eq!(requested(poll, ServerCpus::Unknown, None), set(poll));
        let refused = requested(poll, here("1-2"), Some(false)).unwrap_err();
        assert_eq!(
            refused,
            "`wait = \"poll\"` under [cpus]: the server of db may use dbdyno's CPUs 1, and polling \
             would take CPU time from it; give each CPUs of its own with `dbdyno` and `system`, for \
             an existing server also with taskset(1), or set `wait = \"sleep\"`"
        );
    }
}
