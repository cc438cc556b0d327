use std::collections::BTreeSet;

use crate::{CpuSet, FsRoot};

/// Which CPUs share a core, and the numbers of sockets and NUMA nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The cores, each as the set of its hardware threads, ordered by first CPU.
    pub cores: Vec<CpuSet>,
    /// Number of sockets with CPUs; `None` if unknown.
    pub sockets: Option<usize>,
    /// Number of NUMA nodes with CPUs; `None` if unknown.
    pub numa_nodes: Option<usize>,
}

impl Topology {
    /// Read the topology of the online CPUs from `sys/devices/system`.
    ///
    /// A CPU with unknown topology counts as a separate core.
    #[must_use]
    pub fn read(root: &FsRoot) -> Self {
        let online = CpuSet::online_at(root).unwrap_or_default();
        let mut cores: Vec<CpuSet> = Vec::new();
        let mut packages = BTreeSet::new();
        for cpu in online.iter() {
            let place = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            // -1 if the firmware does not tell.
            packages.extend(root.value::<u32>(&format!("{place}/physical_package_id")));
            if cores.iter().any(|core| core.contains(cpu)) {
                continue;
            }
            // Since Linux 5.4 the preferred name is core_cpus_list; the old one remains as an
            // alias.
            let siblings: Option<CpuSet> = root.value(&format!("{place}/thread_siblings_list"));
            let siblings = siblings.unwrap_or_default().intersection(&online);
            let taken = siblings.iter().any(|it| cores.iter().any(|core| core.contains(it)));
            let alone = taken || !siblings.contains(cpu);
            cores.push(if alone { CpuSet::from_iter([cpu]) } else { siblings });
        }
        let nodes: Option<CpuSet> = root.value("sys/devices/system/node/has_cpu");
        let known = |count: usize| (count > 0).then_some(count);
        Self {
            cores,
            sockets: known(packages.len()),
            numa_nodes: nodes.and_then(|nodes| known(nodes.len())),
        }
    }

    /// Whether some core has more than one thread; `None` if no core is known.
    #[must_use]
    pub fn has_smt(&self) -> Option<bool> {
        (!self.cores.is_empty()).then(|| self.cores.iter().any(|core| core.len() > 1))
    }

    /// The cores restricted to `allowed`, plus a core for each allowed CPU with unknown topology.
    pub(crate) fn cores_within(&self, allowed: &CpuSet) -> Vec<CpuSet> {
        let mut cores: Vec<CpuSet> =
            self.cores.iter().map(|core| core.intersection(allowed)).collect();
        for cpu in allowed.iter() {
            if !self.cores.iter().any(|core| core.contains(cpu)) {
                cores.push(CpuSet::from_iter([cpu]));
            }
        }
        cores.retain(|core| !core.is_empty());
        cores.sort_by_key(CpuSet::first);
        cores
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs_root::fixture::Fixture;

    #[test]
    fn two_cores_with_two_threads_are_read() {
        let tree = Fixture::new(&[
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("sys/devices/system/node/has_cpu", "0\n"),
            ("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,2\n"),
            ("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "1,3\n"),
            ("sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "0,2\n"),
            ("sys/devices/system/cpu/cpu3/topology/thread_siblings_list", "1,3\n"),
            ("sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n"),
            ("sys/devices/system/cpu/cpu1/topology/physical_package_id", "0\n"),
        ]);
        let topology = Topology::read(&tree.root());
        let cores: Vec<String> = topology.cores.iter().map(CpuSet::to_string).collect();
        assert_eq!(cores, ["0,2", "1,3"]);
        assert_eq!(topology.has_smt(), Some(true));
        assert_eq!((topology.sockets, topology.numa_nodes), (Some(1), Some(1)));
    }

    #[test]
    fn cpu_with_unknown_topology_is_a_separate_core() {
        let tree = Fixture::new(&[("sys/devices/system/cpu/online", "0-1\n")]);
        let topology = Topology::read(&tree.root());
        assert_eq!(topology.cores.len(), 2);
        assert_eq!((topology.sockets, topology.numa_nodes), (None, None));
        let package = ("sys/devices/system/cpu/cpu0/topology/physical_package_id", "-1\n");
        let tree = Fixture::new(&[("sys/devices/system/cpu/online", "0\n"), package]);
        assert_eq!(Topology::read(&tree.root()).sockets, None);
        assert_eq!(Topology::read(&Fixture::new(&[]).root()).has_smt(), None);
    }
}
