use std::path::{Path, PathBuf};

use dbdyno_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::FileSystemSpace;
use crate::fs_root::FsRoot;

/// The file system that contains a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskFacts {
    /// The requested path.
    pub path: PathBuf,
    /// The type: `ext4`, `xfs`, `tmpfs`.
    pub file_system: Option<String>,
    /// The source of the mount: a device, or a name chosen by the file system.
    pub device: Option<String>,
    /// Free space for unprivileged users.
    pub free: Bytes,
    /// Total size.
    pub total: Bytes,
}

impl DiskFacts {
    /// The file system that contains `path`; `None` if no ancestor of the path is accessible.
    #[must_use]
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
