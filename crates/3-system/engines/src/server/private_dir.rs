//! dbdyno's directories in directories that other users can write to as well.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::user::is_root;

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

/// Creates a directory with this mode.
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

/// Removes a directory and its content, if it exists.
pub(super) fn remove_dir_if_exists(path: &Path) -> io::Result<()> {
    ignore_missing(std::fs::remove_dir_all(path))
}

/// Removes a file, if it exists.
pub(super) fn remove_file_if_exists(path: &Path) -> io::Result<()> {
    ignore_missing(std::fs::remove_file(path))
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
