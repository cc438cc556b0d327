//! The CPUs of dbdyno and of the systems under test, and how the clients of servers wait for answers.

use dbdyno_machine::{CpuAssignment, CpuSet, FsRoot, IdlePreventer, Topology, has_cpu_quota};
use dbdyno_spec::experiment::{Experiment, System};
use dbdyno_types::ClientWait;

use crate::candidates::server_process::{self, ServerCpus};
use crate::error::RunError;

/// The CPUs chosen by the machine's topology, whatever the experiment says.
pub(crate) fn chosen_cpus(experiment: &Experiment) -> CpuAssignment {
    let topology = Topology::read(&FsRoot::this_machine());
    let embedded = experiment.candidates.iter().all(|candidate| candidate.system.is_embedded());
    let clients = experiment.workload.most_clients();
    CpuAssignment::choose(&allowed_cpus(), &topology, clients, embedded)
}

/// The CPUs given in the experiment; by default the [chosen ones](chosen_cpus).
pub(crate) fn divide_cpus(experiment: &Experiment) -> Result<CpuAssignment, RunError> {
    let allowed = allowed_cpus();
    let chosen = chosen_cpus(experiment);
    let named = |given: &Option<String>, otherwise: CpuSet| match given {
        None => Ok(otherwise),
        Some(given) => match given.parse::<CpuSet>() {
            Ok(set) if set.iter().all(|cpu| allowed.contains(cpu)) => Ok(set),
            _ => Err(RunError::Cpus { given: given.clone(), allowed: allowed.to_string() }),
        },
    };
    Ok(CpuAssignment {
        system: named(&experiment.cpus.system, chosen.system)?,
        dbdyno: named(&experiment.cpus.dbdyno, chosen.dbdyno)?,
    })
}

/// The CPUs that are kept from idling while microbenchmarks run.
///
/// By default on virtual machines with servers, where client and server wait for each other and a
/// wake-up takes longer than many statements. Not for embedded systems, whose CPU is always busy,
/// nor for the insert benchmark, whose pauses are part of it, nor if a control group would charge
/// the servers for it. Not dbdyno's CPUs if its clients poll there.
pub(crate) fn idle_prevention_cpus(
    experiment: &Experiment,
    cpus: &CpuAssignment,
    wait: Option<ClientWait>,
) -> CpuSet {
    let systems = || experiment.candidates.iter().map(|candidate| &candidate.system);
    let waits = || systems().any(|one| !one.is_embedded());
    let default = || waits() && IdlePreventer::is_worthwhile(&FsRoot::this_machine());
    // An insert benchmark has no microbenchmarks.
    if experiment.insert_benchmark.is_some()
        || !experiment.cpus.prevent_idle.unwrap_or_else(default)
    {
        return CpuSet::default();
    }
    // The CPUs of existing servers are unknown.
    let own = systems().any(|system| !matches!(system, System::Existing(_)));
    let system = if own { cpus.system.clone() } else { CpuSet::default() };
    match wait {
        Some(ClientWait::Poll) => system,
        Some(ClientWait::Sleep) | None => system.iter().chain(cpus.dbdyno.iter()).collect(),
    }
}

/// The CPUs that this process may use; the first CPU if that is unknown.
pub(crate) fn allowed_cpus() -> CpuSet {
    CpuSet::allowed().unwrap_or_else(|_| std::iter::once(0).collect())
}

/// How the clients of a run wait, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WaitChoice {
    pub wait: ClientWait,
    why: String,
}

/// What the choice depends on.
struct Conditions<'a> {
    dbdyno: &'a CpuSet,
    /// The servers' candidates and CPUs.
    servers: Vec<(&'a str, ServerCpus)>,
    topology: Topology,
    /// Whether a control group limits the CPU time of dbdyno; `None` if unknown.
    quota: Option<bool>,
}

impl WaitChoice {
    /// The choice for an experiment on this machine; `None` without servers.
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
        let shared = self.shared();
        if let (Some(ClientWait::Poll), Some((candidate, shared))) = (requested, &shared) {
            return Err(RunError::polls_on_server_cpus(candidate, shared));
        }
        if let Some(wait) = requested {
            return Ok(WaitChoice { wait, why: "set under [cpus]".to_owned() });
        }
        let unknown = self.servers.iter().find(|(_, cpus)| *cpus == ServerCpus::Unknown);
        let why = if let Some((candidate, shared)) = shared {
            format!("{candidate} may use dbdyno's CPUs {shared}")
        } else if let Some((candidate, _)) = unknown {
            format!("which CPUs the server of {candidate} may use is unknown")
        } else if let Some(core) = self.shared_core() {
            format!("dbdyno and a server use hardware threads of one core, {core}")
        } else if self.quota == Some(true) {
            "a control group limits dbdyno's CPU time".to_owned()
        } else if self.quota.is_none() {
            "whether a control group limits dbdyno's CPU time is unknown".to_owned()
        } else {
            let why = format!("no server uses dbdyno's CPUs {}", self.dbdyno);
            return Ok(WaitChoice { wait: ClientWait::Poll, why });
        };
        Ok(WaitChoice { wait: ClientWait::Sleep, why })
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
    use dbdyno_spec::parse;

    use super::*;

    fn idle_prevented(lines: &str) -> String {
        idle_prevented_with(None, lines)
    }

    fn idle_prevented_with(wait: Option<ClientWait>, lines: &str) -> String {
        let text = format!("name = 'test'\nbaseline = 'a'\n{lines}");
        let experiment = parse("test.toml", &text).unwrap_or_else(|problems| panic!("{problems}"));
        let cpus = CpuAssignment { system: "2-3".parse().unwrap(), dbdyno: "0".parse().unwrap() };
        idle_prevention_cpus(&experiment, &cpus, wait).to_string()
    }

    const SQLITE: &str = "[[candidate]]\nname = 'a'\nsystem = 'sqlite'\nvariant = 'rel'\n";
    const PRIVATE: &str = "[[candidate]]\nname = 'a'\nsystem = 'mariadb'\n";
    const EXISTING: &str =
        "[[candidate]]\nname = 'a'\nsystem = 'mariadb'\nurl = 'mysql://me@db.example/'\n";

    #[test]
    fn requested_idle_prevention_covers_dbdyno_and_private_servers() {
        let asked =
            |candidate: &str| idle_prevented(&format!("[cpus]\nprevent_idle = true\n{candidate}"));
        assert_eq!(asked(PRIVATE), "0,2-3");
        assert_eq!(asked(SQLITE), "0,2-3");
        assert_eq!(asked(EXISTING), "0");
        assert_eq!(idle_prevented(&format!("[cpus]\nprevent_idle = false\n{PRIVATE}")), "");
    }

    #[test]
    fn cpus_of_polling_clients_need_no_idle_prevention() {
        let polling = |candidate: &str| {
            let lines = format!("[cpus]\nprevent_idle = true\n{candidate}");
            idle_prevented_with(Some(ClientWait::Poll), &lines)
        };
        assert_eq!(polling(PRIVATE), "2-3");
        assert_eq!(polling(EXISTING), "");
    }

    #[test]
    fn embedded_systems_and_insert_benchmarks_may_idle() {
        assert_eq!(idle_prevented(SQLITE), "");
        let inserts = format!("[insert_benchmark]\n[cpus]\nprevent_idle = true\n{PRIVATE}");
        assert_eq!(idle_prevented(&inserts), "");
    }

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
