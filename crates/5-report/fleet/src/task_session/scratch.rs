//! The directories of attempts on a local disk of a node.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use dbdyno_results::{RunDirectory, RunReader};
use rustix::process::geteuid;

use super::TaskError;

/// The directory for runs on this node, private to this user. It has the node's name, because nodes that
/// boot from the network may share their disks.
pub(super) fn open(scratch: &Path, node: &str) -> Result<PathBuf, TaskError> {
    let own = scratch.join(format!("dbdyno-fleet-{}", geteuid().as_raw()));
    let of_node = own.join(node.replace('/', "_"));
    for path in [&own, &of_node] {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(source) if source.kind() != ErrorKind::AlreadyExists => {
                return Err(TaskError::Scratch { path: path.clone(), source });
            }
            _ => {}
        }
        // Others can write to the directory above: what is there already may be a trap.
        if fs::symlink_metadata(path).is_ok_and(|data| data.is_symlink()) {
            let source = io::Error::other("it is a symbolic link");
            return Err(TaskError::Scratch { path: path.clone(), source });
        }
        RunDirectory::at(path).check_own()?;
    }
    Ok(of_node)
}

/// Finds a run to continue: that in the directory, which has the latest measurements, or the first copy
/// that can be read. Returns whether there is one. Otherwise the directory does not exist.
pub(super) fn prepare_run(
    run: &Path,
    mut copies: impl Iterator<Item = PathBuf>,
) -> Result<bool, TaskError> {
    if RunReader::open(run).is_ok() {
        return Ok(true);
    }
    let at = |source| TaskError::Scratch { path: run.to_owned(), source };
    remove(run).map_err(at)?;
    let Some(copy) = copies.find(|copy| RunReader::open(copy).is_ok()) else { return Ok(false) };
    let directory = RunDirectory::at(run);
    for path in [run.to_owned(), directory.data(), directory.logs()] {
        DirBuilder::new().mode(0o700).create(path).map_err(at)?;
    }
    let from = RunDirectory::at(&copy).database();
    fs::copy(from, directory.database()).map_err(at)?;
    Ok(true)
}

/// Removes a run directory, if it exists.
pub(super) fn remove(run: &Path) -> io::Result<()> {
    match fs::remove_dir_all(run) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
