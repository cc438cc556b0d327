//! Control groups of this process. Their limits are below those of the machine.

use crate::FsRoot;

/// A hierarchy of control groups.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    /// Whether it is of version 2, whose files have other names than those of version 1.
    pub(crate) is_unified: bool,
    /// The directories of this process's group and of its ancestors, whose limits apply, too.
    pub(crate) directories: Vec<String>,
}

/// The hierarchies that may have a controller, such as `cpu`; `None` if the groups of this process are
/// unknown.
pub(crate) fn hierarchies(root: &FsRoot, controller: &str) -> Option<Vec<Hierarchy>> {
    let groups = root.text("proc/self/cgroup")?;
    // `0::/path` in version 2, `4:cpu,cpuacct:/path` in version 1.
    let hierarchy = |line: &str| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let is_unified = number == "0" && controllers.is_empty();
        let all = format!("sys/fs/cgroup/{controllers}");
        let mount = match is_unified {
            true => "sys/fs/cgroup".to_owned(),
            false if root.exists(&all) => all,
            // RHEL 7 has `cpuacct,cpu` here, and a directory `cpu,cpuacct` with a link for each of them.
            false => format!("sys/fs/cgroup/{controller}"),
        };
        let has_it = is_unified || controllers.split(',').any(|one| one == controller);
        let directories = ancestors(path).into_iter().map(|group| format!("{mount}/{group}"));
        has_it.then(|| Hierarchy { is_unified, directories: directories.collect() })
    };
    Some(groups.lines().filter_map(hierarchy).collect())
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

/// Whether a control group of this process has a CPU quota; `None` if its groups are unknown or not
/// visible.
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

    #[test]
    fn hierarchies_of_a_controller_have_all_ancestors() {
        let lines = "12:memory:/x\n4:cpu,cpuacct:/x/y\n0::/\n";
        let file = "sys/fs/cgroup/cpu,cpuacct/cpu.shares";
        let tree = Fixture::new(&[("proc/self/cgroup", lines), (file, "1024\n")]);
        let of = |is_unified, directories: &[&str]| Hierarchy {
            is_unified,
            directories: directories.iter().map(|&directory| directory.to_owned()).collect(),
        };
        let groups = "sys/fs/cgroup/cpu,cpuacct";
        let version_1 = ["x/y", "x", ""].map(|group| format!("{groups}/{group}"));
        let version_1: Vec<&str> = version_1.iter().map(String::as_str).collect();
        let expected = vec![of(false, &version_1), of(true, &["sys/fs/cgroup/"])];
        assert_eq!(hierarchies(&tree.root(), "cpu"), Some(expected));
        assert_eq!(hierarchies(&Fixture::new(&[]).root(), "cpu"), None);
    }

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
