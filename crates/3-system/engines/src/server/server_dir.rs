use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ServerError;
use super::error::system;
use super::private_dir::{create_dir, is_own_dir, remove_dir_if_exists, traversable_mode};
use super::registry::ProcessRegistry;
use super::user::ServerUser;
use crate::clone::clone_directory;

/// Prefix of a directory that is still being filled. The name of a server never yields a file name
/// that starts with a dot.
const INCOMPLETE_PREFIX: &str = ".unfinished-";

/// The directory of one server: its data, its configuration and its log.
#[derive(Clone, Debug)]
pub struct ServerDir {
    parent: PathBuf,
    /// File name in `parent`.
    name: String,
    path: PathBuf,
    registry: Arc<ProcessRegistry>,
}

impl ServerDir {
    pub(crate) fn new(parent: &Path, name: &str, registry: Arc<ProcessRegistry>) -> Self {
        Self::with_file_name(parent, file_name(name), registry)
    }

    fn with_file_name(parent: &Path, name: String, registry: Arc<ProcessRegistry>) -> Self {
        Self { path: parent.join(&name), parent: parent.to_owned(), name, registry }
    }

    /// The directory with everything that belongs to the server except its sockets.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The server's data directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// The server's log file. Each start appends to it.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.path.join("server.log")
    }

    /// The directory for the server's sockets; exists while it runs. The path is short enough for a
    /// socket's address.
    #[must_use]
    pub fn sockets(&self) -> PathBuf {
        self.registry.socket_dir(&self.name)
    }

    /// The directory for the server's temporary files.
    pub(crate) fn temporary(&self) -> PathBuf {
        self.path.join("tmp")
    }

    /// The directory's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The registry of the servers of this dbdyno.
    pub(crate) fn registry(&self) -> &ProcessRegistry {
        &self.registry
    }

    /// Creates the socket directory, for the server's user only.
    pub(crate) fn create_sockets(&self, user: Option<&ServerUser>) -> Result<(), ServerError> {
        let created = self.registry.create_socket_dir(&self.name, user);
        created.map_err(system("creating the directory", &self.sockets()))
    }

    /// Removes the socket directory.
    pub(crate) fn remove_sockets(&self) {
        self.registry.remove_socket_dir(&self.name);
    }

    /// Whether complete data exists.
    #[must_use]
    pub fn exists(&self) -> bool {
        is_own_dir(&self.path)
    }

    /// Renames the directory to `to`, which must not exist. The server must not run.
    pub fn rename_to(&self, to: &Self) -> Result<(), ServerError> {
        self.check_stopped("moving")?;
        to.check_missing()?;
        std::fs::rename(&self.path, &to.path).map_err(system("moving the server in", &self.path))
    }

    /// Removes the directory, if it exists. The server must not run.
    pub fn remove(&self) -> Result<(), ServerError> {
        self.check_stopped("removing")?;
        remove_dir_if_exists(&self.path).map_err(system("removing", &self.path))
    }

    /// Copies the data to `to`, which must not exist: by sharing blocks if the file system can, else
    /// with holes kept. The copy is synced, so that nothing is written back during a measurement.
    /// Neither server may run.
    pub fn clone_to(&self, to: &Self) -> Result<(), ServerError> {
        self.check_stopped("copying")?;
        self.copy_files_to(to)
    }

    /// Copies the data to `to` without checking that the server is stopped or paused.
    pub(crate) fn copy_files_to(&self, to: &Self) -> Result<(), ServerError> {
        to.fill(|incomplete| {
            incomplete.create(None)?;
            std::fs::remove_dir(incomplete.data())
                .map_err(system("removing", &incomplete.data()))?;
            clone_directory(&self.data(), &incomplete.data())?;
            std::fs::symlink_metadata(self.data())
                .and_then(|data| lchown(incomplete.temporary(), Some(data.uid()), Some(data.gid())))
                .map_err(system("copying the owner of", &self.data()))
        })
    }

    /// Creates and fills a directory under a temporary name with `fill`, then renames it to this
    /// one, so that an interrupted fill is never mistaken for complete data.
    pub(crate) fn fill(
        &self,
        fill: impl FnOnce(&Self) -> Result<(), ServerError>,
    ) -> Result<(), ServerError> {
        self.check_missing()?;
        let name = format!("{INCOMPLETE_PREFIX}{}", self.name);
        let incomplete = Self::with_file_name(&self.parent, name, Arc::clone(&self.registry));
        incomplete.remove()?;
        let filled = fill(&incomplete).and_then(|()| {
            std::fs::rename(&incomplete.path, &self.path)
                .map_err(system("moving the server in", &incomplete.path))
        });
        if filled.is_err() {
            // The first error is the one to report.
            let _ = incomplete.remove();
        }
        filled
    }

    /// Creates the directory, with `data` and `tmp` for the server's user alone.
    pub(crate) fn create(&self, user: Option<&ServerUser>) -> Result<(), ServerError> {
        create_dir(&self.path, traversable_mode())
            .map_err(system("creating the directory", &self.path))?;
        for inner in [self.data(), self.temporary()] {
            create_dir(&inner, 0o700)
                .and_then(|()| user.map_or(Ok(()), |user| user.own(&inner)))
                .map_err(system("creating the directory", &inner))?;
        }
        Ok(())
    }

    /// Fails if the server runs.
    pub(crate) fn check_stopped(&self, doing: &str) -> Result<(), ServerError> {
        if self.registry.runs_in(&self.data()) {
            let source = io::Error::new(io::ErrorKind::ResourceBusy, "its server is running");
            return Err(system(&format!("{doing} the data in"), &self.path)(source));
        }
        Ok(())
    }

    fn check_missing(&self) -> Result<(), ServerError> {
        if std::fs::symlink_metadata(&self.path).is_ok() {
            let source = io::Error::from(io::ErrorKind::AlreadyExists);
            return Err(system("creating the directory", &self.path)(source));
        }
        Ok(())
    }
}

/// Whether a directory of this name was still being filled.
pub(crate) fn is_incomplete(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(INCOMPLETE_PREFIX.as_bytes())
}

/// A file name for any server name; different for different names.
fn file_name(name: &str) -> String {
    let mut file_name = String::new();
    for (at, byte) in name.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => {
                file_name.push(char::from(byte));
            }
            b'.' if at > 0 => file_name.push('.'),
            _ => file_name.push_str(&format!("%{byte:02x}")),
        }
    }
    if file_name.is_empty() { "%".to_owned() } else { file_name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_safe_and_distinct() {
        assert_eq!(file_name("innodb-10.11_a"), "innodb-10.11_a");
        assert_eq!(file_name("a/b c"), "a%2fb%20c");
        assert_eq!(file_name(".."), "%2e.");
        assert_eq!(file_name(""), "%");
        assert_ne!(file_name("a%2fb"), file_name("a/b"));
    }
}
