//! Whether a run directory can be written to: somebody else may have made it, with links in it.

use std::fs::{Metadata, read_dir, symlink_metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use crate::directory::RunDirectory;
use crate::error::ResultsError;

/// Why a file or directory of a run is not written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOwn {
    /// A symbolic link.
    #[error("is a symbolic link, and dbdyno writes to nothing that a link leads to: remove it")]
    Link,
    /// It belongs to another user.
    #[error(
        "belongs to user {owner}, and dbdyno runs as user {}: run it as that user, or copy the run \
         directory",
        geteuid().as_raw()
    )]
    Owner {
        /// The user ID of its owner.
        owner: u32,
    },
    /// All users can write to it.
    #[error("has mode {0:04o}, with which all users can write to it: use `chmod o-w`")]
    Writable(u32),
    /// A directory where a file should be, or the reverse, or neither.
    #[error("is not a {0}: remove it")]
    Kind(&'static str),
}

impl RunDirectory {
    /// Checks that what dbdyno writes to belongs to this user, and that no symbolic link leads
    /// elsewhere. What does not exist is not checked.
    ///
    /// The link `data/servers` is checked by the code that opens it. The inside of the servers' own
    /// directories, which may belong to their user, is not checked.
    ///
    /// # Errors
    /// Names the file or directory and what to do, or something cannot be read.
    pub fn check_own(&self) -> Result<(), ResultsError> {
        // The path to it may contain links, which are the user's own.
        let path = self.path();
        let io = |source| ResultsError::Io { path: path.to_owned(), source };
        check_directory(path, &path.metadata().map_err(io)?)?;
        for name in ["", "-wal", "-shm", "-journal", ".new", ".new-journal", ".new-wal", ".new-shm"]
        {
            check_file(&path.join(format!("run.sqlite{name}")))?;
        }
        check_file(&self.lock())?;
        check_tree(&self.logs(), 0, None)?;
        // data/NAME, data/servers/NAME and what is in them.
        check_tree(&self.data(), 2, Some(&self.data().join("servers")))
    }
}

/// Checks a directory and what is in it, and the same of directories that are up to `levels` deeper.
fn check_tree(path: &Path, levels: u32, permitted: Option<&Path>) -> Result<(), ResultsError> {
    let Some(metadata) = stat(path)? else { return Ok(()) };
    check_directory(path, &metadata)?;
    let io = |source| ResultsError::Io { path: path.to_owned(), source };
    for entry in read_dir(path).map_err(io)? {
        let path = entry.map_err(io)?.path();
        // A process that is still ending may remove its files.
        let Some(metadata) = stat(&path)? else { continue };
        if metadata.is_symlink() && permitted != Some(&path) {
            return Err(refused(&path, NotOwn::Link));
        }
        if metadata.is_dir() && levels > 0 {
            check_tree(&path, levels - 1, None)?;
        }
    }
    Ok(())
}

fn check_directory(path: &Path, metadata: &Metadata) -> Result<(), ResultsError> {
    if metadata.is_symlink() {
        return Err(refused(path, NotOwn::Link));
    }
    if !metadata.is_dir() {
        return Err(refused(path, NotOwn::Kind("directory")));
    }
    if metadata.mode() & 0o002 != 0 {
        return Err(refused(path, NotOwn::Writable(metadata.mode() & 0o7777)));
    }
    check_owner(path, metadata)
}

fn check_file(path: &Path) -> Result<(), ResultsError> {
    match stat(path)? {
        None => Ok(()),
        Some(metadata) if metadata.is_symlink() => Err(refused(path, NotOwn::Link)),
        Some(metadata) if !metadata.is_file() => Err(refused(path, NotOwn::Kind("regular file"))),
        Some(metadata) => check_owner(path, &metadata),
    }
}

fn check_owner(path: &Path, metadata: &Metadata) -> Result<(), ResultsError> {
    match metadata.uid() {
        owner if owner == geteuid().as_raw() => Ok(()),
        owner => Err(refused(path, NotOwn::Owner { owner })),
    }
}

/// The metadata of a file or link; `None` if it does not exist.
fn stat(path: &Path) -> Result<Option<Metadata>, ResultsError> {
    match symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ResultsError::Io { path: path.to_owned(), source }),
    }
}

fn refused(path: &Path, why: NotOwn) -> ResultsError {
    ResultsError::NotOwn { path: PathBuf::from(path), why }
}
