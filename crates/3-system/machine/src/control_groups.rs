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
}
