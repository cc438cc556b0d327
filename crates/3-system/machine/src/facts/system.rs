use serde::{Deserialize, Serialize};

use super::hypervisor::Hardware;
use crate::fs_root::FsRoot;

/// Names and versions of the host; virtual or physical.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SystemFacts {
    /// The host name.
    pub host: Option<String>,
    /// The distribution, from os-release.
    pub os: Option<String>,
    /// The kernel release.
    pub kernel: Option<String>,
    /// The architecture that this program was compiled for.
    pub architecture: Option<String>,
    /// Physical or virtual.
    pub hardware: Option<Hardware>,
    /// The container runtime of this process; `None` if none was detected.
    pub container: Option<String>,
}

impl SystemFacts {
    pub(super) fn read(root: &FsRoot, signature: Option<&str>) -> Self {
        Self {
            host: root.text("proc/sys/kernel/hostname"),
            os: os_name(root),
            kernel: root.text("proc/sys/kernel/osrelease"),
            architecture: Some(std::env::consts::ARCH.to_owned()),
            hardware: Hardware::read(root, signature),
            container: container(root),
        }
    }
}

fn os_name(root: &FsRoot) -> Option<String> {
    // os-release(5): the second path is the vendor's copy, for hosts with an empty /etc.
    let text = root.text("etc/os-release").or_else(|| root.text("usr/lib/os-release"))?;
    let value = |name| {
        let value = text.lines().find_map(|line| line.trim().strip_prefix(name))?;
        Some(value.trim_matches(['"', '\'']).to_owned())
    };
    value("PRETTY_NAME=").or_else(|| value("NAME="))
}

/// Detect the container runtime by its files, none of which are guaranteed to exist.
fn container(root: &FsRoot) -> Option<String> {
    // systemd writes the name of the container manager to this file.
    if let Some(name) = root.text("run/systemd/container") {
        return Some(name);
    }
    if root.exists(".dockerenv") {
        return Some("docker".to_owned());
    }
    if root.exists("run/.containerenv") {
        return Some("podman".to_owned());
    }
    let groups = root.text("proc/1/cgroup")?;
    let marks = [("kubepods", "kubernetes"), ("docker", "docker"), ("lxc", "lxc")];
    let (_, name) = marks.into_iter().find(|(mark, _)| groups.contains(mark))?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs_root::fixture::Fixture;

    #[test]
    fn names_of_a_host_without_container() {
        let tree = Fixture::new(&[
            ("proc/sys/kernel/hostname", "bench1\n"),
            ("proc/sys/kernel/osrelease", "6.12.1-amd64\n"),
            ("etc/os-release", "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\n"),
            ("proc/1/cgroup", "0::/init.scope\n"),
        ]);
        let facts = SystemFacts::read(&tree.root(), None);
        assert_eq!(facts.host.as_deref(), Some("bench1"));
        assert_eq!(facts.os.as_deref(), Some("Debian GNU/Linux 13 (trixie)"));
        assert_eq!(facts.kernel.as_deref(), Some("6.12.1-amd64"));
        assert_eq!(facts.container, None);
    }

    #[test]
    fn containers_are_detected_by_their_files() {
        let found = |path, text| container(&Fixture::new(&[(path, text)]).root());
        assert_eq!(found(".dockerenv", "").as_deref(), Some("docker"));
        assert_eq!(found("run/.containerenv", "").as_deref(), Some("podman"));
        assert_eq!(found("run/systemd/container", "lxc\n").as_deref(), Some("lxc"));
        assert_eq!(found("proc/1/cgroup", "0::/kubepods/x\n").as_deref(), Some("kubernetes"));
    }
}
