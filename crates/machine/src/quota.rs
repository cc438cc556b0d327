//! CPU quotas of control groups.

use crate::FsRoot;
use crate::control_groups::hierarchies;

/// Whether a control group of this process has a CPU quota; `None` if its groups are unknown.
#[must_use]
pub fn has_cpu_quota(root: &FsRoot) -> Option<bool> {
    let mut limited = hierarchies(root, "cpu")?.into_iter().flat_map(|hierarchy| {
        let is_limited = if hierarchy.is_unified { limited_v2 } else { limited_v1 };
        hierarchy.directories.into_iter().map(move |directory| is_limited(root, &directory))
    });
    Some(limited.any(|one| one))
}

/// Version 2: `max 100000`, or the quota and its period in microseconds: `50000 100000`.
fn limited_v2(root: &FsRoot, directory: &str) -> bool {
    let text = root.text(&format!("{directory}/cpu.max"));
    text.is_some_and(|text| !text.starts_with("max"))
}

/// Version 1: the quota in microseconds, or -1.
fn limited_v1(root: &FsRoot, directory: &str) -> bool {
    root.value::<i64>(&format!("{directory}/cpu.cfs_quota_us")).is_some_and(|quota| quota > 0)
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
        assert_eq!(found(&[own]), Some(false));
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
    }

    #[test]
    fn unknown_without_the_cgroup_file() {
        assert_eq!(found(&[("etc/hostname", "x\n")]), None);
    }
}
