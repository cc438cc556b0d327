use crate::{CpuSet, Topology};

/// The CPUs of the system under test and those of dbdyno.
///
/// The two sets overlap only if it cannot be avoided; see [`CpuAssignment::is_shared`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuAssignment {
    /// For the system under test. An embedded system runs in the worker, so it is the worker's set.
    pub system: CpuSet,
    /// For dbdyno: the coordinator, and the worker unless the system is embedded in it.
    pub dbdyno: CpuSet,
}

impl CpuAssignment {
    /// Divide the `allowed` CPUs for `clients` connections.
    ///
    /// dbdyno gets the lowest CPUs, where the kernel also handles most interrupts.
    /// - A server gets at least half of the cores; dbdyno gets at most as many as needed for one
    ///   thread per client.
    /// - With an embedded system, dbdyno gets one core for the coordinator, which sleeps during
    ///   slices, but only one thread of it if the clients need the other. On 2 CPUs, several
    ///   clients get both.
    ///
    /// The threads of a core stay in the same set if there are enough cores: an active sibling
    /// halves a core's speed, so the results of one side would depend on the other.
    pub fn choose(allowed: &CpuSet, topology: &Topology, clients: u32, embedded: bool) -> Self {
        let cores = topology.cores_within(allowed);
        let clients = clients.max(1) as usize;
        let first: CpuSet = allowed.first().into_iter().collect();
        let without = |dbdyno: CpuSet| Self { system: allowed.difference(&dbdyno), dbdyno };

        if allowed.len() < 2 || (embedded && clients > 1 && allowed.len() == 2) {
            return Self { system: allowed.clone(), dbdyno: first };
        }
        if cores.len() < 2 {
            // One core with several threads: siblings are separated.
            return without(first);
        }
        if embedded {
            let core_left = without(cores[0].clone());
            let enough = core_left.system.len() >= clients;
            return if enough { core_left } else { without(first) };
        }
        let mut dbdyno: Vec<u32> = Vec::new();
        for core in &cores[..cores.len() / 2] {
            if dbdyno.len() < clients {
                dbdyno.extend(core.iter());
            }
        }
        without(dbdyno.into_iter().collect())
    }

    /// Whether the sets overlap, so that both sides disturb each other.
    pub fn is_shared(&self) -> bool {
        !self.system.intersection(&self.dbdyno).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: bool = false;
    const EMBEDDED: bool = true;

    /// The assignment as text: "dbdyno | system".
    fn choose(cores: &[&str], allowed: &str, clients: u32, embedded: bool) -> String {
        let topology = Topology {
            cores: cores.iter().map(|core| core.parse().unwrap()).collect(),
            ..Topology::default()
        };
        let split = CpuAssignment::choose(&allowed.parse().unwrap(), &topology, clients, embedded);
        format!("{} | {}", split.dbdyno, split.system)
    }

    #[test]
    fn two_cpus_are_divided() {
        assert_eq!(choose(&["0", "1"], "0-1", 1, SERVER), "0 | 1");
        assert_eq!(choose(&["0", "1"], "0-1", 16, SERVER), "0 | 1");
        assert_eq!(choose(&["0", "1"], "0-1", 1, EMBEDDED), "0 | 1");
        assert_eq!(choose(&["0-1"], "0-1", 1, SERVER), "0 | 1");
    }

    #[test]
    fn several_clients_of_an_embedded_system_get_both_of_two_cpus() {
        assert_eq!(choose(&["0", "1"], "0-1", 2, EMBEDDED), "0 | 0-1");
    }

    #[test]
    fn one_cpu_is_shared() {
        assert_eq!(choose(&["0"], "0", 1, SERVER), "0 | 0");
        let one: CpuSet = "5".parse().unwrap();
        assert!(CpuAssignment::choose(&one, &Topology::default(), 1, EMBEDDED).is_shared());
    }

    #[test]
    fn embedded_system_gets_all_but_the_coordinators_core() {
        assert_eq!(choose(&["0", "1", "2", "3"], "0-3", 1, EMBEDDED), "0 | 1-3");
        assert_eq!(choose(&["0", "1", "2", "3"], "0-3", 8, EMBEDDED), "0 | 1-3");
        assert_eq!(choose(&["0,4", "1,5", "2,6", "3,7"], "0-7", 4, EMBEDDED), "0,4 | 1-3,5-7");
    }

    #[test]
    fn many_clients_of_an_embedded_system_get_the_coordinators_sibling() {
        assert_eq!(choose(&["0,2", "1,3"], "0-3", 2, EMBEDDED), "0,2 | 1,3");
        assert_eq!(choose(&["0,2", "1,3"], "0-3", 3, EMBEDDED), "0 | 1-3");
    }

    #[test]
    fn server_gets_at_least_half_of_the_cores() {
        let cores = ["0", "1", "2", "3", "4", "5", "6", "7"];
        assert_eq!(choose(&cores, "0-7", 1, SERVER), "0 | 1-7");
        assert_eq!(choose(&cores, "0-7", 3, SERVER), "0-2 | 3-7");
        assert_eq!(choose(&cores, "0-7", 64, SERVER), "0-3 | 4-7");
        assert_eq!(choose(&cores[..3], "0-2", 64, SERVER), "0 | 1-2");
    }

    #[test]
    fn siblings_stay_in_the_same_set() {
        let cores = ["0-1", "2-3", "4-5", "6-7"];
        assert_eq!(choose(&cores, "0-7", 1, SERVER), "0-1 | 2-7");
        assert_eq!(choose(&cores, "0-7", 3, SERVER), "0-3 | 4-7");
    }

    #[test]
    fn only_allowed_cpus_are_used_even_if_their_core_is_unknown() {
        assert_eq!(choose(&["0,4", "1,5", "2,6", "3,7"], "2-3,6", 1, SERVER), "2,6 | 3");
        assert_eq!(choose(&[], "2-4", 1, SERVER), "2 | 3-4");
    }
}
