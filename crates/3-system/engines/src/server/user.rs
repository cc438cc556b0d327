//! The user that servers run as, and directories of dbdyno where other users can write, too.

use std::ffi::CString;
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Gid, Uid};
use rustix::process::geteuid;
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

/// The user that a server runs as, if not the user of dbdyno itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerUser {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// All groups, the primary one included.
    groups: Vec<Gid>,
}

impl ServerUser {
    /// The user called `name`, else `nobody`; `None` unless dbdyno is root, which alone can and must
    /// change the user.
    pub(crate) fn choose(name: &str) -> io::Result<Option<Self>> {
        if !is_root() {
            return Ok(None);
        }
        let found = Self::by_name(name).or_else(|| Self::by_name("nobody"));
        found.map(Some).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!(
                    "neither user {name} nor user nobody exists, and a server must not run as root"
                ),
            )
        })
    }

    // Uses the C library, because names need not be in /etc/passwd (LDAP, systemd).
    fn by_name(name: &str) -> Option<Self> {
        let name = CString::new(name).ok()?;
        let mut buffer = vec![0_u8; 16 << 10];
        // SAFETY: an all-zero passwd is a valid value of this plain C structure.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        // SAFETY: all pointers are to memory owned by this function that outlives the call, and the
        // length is that of the buffer.
        let status = unsafe {
            libc::getpwnam_r(
                name.as_ptr(),
                &raw mut entry,
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                &raw mut found,
            )
        };
        if status != 0 || found.is_null() || entry.pw_uid == 0 {
            return None;
        }
        let mut groups = vec![0; 64];
        let mut count = 64;
        // SAFETY: `groups` has space for `count` entries.
        let status = unsafe {
            libc::getgrouplist(name.as_ptr(), entry.pw_gid, groups.as_mut_ptr(), &raw mut count)
        };
        if status < 0 {
            // More than 64 groups: the primary one is enough.
            groups = vec![entry.pw_gid];
        } else {
            groups.truncate(count.cast_unsigned() as usize);
        }
        let groups = groups.into_iter().map(Gid::from_raw).collect();
        Some(Self { uid: entry.pw_uid, gid: entry.pw_gid, groups })
    }

    /// Makes this user the owner of a file or directory.
    pub(crate) fn own(&self, path: &Path) -> io::Result<()> {
        std::os::unix::fs::lchown(path, Some(self.uid), Some(self.gid))
    }

    /// Switches the calling thread to this user; for use in a forked child, which has one thread
    /// only.
    pub(crate) fn assume(&self) -> io::Result<()> {
        set_thread_groups(&self.groups)?;
        set_thread_gid(Gid::from_raw(self.gid))?;
        Ok(set_thread_uid(Uid::from_raw(self.uid))?)
    }
}

/// Whether dbdyno can become another user.
pub(crate) fn is_root() -> bool {
    geteuid().is_root()
}

/// Prefix of the names of dbdyno's directories in `/tmp` and `/var/tmp`.
pub(super) const PREFIX: &str = "dbdyno-";

/// Creates a directory with a random name that only this user can list and, where servers run as
/// another user, all users can traverse.
pub(super) fn create_private_dir(base: &Path, suffix: &str) -> io::Result<PathBuf> {
    let mut builder = tempfile::Builder::new();
    let directory = builder.prefix(PREFIX).suffix(suffix).tempdir_in(base)?.keep();
    std::fs::set_permissions(&directory, Permissions::from_mode(traversable_mode()))?;
    Ok(directory)
}

pub(super) fn create_dir(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)
}

/// The mode of a directory that the servers' user must traverse to reach its own.
pub(super) fn traversable_mode() -> u32 {
    if is_root() { 0o711 } else { 0o700 }
}

/// Whether `path` is a directory of this user, and not a link, which another user could have placed.
pub(super) fn is_own_dir(path: &Path) -> bool {
    std::fs::symlink_metadata(path)
        .is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == geteuid().as_raw())
}

/// Whether all users can traverse `path` and its parents.
pub(super) fn is_world_traversable(path: &Path) -> io::Result<bool> {
    let path = path.canonicalize()?;
    for directory in path.ancestors() {
        if directory.metadata()?.mode() & 0o001 == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(super) fn remove_dir_if_exists(path: &Path) -> io::Result<()> {
    ignore_missing(std::fs::remove_dir_all(path))
}

pub(super) fn remove_file_if_exists(path: &Path) -> io::Result<()> {
    ignore_missing(std::fs::remove_file(path))
}

pub(super) fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
