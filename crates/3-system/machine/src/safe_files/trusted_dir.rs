use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, chmodat, fstat, mkdirat, openat, readlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::SafeDir;
use crate::safe_files::is_private;

/// The path of a directory that another user could replace or write to.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the directory {}: {} {reason}", .path.display(), .component.display())]
pub struct UntrustedDir {
    pub path: PathBuf,
    /// The component of its path that is refused; symbolic links are resolved.
    pub component: PathBuf,
    pub reason: Untrusted,
}

/// Why a component of a path is not trusted.
#[derive(Debug)]
pub enum Untrusted {
    /// Its owner is neither root nor the effective user.
    Owner { uid: u32, mode: u32 },
    /// Users other than its owner can write to it.
    Writable { uid: u32, mode: u32 },
    /// It is a symbolic link of another user, which could lead elsewhere.
    Link { uid: u32 },
    /// It is not a directory, or cannot be opened or created.
    Io(io::Error),
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner { uid, mode } => write!(
                f,
                "belongs to user {uid} (mode {mode:04o}), who could replace its files, and dbdyno \
                 runs as user {}: use a directory of that user, or change the owner with `chown`",
                geteuid().as_raw()
            ),
            Self::Writable { uid, mode } => write!(
                f,
                "has mode {mode:04o} (owner: user {uid}), with which other users could replace \
                 its files: remove the permission with `chmod go-w`, or use another directory"
            ),
            Self::Link { uid } => {
                write!(f, "is a symbolic link of another user ({uid}), which is not followed")
            }
            Self::Io(error) => write!(f, "cannot be opened or created: {error}"),
        }
    }
}

impl From<Errno> for Untrusted {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

impl SafeDir {
    /// Opens a directory that dbdyno trusts; `None` if it does not exist.
    ///
    /// Every component from `/` belongs to root or to the effective user, and nobody else can write
    /// to it. Components before the last one may be sticky, as `/tmp` is, because others can
    /// neither rename nor remove what is in them. Symbolic links are followed if they belong to
    /// root or to the effective user.
    pub fn open_trusted(path: &Path) -> Result<Option<Self>, UntrustedDir> {
        match trusted(path, Rules::Trusted(None)) {
            Err(UntrustedDir { reason: Untrusted::Io(error), .. })
                if error.kind() == io::ErrorKind::NotFound =>
            {
                Ok(None)
            }
            opened => opened.map(Some),
        }
    }

    /// Opens a directory that dbdyno trusts, as [`Self::open_trusted`]. Creates missing components
    /// with `mode`, regardless of umask: 0700, or 0755 if servers of other users read them.
    pub fn create_trusted(path: &Path, mode: u32) -> Result<Self, UntrustedDir> {
        trusted(path, Rules::Trusted(Some(Mode::from_raw_mode(mode))))
    }

    /// Opens a directory that the user named for output, whoever else may write to it, and creates missing components. A
    /// symbolic link of another user is not followed, wherever in the path it is.
    pub fn create_for_output(path: &Path) -> Result<Self, UntrustedDir> {
        trusted(path, Rules::Output { create: true })
    }

    /// As [`Self::create_for_output`], of a directory that exists.
    pub fn open_for_output(path: &Path) -> Result<Self, UntrustedDir> {
        trusted(path, Rules::Output { create: false })
    }

    /// Fails if a component of a path is a symbolic link of another user. The path need not exist.
    pub fn check_links(path: &Path) -> Result<(), UntrustedDir> {
        match Self::open_for_output(path) {
            Err(error @ UntrustedDir { reason: Untrusted::Link { .. }, .. }) => Err(error),
            // Whatever else is wrong is said by whoever uses the path.
            _ => Ok(()),
        }
    }
}

/// Which directories are accepted, and whether missing ones are created.
#[derive(Clone, Copy)]
enum Rules {
    /// Those that nobody else can change; created with this mode.
    Trusted(Option<Mode>),
    /// All that are reached without a link of another user.
    Output { create: bool },
}

fn trusted(path: &Path, rules: Rules) -> Result<SafeDir, UntrustedDir> {
    let mut at = PathBuf::from("/");
    walk(path, rules, &mut at).map(SafeDir::from).map_err(|reason| UntrustedDir {
        path: path.to_owned(),
        component: at,
        reason,
    })
}

/// More symbolic links than this are a loop, as for the kernel.
const MOST_LINKS: usize = 40;

/// Goes from `/` to a directory, checking each component. `at` is where the walk is.
fn walk(path: &Path, rules: Rules, at: &mut PathBuf) -> Result<OwnedFd, Untrusted> {
    let absolute = std::path::absolute(path).map_err(Untrusted::Io)?;
    let mut left = VecDeque::from(names(&absolute));
    let mut links = 0;
    let mut dir = openat(CWD, "/", PLACE, Mode::empty())?;
    rules.check(&dir, &fstat(&dir)?, true)?;
    while let Some(name) = left.pop_front() {
        at.push(&name);
        let next = open_or_create(&dir, &name, rules)?;
        let stat = fstat(&next)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            links += 1;
            if links > MOST_LINKS {
                return Err(Errno::LOOP.into());
            }
            rules.check_link(&stat)?;
            let target = readlinkat(&next, "", Vec::new())?;
            let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
            at.pop();
            if target.is_absolute() {
                dir = openat(CWD, "/", PLACE, Mode::empty())?;
                *at = PathBuf::from("/");
            }
            for name in names(&target).into_iter().rev() {
                left.push_front(name);
            }
            continue;
        }
        if name == ".." {
            // Links are resolved, so that `at` is the real path.
            at.pop();
            at.pop();
        }
        rules.check(&next, &stat, true)?;
        dir = next;
    }
    rules.check(&dir, &fstat(&dir)?, false)?;
    Ok(dir)
}

impl Rules {
    fn check(self, dir: &OwnedFd, stat: &Stat, may_be_sticky: bool) -> Result<(), Untrusted> {
        match self {
            Self::Trusted(_) => check(dir, stat, may_be_sticky),
            Self::Output { .. } => match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => Ok(()),
                _ => Err(Errno::NOTDIR.into()),
            },
        }
    }

    fn check_link(self, stat: &Stat) -> Result<(), Untrusted> {
        match self {
            Self::Trusted(_) => check_owner(stat),
            Self::Output { .. } if [0, geteuid().as_raw()].contains(&stat.st_uid) => Ok(()),
            Self::Output { .. } => Err(Untrusted::Link { uid: stat.st_uid }),
        }
    }
}

/// Opens a place, or a symbolic link itself, without any access to its content.
const PLACE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn names(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.collect()
}

fn open_or_create(dir: &OwnedFd, name: &OsStr, rules: Rules) -> rustix::io::Result<OwnedFd> {
    let open = || openat(dir, name, PLACE, Mode::empty());
    let mode = match (open(), rules) {
        (Err(Errno::NOENT), Rules::Trusted(Some(mode))) => Some(mode),
        // As the umask says.
        (Err(Errno::NOENT), Rules::Output { create: true }) => None,
        (opened, _) => return opened,
    };
    match mkdirat(dir, name, if mode.is_some() { Mode::RWXU } else { Mode::from_raw_mode(0o777) }) {
        Ok(()) => {
            if let Some(mode) = mode {
                // The trusted directory, or its sticky bit, keeps others from replacing this one.
                chmodat(dir, name, mode, AtFlags::empty())?;
            }
        }
        // Created concurrently.
        Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    open()
}

fn check_owner(stat: &Stat) -> Result<(), Untrusted> {
    match stat.st_uid {
        0 => Ok(()),
        uid if uid == geteuid().as_raw() => Ok(()),
        uid => Err(Untrusted::Owner { uid, mode: stat.st_mode & 0o7777 }),
    }
}

/// Checks a directory; `passed` if it is on the way to the last one.
fn check(dir: &OwnedFd, stat: &Stat, passed: bool) -> Result<(), Untrusted> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(Errno::NOTDIR.into());
    }
    check_owner(stat)?;
    let mode = Mode::from_raw_mode(stat.st_mode);
    let sticky = passed && mode.contains(Mode::SVTX);
    let by_others = mode.contains(Mode::WOTH);
    let by_group = mode.contains(Mode::WGRP) && (by_others || !is_private(dir, stat.st_gid));
    if (by_others || by_group) && !sticky {
        return Err(Untrusted::Writable { uid: stat.st_uid, mode: stat.st_mode & 0o7777 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn missing_components_are_created_with_the_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        assert!(SafeDir::open_trusted(&path).unwrap().is_none());
        SafeDir::create_trusted(&path, 0o755).unwrap();
        assert_eq!((mode(&path), mode(&dir.path().join("a"))), (0o755, 0o755));
        assert!(SafeDir::open_trusted(&path).unwrap().is_some());
        SafeDir::create_trusted(&path.join("c"), 0o700).unwrap();
        assert_eq!(mode(&path.join("c")), 0o700);
    }

    #[test]
    fn directories_that_others_can_write_to_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (open, inner) = (dir.path().join("open"), dir.path().join("open/inner"));
        fs::create_dir_all(&inner).unwrap();
        chmod(&open, 0o777);
        for path in [&open, &inner] {
            let error = SafeDir::open_trusted(path).unwrap_err();
            assert!(matches!(error.reason, Untrusted::Writable { mode: 0o777, .. }));
            assert_eq!(error.component, open.canonicalize().unwrap());
        }
        // Others cannot replace what is in a sticky directory, but they can add to it.
        chmod(&open, 0o1777);
        assert!(SafeDir::open_trusted(&open).is_err());
        assert!(SafeDir::open_trusted(&inner).unwrap().is_some());
    }

    #[test]
    fn links_are_followed_and_their_targets_checked() {
        let dir = tempfile::tempdir().unwrap();
        let (real, closed) = (dir.path().join("real"), dir.path().join("real/closed"));
        fs::create_dir_all(&closed).unwrap();
        symlink("real/../real", dir.path().join("link")).unwrap();
        symlink(&closed, dir.path().join("absolute")).unwrap();
        symlink("loop", dir.path().join("loop")).unwrap();
        for path in ["link/closed", "absolute", "link/./closed/../closed", "link/new"] {
            SafeDir::create_trusted(&dir.path().join(path), 0o700).unwrap();
        }
        assert!(real.join("new").is_dir());
        assert!(SafeDir::open_trusted(&dir.path().join("loop")).is_err());
        chmod(&closed, 0o777);
        for path in ["link/closed", "absolute"] {
            let error = SafeDir::open_trusted(&dir.path().join(path)).unwrap_err();
            assert_eq!(error.component, closed.canonicalize().unwrap());
        }
        fs::write(real.join("file"), "").unwrap();
        let error = SafeDir::create_trusted(&real.join("file"), 0o700).unwrap_err();
        assert!(matches!(error.reason, Untrusted::Io(_)), "{error}");
    }

    #[test]
    fn directories_and_links_of_another_user_are_refused() {
        if !geteuid().is_root() {
            return dbdyno_fuzz::skip("only root can give files away");
        }
        let dir = tempfile::tempdir().unwrap();
        let theirs = dir.path().join("theirs");
        fs::create_dir_all(theirs.join("inner")).unwrap();
        fs::set_permissions(&theirs, fs::Permissions::from_mode(0o755)).unwrap();
        chown(&theirs, Some(65534), Some(65534)).unwrap();
        for path in [theirs.clone(), theirs.join("inner"), theirs.join("new")] {
            let error = SafeDir::create_trusted(&path, 0o700).unwrap_err();
            assert!(matches!(error.reason, Untrusted::Owner { uid: 65534, .. }));
            let text = error.to_string();
            assert!(text.contains("belongs to user 65534 (mode 0755)"), "{text}");
        }
        assert!(!theirs.join("new").exists());
        let link = dir.path().join("link");
        symlink("/var", &link).unwrap();
        assert!(SafeDir::open_trusted(&link).unwrap().is_some());
        std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
        assert!(SafeDir::open_trusted(&link).is_err());
    }
}
