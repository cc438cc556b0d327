use std::path::{Path, PathBuf};

use dbdyno_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::FileSystemSpace;
use crate::fs_root::FsRoot;

/// The file system that holds a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskFacts {
    /// The path asked for.
    pub path: PathBuf,
    /// Its type: `ext4`, `xfs`, `tmpfs`.
    pub file_system: Option<String>,
    /// What is mounted there: a device, or whatever the file system calls itself.
    pub device: Option<String>,
    /// What an ordinary user may still fill.
    pub free: Bytes,
    /// All of it.
    pub total: Bytes,
}

impl DiskFacts {
    /// The file system that holds `path` now; `None` where no part of the path can be looked at.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        Self::read(&FsRoot::this_machine(), path)
    }

    /// `None` where no part of the path can be looked at.
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

/// The mount that holds `path`: of the longest mount points above it, the one mounted last,
/// which hides the others.
fn mount_of(mounts: &str, path: &Path) -> Option<Mount> {
    let mounts = mounts.lines().filter_map(|line| {
        // proc_pid_mountinfo(5): the fifth field is the mount point; after a field that is a
        // single dash come type and device.
        let (first, last) = line.split_once(" - ")?;
        let point = PathBuf::from(unescape(first.split(' ').nth(4)?));
        let mut last = last.split(' ');
        let file_system = last.next()?.to_owned();
        let device = unescape(last.next()?);
        path.starts_with(&point).then(|| (point.as_os_str().len(), Mount { file_system, device }))
    });
    // Of equal ones, max_by_key returns the last.
    mounts.max_by_key(|(length, _)| *length).map(|(_, mount)| mount)
}

/// The kernel writes blanks as `\040` and a backslash as `\134`.
fn unescape(text: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes
        .iter()
        .fold(text.to_owned(), |text, (escape, character)| text.replace(escape, character))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /data rw - xfs /dev/nvme0n1 rw
24 22 0:22 / /data rw - btrfs /dev/nvme1n1 rw
25 22 0:23 / /data/my\\040runs rw master:2 - tmpfs tmpfs rw
broken line
";

    #[test]
    fn the_nearest_mount_holds_a_path() {
        let of = |path: &str| mount_of(MOUNTS, Path::new(path)).unwrap().file_system;
        assert_eq!(of("/home"), "ext4");
        assert_eq!(of("/database"), "ext4");
        assert_eq!(of("/data/my runs/1"), "tmpfs");
        assert_eq!(of("/data/x"), "btrfs", "a later mount hides an earlier one");
        assert_eq!(mount_of("", Path::new("/")), None);
    }

    #[test]
    fn a_path_that_is_not_there_yet_lies_on_its_parents_disk() {
        let root = FsRoot::this_machine();
        let there = DiskFacts::read(&root, Path::new("/tmp")).unwrap();
        let later = DiskFacts::read(&root, Path::new("/tmp/none/such")).unwrap();
        assert_eq!(there.total, later.total);
        assert_eq!(there.file_system, later.file_system);
        assert!(there.total >= there.free);
    }
}
