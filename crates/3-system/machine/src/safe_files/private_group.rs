use std::fs;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::getxattr;
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

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
