//! Data directories outside the run's directory, for servers whose user cannot reach it.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use super::ServerError;
use super::error::system;
use super::private_dir::{PREFIX, create_private_dir, is_own_dir, remove_dir_if_exists};

/// Name of the servers' directory, or of the link to it, in the run's data directory.
pub(super) const SERVERS: &str = "servers";

/// Parent of external directories; unlike `/tmp` on many systems, it is on disk.
pub(super) const EXTERNAL_BASE: &str = "/var/tmp";

/// The file that names the run of a directory, for users and for later sessions.
const RUN_FILE: &str = "run.txt";
const RUN_FILE_TEXT: &str = "Servers of the run in ";

/// Creates a directory for the servers of the run with this data directory, and `link` to it.
pub(super) fn create(data: &Path, link: &Path) -> Result<PathBuf, ServerError> {
    let base = Path::new(EXTERNAL_BASE);
    let external = create_private_dir(base, "").map_err(system("creating a directory in", base))?;
    // The link first: without the file, no session considers the directory an orphan.
    std::os::unix::fs::symlink(&external, link)
        .and_then(|()| name_run(&external, data))
        .map_err(system("creating the directory", &external))?;
    Ok(external)
}

/// Whether the path is one that [`create`] returns.
pub(super) fn is_external(path: &Path) -> bool {
    let name = path.file_name().map(OsStr::as_encoded_bytes);
    path.parent() == Some(Path::new(EXTERNAL_BASE))
        && name.is_some_and(|name| name.starts_with(PREFIX.as_bytes()))
}

/// The directory outside the run's directory that has the data of its servers; `None` if there is none.
#[must_use]
pub fn external_servers(data: &Path) -> Option<PathBuf> {
    let root = std::fs::read_link(data.join(SERVERS)).ok()?;
    (is_external(&root) && is_own_dir(&root)).then_some(root)
}

/// The data directory of the run that an external directory belongs to; `None` if dbdyno was killed
/// before it stored that, and nothing else is in the directory.
///
/// # Errors
/// The directory has content but does not name its run.
pub(super) fn run_of(external: &Path) -> io::Result<Option<PathBuf>> {
    match named_run(external) {
        None if std::fs::read_dir(external)?.next().is_some() => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("it has no {RUN_FILE} with the name of its run"),
        )),
        named => Ok(named),
    }
}

fn named_run(external: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string(external.join(RUN_FILE)).ok()?;
    let data = text.strip_prefix(RUN_FILE_TEXT)?.strip_suffix('\n')?;
    Some(PathBuf::from(data))
}

/// Stores which run an external directory belongs to.
pub(super) fn name_run(external: &Path, data: &Path) -> io::Result<()> {
    let text = format!("{RUN_FILE_TEXT}{}\n", data.display());
    std::fs::write(external.join(RUN_FILE), text)
}

/// Removes the directories of runs that no longer exist: removing a run's directory removes the link
/// only. Directories that a process works in are kept; failures are ignored.
pub(super) fn remove_orphans() {
    let Ok(entries) = std::fs::read_dir(EXTERNAL_BASE) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if is_external(&path) && is_own_dir(&path) && is_orphan(&path) && !is_in_use(&path) {
            let _ = remove_dir_if_exists(&path);
        }
    }
}

fn is_orphan(external: &Path) -> bool {
    let Some(data) = named_run(external) else { return false };
    match std::fs::read_link(data.join(SERVERS)) {
        Ok(linked) => linked != external,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn is_in_use(external: &Path) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return true };
    // As the kernel gives working directories.
    let Ok(external) = external.canonicalize() else { return true };
    processes.flatten().any(|process| {
        std::fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(&external))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unlinked_unused_directories_are_removed() {
        let run = tempfile::tempdir().unwrap();
        let data = run.path().join("out/data");
        std::fs::create_dir_all(&data).unwrap();
        let external = create(&data, &data.join(SERVERS)).unwrap();
        std::fs::create_dir_all(external.join("a/data")).unwrap();
        remove_orphans();
        assert!(external.join("a/data").exists());

        std::fs::remove_dir_all(run.path().join("out")).unwrap();
        let mut worker = std::process::Command::new("sleep")
            .arg("60")
            .current_dir(external.join("a/data"))
            .spawn()
            .unwrap();
        remove_orphans();
        assert!(external.exists(), "a process works in it");
        let alias = run.path().join("alias");
        std::os::unix::fs::symlink(EXTERNAL_BASE, &alias).unwrap();
        assert!(is_in_use(&alias.join(external.file_name().unwrap())));
        worker.kill().unwrap();
        worker.wait().unwrap();
        remove_orphans();
        assert!(!external.exists());
    }
}
