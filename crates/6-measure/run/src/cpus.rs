//! Assignment of CPUs to the systems under test and to dbdyno.

use dbdyno_machine::{CpuAssignment, CpuSet, FsRoot, IdlePreventer, Topology};
use dbdyno_spec::experiment::{Experiment, System};
use dbdyno_types::ClientWait;

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
}
