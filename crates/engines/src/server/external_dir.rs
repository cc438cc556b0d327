//! Data of servers that cannot lie in its run's own directory.

use std::io;
use std::path::{Path, PathBuf};

use super::ServerError;
use super::error::system;
use super::process_registry::{self, is_our_directory, new_directory, remove_if_there};

/// Where data of servers lies when a run's own directory is closed to their user: like `/tmp`,
/// but on storage rather than in memory.
pub(super) const EXTERNAL_BASE: &str = "/var/tmp";

/// Tells people, and later sessions, which run the directory belongs to.
const RUN: &str = "run.txt";
const WORDS: &str = "Servers of the run in ";

/// Makes a directory for the servers of the run with this data directory, and `link` to it.
pub(super) fn make(data: &Path, link: &Path) -> Result<PathBuf, ServerError> {
    let elsewhere = Path::new(EXTERNAL_BASE);
    let home = new_directory(elsewhere, "").map_err(system("making a directory in", elsewhere))?;
    // The link first: without the file nobody takes the directory for an orphan.
    std::os::unix::fs::symlink(&home, link)
        .and_then(|()| std::fs::write(home.join(RUN), format!("{WORDS}{}\n", data.display())))
        .map_err(system("making the directory", &home))?;
    Ok(home)
}

/// Whether this is a directory that [`make`] made.
pub(super) fn is_one(home: &Path) -> bool {
    let named = home.file_name().map(std::ffi::OsStr::as_encoded_bytes);
    home.parent() == Some(Path::new(EXTERNAL_BASE))
        && named.is_some_and(|name| name.starts_with(process_registry::PREFIX.as_bytes()))
}

/// Removes the directories of runs that are gone: whoever removes a run's directory removes a link
/// only. What a server still works in stays. So does what cannot be removed: it is in nobody's way.
pub(super) fn remove_orphans() {
    let Ok(entries) = std::fs::read_dir(EXTERNAL_BASE) else { return };
    for entry in entries.flatten() {
        let home = entry.path();
        if is_one(&home) && is_our_directory(&home) && is_orphan(&home) && !is_worked_in(&home) {
            let _ = remove_if_there(&home);
        }
    }
}

fn is_orphan(home: &Path) -> bool {
    let Ok(text) = std::fs::read_to_string(home.join(RUN)) else { return false };
    let Some(data) = text.strip_prefix(WORDS).and_then(|text| text.strip_suffix('\n')) else {
        return false;
    };
    match std::fs::read_link(Path::new(data).join(super::server_dirs::SERVERS)) {
        Ok(linked) => linked != home,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn is_worked_in(home: &Path) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return true };
    processes.flatten().any(|process| {
        std::fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(home))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_no_run_links_to_is_removed() {
        let run = tempfile::tempdir().unwrap();
        let data = run.path().join("out/data");
        std::fs::create_dir_all(&data).unwrap();
        let link = data.join(super::super::server_dirs::SERVERS);
        let home = make(&data, &link).unwrap();
        std::fs::create_dir_all(home.join("a/data")).unwrap();
        remove_orphans();
        assert!(home.join("a/data").exists());

        std::fs::remove_dir_all(run.path().join("out")).unwrap();
        let mut worker = std::process::Command::new("sleep")
            .arg("60")
            .current_dir(home.join("a/data"))
            .spawn()
            .unwrap();
        remove_orphans();
        assert!(home.exists(), "somebody works in it");
        worker.kill().unwrap();
        worker.wait().unwrap();
        remove_orphans();
        assert!(!home.exists());
    }
}
