//! CPU quotas of control groups.

use crate::FsRoot;
use crate::control_groups::{Hierarchy, hierarchies};

/// Whether a control group of this process has a CPU quota; `None` if its groups are unknown or not
/// visible.
#[must_use]
pub fn has_cpu_quota(root: &FsRoot) -> Option<bool> {
    Some(!quotas(root)?.is_empty())
}

/// The lowest CPU quota of this process's control groups, as a number of CPUs; `None` without one, or if
/// it is unknown.
pub(crate) fn cpu_quota(root: &FsRoot) -> Option<f64> {
    quotas(root)?.into_iter().reduce(f64::min)
}

/// The CPU quotas of this process's control groups, as numbers of CPUs.
fn quotas(root: &FsRoot) -> Option<Vec<f64>> {
    let hierarchies = hierarchies(root, "cpu")?;
    let is_visible = |one: &Hierarchy| one.directories.iter().any(|path| root.exists(path));
    if !hierarchies.iter().all(is_visible) {
        return None;
    }
    let quotas = hierarchies.into_iter().flat_map(|hierarchy| {
        let of = if hierarchy.is_unified { quota_v2 } else { quota_v1 };
        hierarchy.directories.into_iter().filter_map(move |directory| of(root, &directory))
    });
    Some(quotas.collect())
}

/// Version 2: `max 100000`, or the quota and its period in microseconds: `50000 100000`.
fn quota_v2(root: &FsRoot, directory: &str) -> Option<f64> {
    let text = root.text(&format!("{directory}/cpu.max"))?;
    let (quota, period) = text.split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
}

/// Version 1: the quota in microseconds, or -1, and its period.
fn quota_v1(root: &FsRoot, directory: &str) -> Option<f64> {
    let number = |file| root.value::<f64>(&format!("{directory}/{file}"));
    let quota = number("cpu.cfs_quota_us").filter(|quota| *quota > 0.0)?;
    Some(quota / number("cpu.cfs_period_us").unwrap_or(100_000.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs_root::fixture::Fixture;

    fn found(files: &[(&str, &str)]) -> Option<bool> {
        has_cpu_quota(&Fixture::new(files).root())
    }

    #[test]
    fn quota_of_the_group_or_an_ancestor_counts() {
        let own = ("proc/self/cgroup", "0::/a/b\n");
        let free = ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
        assert_eq!(found(&[own, free]), Some(false));
        let above = ("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
        assert_eq!(found(&[own, free, above]), Some(true));
        assert_eq!(found(&[("proc/self/cgroup", "0::/\n"), above]), Some(false));
    }

    #[test]
    fn version_1_files_are_read() {
        let own = ("proc/self/cgroup", "12:memory:/x\n4:cpu,cpuacct:/x\n0::/\n");
        let file = "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us";
        assert_eq!(found(&[own, (file, "-1\n")]), Some(false));
        assert_eq!(found(&[own, (file, "20000\n")]), Some(true));
        // The order of controllers may differ from that of the directory's name.
        let own = ("proc/self/cgroup", "4:cpuacct,cpu:/x\n");
        let file = "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us";
        assert_eq!(found(&[own, (file, "20000\n")]), Some(true));
    }

    #[test]
    fn lowest_quota_is_a_number_of_cpus() {
        let lowest = |files: &[(&str, &str)]| cpu_quota(&Fixture::new(files).root());
        let own = ("proc/self/cgroup", "0::/a/b\n");
        let files = [
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
        ];
        assert_eq!(lowest(&[own, files[0], files[1]]), Some(1.5));
        assert_eq!(lowest(&[own, files[0]]), None);
        let own = ("proc/self/cgroup", "1:cpu:/\n");
        let quota = ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "20000\n");
        let period = ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "10000\n");
        assert_eq!(lowest(&[own, quota, period]), Some(2.0));
    }

    #[test]
    fn unknown_without_the_cgroup_file_or_directories() {
        assert_eq!(found(&[("etc/hostname", "x\n")]), None);
        for groups in ["0::/a/b\n", "4:cpu,cpuacct:/x\n"] {
            assert_eq!(found(&[("proc/self/cgroup", groups)]), None);
        }
    }
}
