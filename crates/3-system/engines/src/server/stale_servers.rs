//! Cleanup after killed sessions: kills their servers and removes their sockets.

use std::fs::{OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::OFlags;

use super::ServerError;
use super::error::system;
use super::private_dir::{PREFIX, is_own_dir, is_world_traversable, remove_dir_if_exists};
use super::registry_file::{FILE, INCOMPLETE_SUFFIX, LOCK, RegistryFile, boot_id};
use super::user::is_root;

/// Maximum length of the path of a socket directory: a socket's whole path is limited to 107 bytes.
const MAX_BASE_LENGTH: usize = 48;

/// How long to wait for another session that cleans up after the same run.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Age at which a directory without `owner.json` is removed: creating one takes milliseconds.
const ABANDONED_AFTER: Duration = Duration::from_secs(600);

/// The directory for new socket directories.
pub(super) fn socket_base() -> PathBuf {
    socket_bases().swap_remove(0)
}

/// Kills the servers that killed sessions of this user left running, and removes their sockets.
/// `data` is the data directory of the run that is about to start.
///
/// # Errors
/// A process of dbdyno still uses the servers of this run, or a server cannot be killed.
pub(super) fn clean_up(data: &Path) -> Result<(), ServerError> {
    socket_bases().iter().try_for_each(|base| clean_up_in(base, data))
}

/// Directories that socket directories may be in, the one for new ones first.
fn socket_bases() -> Vec<PathBuf> {
    let fallback = PathBuf::from("/tmp");
    let configured = std::env::temp_dir();
    let usable = configured.is_absolute()
        && configured.as_os_str().len() <= MAX_BASE_LENGTH
        && (!is_root() || is_world_traversable(&configured).unwrap_or(false));
    match usable && configured != fallback {
        true => vec![configured, fallback],
        false => vec![fallback],
    }
}

fn clean_up_in(base: &Path, data: &Path) -> Result<(), ServerError> {
    let Ok(entries) = std::fs::read_dir(base) else { return Ok(()) };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
        let directory = entry.path();
        if !is_own_dir(&directory) {
            continue;
        }
        if name.ends_with(INCOMPLETE_SUFFIX) {
            remove_if_abandoned(&directory);
        } else if let Some(file) = RegistryFile::read(&directory) {
            clean_up_session(&directory, &file, data)
                .map_err(system("cleaning up after an earlier session in", &directory))?;
        }
    }
    Ok(())
}

fn clean_up_session(directory: &Path, file: &RegistryFile, data: &Path) -> io::Result<()> {
    let lock = match OpenOptions::new()
        .write(true)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(directory.join(LOCK))
    {
        Ok(lock) => lock,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let waiting = Instant::now();
    loop {
        match lock.try_lock() {
            Ok(()) => break,
            // The owner of another run lives, or another session cleans up after it.
            Err(TryLockError::WouldBlock) if file.data != data => return Ok(()),
            Err(TryLockError::WouldBlock) if waiting.elapsed() < LOCK_TIMEOUT => {
                std::thread::sleep(LOCK_POLL_INTERVAL);
            }
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::new(
                    io::ErrorKind::WouldBlock,
                    format!(
                        "process {} still uses the servers of {}",
                        file.owner.identity.pid,
                        data.display()
                    ),
                ));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    // The file may have changed while we waited for the lock.
    let Some(file) = RegistryFile::read(directory) else { return Ok(()) };
    if file.boot == boot_id()? {
        for server in &file.servers {
            server.process.kill_all(&server.data)?;
        }
    }
    remove_dir_if_exists(directory)
}

/// Removes a directory whose owner was killed while creating it.
fn remove_if_abandoned(directory: &Path) {
    let age = std::fs::metadata(directory)
        .and_then(|metadata| metadata.modified())
        .map(|time| SystemTime::now().duration_since(time).unwrap_or_default());
    if age.is_ok_and(|age| age > ABANDONED_AFTER) {
        // If it has other content, it is not such a directory, and stays.
        let _ = std::fs::remove_file(directory.join(LOCK));
        let _ = std::fs::remove_file(directory.join(FILE));
        let _ = std::fs::remove_dir(directory);
    }
}

#[cfg(test)]
mod tests {
    use super::super::process::tests::sleeper;
    use super::super::process_registry::ProcessRegistry;
    use super::super::process_registry::tests::abandoned;
    use super::*;

    #[test]
    fn only_servers_of_killed_sessions_are_killed() {
        let base = tempfile::tempdir().unwrap();
        let (data, other_data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (mut left, left_process) = sleeper(data.path());
        let (mut other, other_process) = sleeper(other_data.path());
        // The same id and program, but an earlier start.
        let mut earlier = other_process.clone();
        earlier.identity.start_ticks -= 1;
        let directory = abandoned(base.path(), Path::new("/run/a"), |registry| {
            registry.add(&left_process, data.path()).unwrap();
            registry.add(&earlier, Path::new("/another")).unwrap();
            registry.create_socket_dir("a", None).unwrap();
        });
        // Another run cleans up.
        let cleaned = clean_up_in(base.path(), Path::new("/run/b"));
        let killed = left.try_wait().unwrap().is_some() || !left_process.identity.is_alive();
        let survived = other_process.identity.is_alive();
        for child in [&mut left, &mut other] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        cleaned.unwrap();
        assert!(killed, "the server still runs");
        assert!(survived, "another process was killed");
        assert!(!directory.exists());
    }

    #[test]
    fn live_sessions_and_other_directories_are_kept() {
        let base = tempfile::tempdir().unwrap();
        let registry = ProcessRegistry::create(base.path(), Path::new("/run/a")).unwrap();
        let results = base.path().join("dbdyno-results");
        std::fs::create_dir(&results).unwrap();
        std::fs::write(results.join("run.sqlite"), "content").unwrap();
        clean_up_in(base.path(), Path::new("/run/b")).unwrap();
        assert!(registry.directory().exists() && results.join("run.sqlite").exists());
        let directory = registry.directory().to_owned();
        drop(registry);
        assert!(!directory.exists());
    }

    #[test]
    fn links_are_not_followed() {
        let base = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let directory = abandoned(other.path(), Path::new("/run/a"), |_| {});
        let link = base.path().join("dbdyno-abcdef");
        std::os::unix::fs::symlink(&directory, &link).unwrap();
        clean_up_in(base.path(), Path::new("/run/b")).unwrap();
        assert!(directory.exists() && std::fs::symlink_metadata(&link).is_ok());
    }

    #[test]
    fn directories_of_other_users_are_ignored() {
        if !is_root() {
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let directory = abandoned(base.path(), Path::new("/run/a"), |_| {});
        std::os::unix::fs::lchown(&directory, Some(65_534), Some(65_534)).unwrap();
        clean_up_in(base.path(), Path::new("/run/b")).unwrap();
        assert!(directory.exists());
    }
}
