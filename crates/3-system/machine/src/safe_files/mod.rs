//! Files that less privileged processes can write, and directories that dbdyno trusts.
//!
//! What another user could have written is data: it is opened by descriptor beneath a [`SafeDir`],
//! no symbolic link is followed in any component of the path, only regular files are read, and only
//! up to a size limit.
//!
//! What dbdyno executes or relies on is in a trusted directory: every component of its path belongs
//! to root or to the effective user, and no other user can write to it.

mod safe_dir;
mod trusted_dir;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use dbdyno_units::Bytes;
use rustix::fs::{Mode, getxattr};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, umask};

pub use safe_dir::{SafeDir, WalkEntry, check_regular};
pub use trusted_dir::{Untrusted, UntrustedDir};

/// Why a file of another user is not used. The inner error of an [`io::Error`] of kind
/// `InvalidData`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A component of the path is a symbolic link.
    #[error("its path contains a symbolic link, and links of other users are not followed")]
    Link,
    /// The path is absolute, or contains `..`.
    #[error("its path leads out of the directory")]
    Outside,
    /// A directory, a pipe, a socket or a device.
    #[error("it is not a regular file")]
    NotRegular,
    /// Larger than the limit.
    #[error("it is larger than {0}, the limit for such files")]
    TooLarge(Bytes),
    /// A directory tree with more entries than the limit.
    #[error("it contains more than {0} files, the limit for such directories")]
    TooMany(usize),
    /// A directory tree deeper than the limit.
    #[error("its directories are nested deeper than {0} levels, the limit for such directories")]
    TooDeep(usize),
}

/// Replaces a file whose directory belongs to dbdyno. After a kill, a crash of the system or on a full disk there
/// is the old one or the new one; what a link of its name leads to is not changed.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = Path::new(&new);
    let write = || {
        match fs::remove_file(new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = File::options().write(true).create_new(true).open(new)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(new, path)?;
        path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    };
    write().inspect_err(|_| {
        // What is left of it would only take space. The first error is the one to report.
        let _ = fs::remove_file(new);
    })
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        Self::new(io::ErrorKind::InvalidData, refusal)
    }
}

/// If this process is root, keeps other users from writing to the files and directories that it and
/// its children create, whatever umask it was started with. Call it before the first thread starts.
pub fn restrict_umask_of_root() {
    if geteuid().is_root() {
        let closed = Mode::WGRP | Mode::WOTH;
        umask(umask(closed) | closed);
    }
}

/// Whether nobody but the effective user is in the group that owns a directory. Many distributions
/// give each user a group of their own and a umask of 002, so that everything is writable by it.
pub(super) fn is_private(dir: impl AsFd, gid: u32) -> bool {
    gid == getegid().as_raw()
        && !has_acl(dir)
        && nobody_else_in(
            &fs::read_to_string("/etc/passwd").unwrap_or_default(),
            &fs::read_to_string("/etc/group").unwrap_or_default(),
            geteuid().as_raw(),
            gid,
        )
}

/// Whether the permissions of the group may be those of other users or groups.
fn has_acl(dir: impl AsFd) -> bool {
    // The descriptor may be one that only denotes a place, so that fgetxattr fails.
    let path = format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd());
    let acl = getxattr(path, "system.posix_acl_access", &mut [0_u8; 0]);
    !matches!(acl, Err(Errno::NODATA | Errno::OPNOTSUPP))
}

/// Unknown users and groups, such as those of a directory service, may have members.
fn nobody_else_in(passwd: &str, group: &str, uid: u32, gid: u32) -> bool {
    let number = |field: Option<&&str>| field.and_then(|field| field.parse::<u32>().ok());
    let users: Vec<Vec<&str>> = passwd.lines().map(|line| line.split(':').collect()).collect();
    let Some(own) = users.iter().find(|user| number(user.get(2)) == Some(uid)) else {
        return false;
    };
    let primary = users.iter().filter(|user| number(user.get(3)) == Some(gid));
    if primary.into_iter().any(|user| number(user.get(2)) != Some(uid)) {
        return false;
    }
    let groups = group.lines().map(|line| line.split(':').collect::<Vec<&str>>());
    let mut same = groups.filter(|group| number(group.get(2)) == Some(gid)).peekable();
    same.peek().is_some()
        && same.all(|group| {
            let members = group.get(3).copied().unwrap_or_default().split(',');
            members.filter(|name| !name.is_empty()).all(|name| name == own[0])
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_is_private_only_without_other_members() {
        let passwd =
            "root:x:0:0::/:/bin/sh\nann:x:1000:1000::/:/bin/sh\nbob:x:1001:50::/:/bin/sh\n";
        let private = |passwd: &str, group: &str| nobody_else_in(passwd, group, 1000, 1000);
        assert!(private(passwd, "ann:x:1000:\n"));
        assert!(private(passwd, "ann:x:1000:ann\n"));
        assert!(!private(passwd, "ann:x:1000:ann,bob\n"));
        assert!(!private(passwd, "other:x:50:\n"));
        assert!(!private(&passwd.replace(":50:", ":1000:"), "ann:x:1000:\n"));
        assert!(!private("root:x:0:0::/:/bin/sh\n", "ann:x:1000:\n"));
    }
}
