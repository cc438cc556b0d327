//! Which CPUs the systems under test get, and which dbdyno.

use dbdyno_machine::{CpuSet, Root, Split, Topology};
use dbdyno_spec::experiment::Experiment;

use crate::error::RunError;

/// Divides the CPUs as the experiment says, or by the machine's layout where it says nothing.
pub(crate) fn divide_cpus(experiment: &Experiment) -> Result<Split, RunError> {
    let allowed = allowed_cpus();
    let topology = Topology::read(&Root::this_machine());
    let embedded = experiment.candidates.iter().all(|candidate| candidate.system.is_embedded());
    let clients = experiment.workload.most_clients();
    let chosen = Split::choose(&allowed, &topology, clients, embedded);
    let named = |given: &Option<String>, otherwise: CpuSet| match given {
        None => Ok(otherwise),
        Some(given) => match given.parse::<CpuSet>() {
            Ok(set) if set.iter().all(|cpu| allowed.contains(cpu)) => Ok(set),
            _ => Err(RunError::Cpus { given: given.clone(), allowed: allowed.to_string() }),
        },
    };
    Ok(Split {
        system: named(&experiment.cpus.system, chosen.system)?,
        dbdyno: named(&experiment.cpus.dbdyno, chosen.dbdyno)?,
    })
}

/// The CPUs that this process may use; where even that is unknown, the first.
pub(crate) fn allowed_cpus() -> CpuSet {
    CpuSet::allowed().unwrap_or_else(|_| std::iter::once(0).collect())
}
