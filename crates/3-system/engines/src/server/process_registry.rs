use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::private_dir::{create_dir, create_private_dir, remove_dir_if_exists};
use super::process::ServerProcess;
use super::registry_file::{INCOMPLETE_SUFFIX, LOCK, RegisteredServer, RegistryFile, boot_id};
use super::user::ServerUser;

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

    /// Removes a socket directory.
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

#[cfg(test)]
pub(crate) mod tests {
    use std::mem::ManuallyDrop;
    use std::os::unix::fs::MetadataExt;

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
}
