use std::ffi::CString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Who a server runs as, where that is not who dbdyno runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerUser {
    pub(crate) uid: libc::uid_t,
    pub(crate) gid: libc::gid_t,
    /// All groups, as the kernel takes them.
    pub(crate) groups: Vec<libc::gid_t>,
}

impl ServerUser {
    /// The user called `name`, else `nobody`; none where dbdyno is not root and cannot change
    /// who it is, nor need to.
    ///
    /// # Errors
    /// There is neither such a user nor `nobody`.
    pub(crate) fn choose(name: &str) -> io::Result<Option<Self>> {
        if !we_are_root() {
            return Ok(None);
        }
        let found = Self::by_name(name).or_else(|| Self::by_name("nobody"));
        found.map(Some).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("neither a user {name} nor a user nobody, and a server must not be root"),
            )
        })
    }

    fn by_name(name: &str) -> Option<Self> {
        let name = CString::new(name).ok()?;
        let mut buffer = vec![0_u8; 16 << 10];
        // SAFETY: an all-zero passwd is a valid value of this plain C structure.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        // SAFETY: every pointer is to memory of ours that lives beyond the call, and the
        // buffer's length is its own.
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
        // SAFETY: `groups` has room for `count` entries.
        let status = unsafe {
            libc::getgrouplist(name.as_ptr(), entry.pw_gid, groups.as_mut_ptr(), &raw mut count)
        };
        if status < 0 {
            // In more groups than anybody should be: the first one will do.
            groups = vec![entry.pw_gid];
        } else {
            groups.truncate(count.cast_unsigned() as usize);
        }
        Some(Self { uid: entry.pw_uid, gid: entry.pw_gid, groups })
    }

    /// Gives a file or directory to this user.
    pub(crate) fn own(&self, path: &Path) -> io::Result<()> {
        std::os::unix::fs::lchown(path, Some(self.uid), Some(self.gid))
    }
}

/// Whether dbdyno may become another user.
pub(crate) fn we_are_root() -> bool {
    our_uid() == 0
}

/// Who dbdyno runs as.
pub(crate) fn our_uid() -> libc::uid_t {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether every user may pass through `path` and all that it lies in.
pub(crate) fn is_open_to_all(path: &Path) -> io::Result<bool> {
    let path = path.canonicalize()?;
    for directory in path.ancestors() {
        if directory.metadata()?.mode() & 0o001 == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}
