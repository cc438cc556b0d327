use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ServerError;
use super::error::system;
use super::process_registry::{ProcessRegistry, remove_if_there};
use super::user::{ServerUser, we_are_root};
use crate::clone::clone_directory;

/// How the directory of a server_dir is named while it is being filled: no name of an instance turns
/// into one that starts with a dot.
const UNFINISHED: &str = ".unfinished-";

/// The home of one server: its data, its configuration and its log.
#[derive(Clone, Debug)]
pub struct ServerDir {
    home: PathBuf,
    name: String,
    directory: PathBuf,
    registry: Arc<ProcessRegistry>,
}

impl ServerDir {
    pub(crate) fn new(home: &Path, name: &str, registry: Arc<ProcessRegistry>) -> Self {
        let name = file_name(name);
        Self { directory: home.join(&name), home: home.to_owned(), name, registry }
    }

    /// The directory with all that belongs to the server but its socket.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The server's data directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// The server's log. Each start appends to it.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.directory.join("server.log")
    }

    /// The directory for the server's sockets, short enough for any; there while it runs.
    #[must_use]
    pub fn sockets(&self) -> PathBuf {
        self.registry.sockets(&self.name)
    }

    /// Where the server's temporary files go.
    pub(crate) fn temporary(&self) -> PathBuf {
        self.directory.join("tmp")
    }

    pub(crate) fn registry(&self) -> &ProcessRegistry {
        &self.registry
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether data is here, complete.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.directory.is_dir()
    }

    /// Moves all that is here to `to`, where nothing may be. The server must not run.
    ///
    /// # Errors
    /// The server runs, or the directory cannot be renamed.
    pub fn rename_to(&self, to: &Self) -> Result<(), ServerError> {
        self.check_idle("moving")?;
        to.check_empty()?;
        std::fs::rename(&self.directory, &to.directory)
            .map_err(system("moving the server in", &self.directory))
    }

    /// Removes all that is here, if anything is. The server must not run.
    ///
    /// # Errors
    /// The server runs, or something cannot be removed.
    pub fn remove(&self) -> Result<(), ServerError> {
        self.check_idle("removing")?;
        remove_if_there(&self.directory).map_err(system("removing", &self.directory))
    }

    /// Copies the data to `to`, where nothing may be: sharing blocks where the file system can,
    /// else with holes kept as holes. The copy is on storage when this returns, so that nothing
    /// is written back behind a measurement. Both servers must not run.
    ///
    /// # Errors
    /// The server runs, there is no data, or it cannot be copied; a full disk among the reasons.
    pub fn clone_to(&self, to: &Self) -> Result<(), ServerError> {
        self.check_idle("copying")?;
        self.copy_files_to(to)
    }

    /// Copies the data to `to` whatever its server does: it must stand still.
    pub(crate) fn copy_files_to(&self, to: &Self) -> Result<(), ServerError> {
        to.fill(|unfinished| {
            unfinished.make(None)?;
            std::fs::remove_dir(unfinished.data())
                .map_err(system("making way for", &unfinished.data()))?;
            clone_directory(&self.data(), &unfinished.data())?;
            let own = std::fs::metadata(self.data()).and_then(|data| {
                use std::os::unix::fs::{MetadataExt, lchown};
                lchown(unfinished.temporary(), Some(data.uid()), Some(data.gid()))
            });
            own.map_err(system("copying the owner of", &self.data()))
        })
    }

    /// Has `fill` fill a server_dir, and moves that here when it is complete: what is interrupted
    /// never looks like data.
    pub(crate) fn fill(
        &self,
        fill: impl FnOnce(&Self) -> Result<(), ServerError>,
    ) -> Result<(), ServerError> {
        self.check_empty()?;
        let name = format!("{UNFINISHED}{}", self.name);
        let unfinished = Self {
            directory: self.home.join(&name),
            home: self.home.clone(),
            name,
            registry: Arc::clone(&self.registry),
        };
        unfinished.remove()?;
        let filled = fill(&unfinished).and_then(|()| {
            std::fs::rename(&unfinished.directory, &self.directory)
                .map_err(system("moving the server in", &unfinished.directory))
        });
        if filled.is_err() {
            // The error that led here is the one to tell.
            let _ = unfinished.remove();
        }
        filled
    }

    /// Makes the empty directories, for the server's user.
    pub(crate) fn make(&self, user: Option<&ServerUser>) -> Result<(), ServerError> {
        // The server's user passes through ours, and has its own two inside for itself alone.
        let mode = if we_are_root() { 0o711 } else { 0o700 };
        let make = |path: &Path, mode| std::fs::DirBuilder::new().mode(mode).create(path);
        make(&self.directory, mode).map_err(system("making the directory", &self.directory))?;
        for inner in [self.data(), self.temporary()] {
            make(&inner, 0o700)
                .and_then(|()| user.map_or(Ok(()), |user| user.own(&inner)))
                .map_err(system("making the directory", &inner))?;
        }
        Ok(())
    }

    pub(crate) fn check_idle(&self, doing: &str) -> Result<(), ServerError> {
        if self.registry.runs_in(&self.data()) {
            let source = io::Error::new(io::ErrorKind::ResourceBusy, "its server is running");
            return Err(system(&format!("{doing} the data in"), &self.directory)(source));
        }
        Ok(())
    }

    fn check_empty(&self) -> Result<(), ServerError> {
        if std::fs::symlink_metadata(&self.directory).is_ok() {
            let source = io::Error::from(io::ErrorKind::AlreadyExists);
            return Err(system("making the directory", &self.directory)(source));
        }
        Ok(())
    }
}

/// Whether a directory of this name is one that was still being filled.
pub(crate) fn is_unfinished(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(UNFINISHED.as_bytes())
}

/// A file name for any instance's name; different ones for different names.
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
    fn every_name_becomes_a_file_name_of_its_own() {
        assert_eq!(file_name("innodb-10.11_a"), "innodb-10.11_a");
        assert_eq!(file_name("a/b c"), "a%2fb%20c");
        assert_eq!(file_name(".."), "%2e.");
        assert_eq!(file_name(""), "%");
        assert_ne!(file_name("a%2fb"), file_name("a/b"));
    }
}
