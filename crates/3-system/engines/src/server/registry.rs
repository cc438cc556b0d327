//! The servers that each dbdyno has started, and cleanup after killed sessions.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::OFlags;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::ServerError;
use super::error::system;
use super::process::ServerProcess;
use super::user::{
    PREFIX, ServerUser, create_dir, create_private_dir, is_own_dir, is_root, is_world_traversable,
    remove_dir_if_exists,
};

/// The lock that the owner holds until it exits.
pub(super) const LOCK: &str = "lock";

pub(super) const FILE: &str = "owner.json";

/// Suffix of a directory that is still being created.
pub(super) const INCOMPLETE_SUFFIX: &str = ".new";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RegistryFile {
    /// Boot id: process ids are valid for one boot only.
    pub(super) boot: String,
    pub(super) owner: ServerProcess,
    /// The run's data directory.
    pub(super) data: PathBuf,
    pub(super) servers: Vec<RegisteredServer>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RegisteredServer {
    pub(super) process: ServerProcess,
    #[serde(rename = "home")]
    pub(super) data: PathBuf,
}

impl RegistryFile {
    /// Reads the file in `directory`; `None` if there is none, it is another user's, or not valid.
    pub(super) fn read(directory: &Path) -> Option<Self> {
        let file = directory.join(FILE);
        let metadata = std::fs::symlink_metadata(&file).ok()?;
        if !metadata.is_file() || metadata.uid() != geteuid().as_raw() {
            return None;
        }
        serde_json::from_slice(&std::fs::read(file).ok()?).ok()
    }

    /// Replaces the file in `directory`.
    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        let temporary = directory.join("owner.json.new");
        std::fs::write(&temporary, serde_json::to_vec_pretty(self)?)?;
        std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o600))?;
        std::fs::rename(temporary, directory.join(FILE))
    }
}

/// The id of the machine's current boot.
pub(super) fn boot_id() -> io::Result<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(id.trim().to_owned())
}

/// The servers that this dbdyno has started, and the private directory with their sockets. Dropping it
/// removes the directory.
///
/// A lock on a file in the directory shows whether the owner lives: the kernel releases it when the
/// owner exits, and unlike a process id it also works across containers that share the directory.
#[derive(Debug)]
pub(crate) struct ProcessRegistry {
    directory: PathBuf,
    file: Mutex<RegistryFile>,
    /// Names of servers in order of their first use; the position is the name of the socket directory.
    names: Mutex<Vec<String>>,
    _lock: File,
}

impl ProcessRegistry {
    /// Creates the directory in `base` for the run with this data directory.
    pub(crate) fn create(base: &Path, data: &Path) -> io::Result<Self> {
        let owner = ServerProcess::of(std::process::id())?;
        let file = RegistryFile { boot: boot_id()?, owner, data: data.to_owned(), servers: vec![] };
        let incomplete = create_private_dir(base, INCOMPLETE_SUFFIX)?;
        let lock = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(incomplete.join(LOCK))?;
        lock.lock()?;
        file.write(&incomplete)?;
        let name = incomplete.to_string_lossy();
        let directory = PathBuf::from(name.trim_end_matches(INCOMPLETE_SUFFIX));
        // From here on other sessions see it, locked.
        std::fs::rename(&incomplete, &directory)?;
        Ok(Self { directory, file: Mutex::new(file), names: Mutex::default(), _lock: lock })
    }

    /// The socket directory of the server with this name.
    pub(crate) fn socket_dir(&self, name: &str) -> PathBuf {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let number = names.iter().position(|known| known == name).unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        self.directory.join(number.to_string())
    }

    /// Creates an empty socket directory that only the server's user can access.
    pub(crate) fn create_socket_dir(
        &self,
        name: &str,
        user: Option<&ServerUser>,
    ) -> io::Result<()> {
        let directory = self.socket_dir(name);
        remove_dir_if_exists(&directory)?;
        create_dir(&directory, 0o700)?;
        user.map_or(Ok(()), |user| user.own(&directory))
    }

    pub(crate) fn remove_socket_dir(&self, name: &str) {
        // If it fails, the directory is removed with the whole registry.
        let _ = remove_dir_if_exists(&self.socket_dir(name));
    }

    /// Adds a server that was started.
    pub(crate) fn add(&self, process: &ServerProcess, data: &Path) -> io::Result<()> {
        let mut file = self.file();
        file.servers.push(RegisteredServer { process: process.clone(), data: data.to_owned() });
        file.write(&self.directory)
    }

    /// Removes a server that has exited.
    pub(crate) fn remove(&self, process: &ServerProcess) -> io::Result<()> {
        let mut file = self.file();
        file.servers.retain(|server| server.process != *process);
        file.write(&self.directory)
    }

    /// Whether a registered server runs in this data directory.
    pub(crate) fn runs_in(&self, data: &Path) -> bool {
        self.file().servers.iter().any(|server| server.data == data)
    }

    fn file(&self) -> MutexGuard<'_, RegistryFile> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ProcessRegistry {
    fn drop(&mut self) {
        // If it fails, the next session removes the directory.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

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
pub(crate) mod tests {
    use std::mem::ManuallyDrop;
    use std::os::unix::fs::MetadataExt;

    use super::super::process::tests::sleeper;
    use super::*;

    impl ProcessRegistry {
        pub(crate) fn directory(&self) -> &Path {
            &self.directory
        }
    }

    /// The directory of a registry whose owner was killed.
    pub(crate) fn abandoned(
        base: &Path,
        data: &Path,
        fill: impl FnOnce(&ProcessRegistry),
    ) -> PathBuf {
        let registry = ManuallyDrop::new(ProcessRegistry::create(base, data).unwrap());
        fill(&registry);
        registry._lock.unlock().unwrap();
        registry.directory.clone()
    }

    #[test]
    fn each_server_has_a_private_socket_directory() {
        let base = tempfile::tempdir().unwrap();
        let registry = ProcessRegistry::create(base.path(), Path::new("/run/a")).unwrap();
        let (a, b) = (registry.socket_dir("a"), registry.socket_dir("b"));
        assert_ne!(a, b);
        assert_eq!(registry.socket_dir("a"), a);
        registry.create_socket_dir("a", None).unwrap();
        assert_eq!(std::fs::metadata(&a).unwrap().mode() & 0o777, 0o700);
    }

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
            return dbdyno_fuzz::skip("only root can give files away");
        }
        let base = tempfile::tempdir().unwrap();
        let directory = abandoned(base.path(), Path::new("/run/a"), |_| {});
        std::os::unix::fs::lchown(&directory, Some(65_534), Some(65_534)).unwrap();
        clean_up_in(base.path(), Path::new("/run/b")).unwrap();
        assert!(directory.exists());
    }
}
