//! CPU quotas of control groups.

use crate::FsRoot;

/// Whether a control group of this process has a CPU quota; `None` if its groups are unknown.
#[must_use]
pub fn has_cpu_quota(root: &FsRoot) -> Option<bool> {
    let groups = root.text("proc/self/cgroup")?;
    // `0::/path` in version 2, `4:cpu,cpuacct:/path` in version 1.
    let mut limited = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let directories = ancestors(path);
        if number == "0" && controllers.is_empty() {
            return Some(directories.iter().any(|directory| limited_v2(root, directory)));
        }
        let has_cpu = controllers.split(',').any(|controller| controller == "cpu");
        has_cpu
            .then(|| directories.iter().any(|directory| limited_v1(root, controllers, directory)))
    });
    Some(limited.any(|one| one))
}

/// The group and its ancestors: for `/a/b` these are `a/b`, `a` and the root group.
fn ancestors(path: &str) -> Vec<String> {
    let mut path = path.trim_matches('/');
    let mut all = vec![path.to_owned()];
    while let Some((parent, _)) = path.rsplit_once('/') {
        path = parent;
        all.push(parent.to_owned());
    }
    if !path.is_empty() {
        all.push(String::new());
    }
    all
}

/// Version 2: `max 100000`, or the quota and its period in microseconds: `50000 100000`.
fn limited_v2(root: &FsRoot, directory: &str) -> bool {
    let text = root.text(&format!("sys/fs/cgroup/{directory}/cpu.max"));
    text.is_some_and(|text| !text.starts_with("max"))
}

/// Version 1: the quota in microseconds, or -1.
fn limited_v1(root: &FsRoot, controllers: &str, directory: &str) -> bool {
    let file = format!("sys/fs/cgroup/{controllers}/{directory}/cpu.cfs_quota_us");
    root.value::<i64>(&file).is_some_and(|quota| quota > 0)
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
