use std::path::{Path, PathBuf};

use dbdyno_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::FileSystemSpace;
use crate::control_groups::hierarchies;
use crate::fs_root::FsRoot;
use crate::proc_stat::field;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryFacts {
    /// Memory available to the kernel.
    pub total: Option<Bytes>,
    /// Memory available to programs without swapping, within the limits of this process's control
    /// groups.
    pub available: Option<Bytes>,
    /// The lowest limit of this process's control groups; `None` without one, or if it is unknown.
    pub group_limit: Option<Bytes>,
    /// Used swap; zero without swap.
    pub swap_used: Option<Bytes>,
}

/// The memory of this machine.
pub fn total_memory() -> Option<Bytes> {
    MemoryFacts::read(&FsRoot::this_machine()).total
}

impl MemoryFacts {
    pub(super) fn read(root: &FsRoot) -> Self {
        let machine =
            root.text("proc/meminfo").map_or_else(Self::default, |text| Self::parse(&text));
        let groups = || GroupMemory::all(root).into_iter();
        let limit = groups().map(|group| group.limit).min();
        let available = groups().map(|group| group.available()).chain(machine.available).min();
        Self {
            // Without a limit, version 1 has a number that is larger than any memory.
            group_limit: limit.filter(|limit| machine.total.is_none_or(|total| *limit < total)),
            available: machine.available.and(available),
            ..machine
        }
    }

    fn parse(text: &str) -> Self {
        let size = |name: &str| {
            let kib = field(text, name)?;
            kib.checked_mul(1024).map(Bytes::from_bytes)
        };
        let swap = size("SwapTotal:").zip(size("SwapFree:"));
        Self {
            total: size("MemTotal:"),
            available: size("MemAvailable:"),
            group_limit: None,
            swap_used: swap.map(|(total, free)| {
                Bytes::from_bytes(total.as_bytes().saturating_sub(free.as_bytes()))
            }),
        }
    }
}

/// The memory of a control group with a limit.
#[derive(Clone, Copy, Debug)]
struct GroupMemory {
    limit: Bytes,
    used: Bytes,
    /// The part of it that caches files: the kernel reclaims it for programs.
    cache: Bytes,
}

impl GroupMemory {
    /// The groups of this process that have a limit.
    fn all(root: &FsRoot) -> Vec<Self> {
        let hierarchies = hierarchies(root, "memory").unwrap_or_default();
        let groups = hierarchies.iter().flat_map(|hierarchy| {
            let [limit, used, prefix] = match hierarchy.is_unified {
                true => ["memory.max", "memory.current", ""],
                // Without the prefix, numbers of version 1 are those of the group without its children.
                false => ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_"],
            };
            hierarchy.directories.iter().filter_map(move |directory| {
                let size = |file| root.value(&format!("{directory}/{file}")).map(Bytes::from_bytes);
                let stat = root.text(&format!("{directory}/memory.stat")).unwrap_or_default();
                let cache = ["active_file ", "inactive_file "].iter().filter_map(|name| {
                    let name = format!("{prefix}{name}");
                    stat.lines().find_map(|line| line.strip_prefix(&name))?.parse::<u64>().ok()
                });
                Some(Self {
                    // Without a limit, version 2 has the word `max`.
                    limit: size(limit)?,
                    used: size(used).unwrap_or_default(),
                    cache: Bytes::from_bytes(cache.fold(0, u64::saturating_add)),
                })
            })
        });
        groups.collect()
    }

    fn available(self) -> Bytes {
        let Self { limit, used, cache } = self;
        let kept = used.as_bytes().saturating_sub(cache.as_bytes());
        Bytes::from_bytes(limit.as_bytes().saturating_sub(kept))
    }
}

/// The load average over the last minute.
pub(super) fn load_average(root: &FsRoot) -> Option<f64> {
    root.text("proc/loadavg")?.split_whitespace().next()?.parse().ok()
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskFacts {
    pub path: PathBuf,
    /// The type: `ext4`, `xfs`, `tmpfs`.
    pub file_system: Option<String>,
    /// The source of the mount: a device, or a name chosen by the file system.
    pub device: Option<String>,
    /// Free space for unprivileged users.
    pub free: Bytes,
    pub total: Bytes,
}

impl DiskFacts {
    /// The file system that contains `path`; `None` if no ancestor of the path is accessible.
    pub fn of(path: &Path) -> Option<Self> {
        Self::read(&FsRoot::this_machine(), path)
    }

    /// `None` if no ancestor of the path is accessible.
    pub(super) fn read(root: &FsRoot, path: &Path) -> Option<Self> {
        let absolute = std::path::absolute(path).ok()?;
        let existing = absolute.ancestors().find_map(|it| it.canonicalize().ok())?;
        let FileSystemSpace { free, total } = FileSystemSpace::of(&existing).ok()?;
        let mounts = root.text("proc/self/mountinfo").unwrap_or_default();
        let mount = mount_of(&mounts, &existing);
        Some(Self {
            path: path.to_path_buf(),
            file_system: mount.as_ref().map(|mount| mount.file_system.clone()),
            device: mount.map(|mount| mount.device),
            free,
            total,
        })
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    file_system: String,
    device: String,
}

/// The mount that contains `path`: among the longest matching mount points, the one mounted last,
/// which hides the others.
fn mount_of(mounts: &str, path: &Path) -> Option<Mount> {
    let mounts = mounts.lines().filter_map(|line| {
        // proc_pid_mountinfo(5): the fifth field is the mount point; type and device follow a field
        // that is a single dash.
        let (first, last) = line.split_once(" - ")?;
        let point = PathBuf::from(unescape(first.split(' ').nth(4)?));
        let mut last = last.split(' ');
        let file_system = last.next()?.to_owned();
        let device = unescape(last.next()?);
        path.starts_with(&point).then(|| (point.as_os_str().len(), Mount { file_system, device }))
    });
    // If several are equal, max_by_key returns the last.
    mounts.max_by_key(|(length, _)| *length).map(|(_, mount)| mount)
}

/// Decode octal escapes: the kernel writes blanks as `\040` and a backslash as `\134`.
fn unescape(text: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes
        .iter()
        .fold(text.to_owned(), |text, (escape, character)| text.replace(escape, character))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs_root::fixture::Fixture;

    #[test]
    fn memory_and_load_are_read() {
        let tree = Fixture::new(&[
            (
                "proc/meminfo",
                "MemTotal:  1024 kB\nMemFree:  1 kB\nMemAvailable:  512 kB\nSwapTotal: 100 kB\nSwapFree: 90 kB\n",
            ),
            ("proc/loadavg", "0.42 0.30 0.20 1/234 5678\n"),
        ]);
        let facts = MemoryFacts::read(&tree.root());
        assert_eq!(facts.total, Some(Bytes::from_mib(1)));
        assert_eq!(facts.available, Some(Bytes::from_kib(512)));
        assert_eq!(facts.swap_used, Some(Bytes::from_kib(10)));
        assert_eq!(load_average(&tree.root()), Some(0.42));
    }

    #[test]
    fn memory_beyond_the_limit_of_a_control_group_is_not_available() {
        const MIB: u64 = 1 << 20;
        let facts = |files: &[(&str, String)]| {
            let mut all =
                vec![("proc/meminfo", "MemTotal: 8192000 kB\nMemAvailable: 4096000 kB\n")];
            all.extend(files.iter().map(|(path, text)| (*path, text.as_str())));
            MemoryFacts::read(&Fixture::new(&all).root())
        };
        let unlimited = facts(&[]);
        assert_eq!(unlimited.available, Some(Bytes::from_kib(4_096_000)));
        assert_eq!(unlimited.group_limit, None);
        let used = format!("{}", 300 * MIB);
        let stat = format!("anon 7\ninactive_file {}\nactive_file {MIB}\n", 99 * MIB);
        let version_2 = |limit: String| {
            facts(&[
                ("proc/self/cgroup", "0::/a/b\n".to_owned()),
                ("sys/fs/cgroup/a/b/memory.max", "max\n".to_owned()),
                ("sys/fs/cgroup/a/memory.max", limit),
                ("sys/fs/cgroup/a/memory.current", used.clone()),
                ("sys/fs/cgroup/a/memory.stat", stat.clone()),
            ])
        };
        let limited = version_2(format!("{}\n", 1024 * MIB));
        assert_eq!(limited.available, Some(Bytes::from_mib(1024 - 300 + 100)));
        assert_eq!(limited.group_limit, Some(Bytes::from_mib(1024)));
        assert_eq!(limited.total, unlimited.total);
        assert_eq!(version_2("max\n".to_owned()), unlimited);
        let version_1 = |limit: u64| {
            facts(&[
                ("proc/self/cgroup", "4:memory:/a\n0::/\n".to_owned()),
                ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", limit.to_string()),
                ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", used.clone()),
                ("sys/fs/cgroup/memory/a/memory.stat", stat.replace("\n", "\ntotal_")),
            ])
        };
        assert_eq!(version_1(1024 * MIB), limited);
        assert_eq!(version_1(9_223_372_036_854_771_712), unlimited);
    }

    #[test]
    fn unparsable_values_are_unknown() {
        assert_eq!(
            MemoryFacts::parse("MemTotal: many kB\nSwapTotal: 1 kB"),
            MemoryFacts::default()
        );
    }

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /data rw - xfs /dev/nvme0n1 rw
24 22 0:22 / /data rw - btrfs /dev/nvme1n1 rw
25 22 0:23 / /data/my\\040runs rw master:2 - tmpfs tmpfs rw
broken line
";

    #[test]
    fn nearest_mount_contains_the_path() {
        let of = |path: &str| mount_of(MOUNTS, Path::new(path)).unwrap().file_system;
        assert_eq!(of("/home"), "ext4");
        assert_eq!(of("/database"), "ext4");
        assert_eq!(of("/data/my runs/1"), "tmpfs");
        assert_eq!(of("/data/x"), "btrfs", "a later mount hides an earlier one");
        assert_eq!(mount_of("", Path::new("/")), None);
    }

    #[test]
    fn missing_path_is_on_the_file_system_of_its_parent() {
        let root = FsRoot::this_machine();
        let there = DiskFacts::read(&root, Path::new("/tmp")).unwrap();
        let later = DiskFacts::read(&root, Path::new("/tmp/none/such")).unwrap();
        assert_eq!(there.total, later.total);
        assert_eq!(there.file_system, later.file_system);
        assert!(there.total >= there.free);
    }
}
