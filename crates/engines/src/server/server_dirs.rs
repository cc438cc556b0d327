use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::system;
use super::process_registry::{ProcessRegistry, is_our_directory, remove_if_there};
use super::server_dir::is_unfinished;
use super::user::{is_open_to_all, we_are_root};
use super::{ServerDir, ServerError, external_dir};

/// What the home of the servers is called in the run's data directory.
pub(super) const SERVERS: &str = "servers";

/// Where the servers of one run live.
///
/// Their data lies in `servers` in the run's data directory. When dbdyno is root its servers run
/// as another user, who may not be able to reach that: then `servers` is a link to a directory of
/// ours in `/var/tmp`. Sockets, whose paths must be short, lie in a private directory in
/// `TMPDIR` or `/tmp`, which goes when the last of these server_dirs, of their places and of their
/// servers is dropped.
#[derive(Debug)]
pub struct ServerDirs {
    link: PathBuf,
    home: PathBuf,
    registry: Arc<ProcessRegistry>,
}

impl ServerDirs {
    /// Opens the server_dirs of the run with this data directory, which is made where there is
    /// none. Data that an earlier session left is kept.
    ///
    /// First ends the servers that dead sessions of this user left running, whichever run they
    /// were of, and removes their sockets: nothing but what those sessions wrote down, and only
    /// processes that are the very ones. Their data stays while their run's directory does: they
    /// may be resumed.
    ///
    /// # Errors
    /// A directory cannot be made or is not ours, another live process uses these server_dirs, or
    /// something that was left cannot be ended.
    pub fn open(data: &Path) -> Result<Self, ServerError> {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(data).map_err(system("making the directory", data))?;
        let data = data.canonicalize().map_err(system("looking for the directory", data))?;
        let registry = ProcessRegistry::open(&data)?;
        external_dir::remove_orphans();
        let link = data.join(SERVERS);
        let home = open_home(&data, &link)?;
        remove_unfinished(&home).map_err(system("tidying up in", &home))?;
        Ok(Self { link, home, registry })
    }

    /// The directory that all servers' data lies in.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.home
    }

    /// The home of the instance with this name, which may have any characters. Nothing is made.
    #[must_use]
    pub fn server_dir(&self, name: &str) -> ServerDir {
        ServerDir::new(&self.home, name, Arc::clone(&self.registry))
    }

    /// Removes the data of all servers of this run, which must have ended. To be called before
    /// the run's data directory is removed: what that links to would stay otherwise.
    ///
    /// # Errors
    /// Something cannot be removed.
    pub fn remove(self) -> Result<(), ServerError> {
        remove_if_there(&self.home).map_err(system("removing", &self.home))?;
        match std::fs::remove_file(&self.link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(system("removing", &self.link)(error))
            }
            _ => Ok(()),
        }
    }
}

/// The directory that the servers' data lies in: the one that is there, or a new one.
fn open_home(data: &Path, link: &Path) -> Result<PathBuf, ServerError> {
    let refused = |path: &Path, why: &str| {
        let source = io::Error::new(io::ErrorKind::PermissionDenied, why.to_owned());
        system("using the servers' data in", path)(source)
    };
    match std::fs::read_link(link) {
        Ok(home) if is_our_directory(&home) => {
            return if external_dir::is_one(&home) {
                Ok(home)
            } else {
                Err(refused(link, "it links to a directory that dbdyno did not make"))
            };
        }
        Ok(home) if std::fs::symlink_metadata(&home).is_ok() => {
            return Err(refused(&home, "it is not a directory of this user's own"));
        }
        // Tidied away by the system: there is nothing to go on from.
        Ok(_) => std::fs::remove_file(link).map_err(system("removing", link))?,
        Err(_) => {}
    }
    let reachable = !we_are_root()
        || is_open_to_all(data).map_err(system("looking at the permissions of", data))?;
    if link.exists() {
        return match (is_our_directory(link), reachable) {
            (true, true) => Ok(link.to_owned()),
            (false, _) => Err(refused(link, "it is not a directory of this user's own")),
            (true, false) => Err(refused(
                link,
                "the servers' user cannot reach it; it was made by another user or before the \
                 permissions of a directory above it changed",
            )),
        };
    }
    if reachable {
        let mode = if we_are_root() { 0o711 } else { 0o700 };
        std::fs::DirBuilder::new()
            .mode(mode)
            .create(link)
            .map_err(system("making the directory", link))?;
        return Ok(link.to_owned());
    }
    external_dir::make(data, link)
}

/// Removes places that were still being filled when a session ended.
fn remove_unfinished(home: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(home)? {
        let entry = entry?;
        if is_unfinished(&entry.file_name()) {
            remove_if_there(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run's data directory that only its owner can reach.
    fn run() -> tempfile::TempDir {
        let closed = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        tempfile::Builder::new().permissions(closed).tempdir().unwrap()
    }

    #[test]
    fn data_lies_where_the_servers_user_can_reach_it() {
        let run = run();
        let server_dirs = ServerDirs::open(run.path()).unwrap();
        let home = server_dirs.home.clone();
        // The directory is 0700, so for root's servers it must be elsewhere.
        assert_eq!(
            home.starts_with(external_dir::EXTERNAL_BASE),
            we_are_root(),
            "{}",
            home.display()
        );
        assert_eq!(run.path().join(SERVERS).canonicalize().unwrap(), home);
        server_dirs.remove().unwrap();
        assert!(!home.exists() && std::fs::symlink_metadata(run.path().join(SERVERS)).is_err());
    }

    #[test]
    fn a_run_goes_on_from_its_data_and_not_from_half_of_it() {
        let run = run();
        let server_dirs = ServerDirs::open(run.path()).unwrap();
        let server_dir = server_dirs.server_dir("a b");
        server_dir.fill(|server_dir| server_dir.make(None)).unwrap();
        let failed = server_dirs.server_dir("c").fill(|server_dir| {
            server_dir.make(None)?;
            Err(system("testing", Path::new("/"))(io::ErrorKind::Other.into()))
        });
        assert!(failed.is_err() && !server_dirs.server_dir("c").exists());
        std::fs::create_dir(server_dirs.home.join(".unfinished-d")).unwrap();
        drop((server_dirs, server_dir));
        let server_dirs = ServerDirs::open(run.path()).unwrap();
        assert!(server_dirs.server_dir("a b").exists() && !server_dirs.server_dir("c").exists());
        assert!(!server_dirs.home.join(".unfinished-d").exists());

        server_dirs.server_dir("a b").rename_to(&server_dirs.server_dir("e")).unwrap();
        assert!(server_dirs.server_dir("e").exists() && !server_dirs.server_dir("a b").exists());
        server_dirs.server_dir("e").clone_to(&server_dirs.server_dir("f")).unwrap();
        assert!(server_dirs.server_dir("e").clone_to(&server_dirs.server_dir("f")).is_err());
        assert!(server_dirs.server_dir("e").rename_to(&server_dirs.server_dir("f")).is_err());
        server_dirs.server_dir("f").remove().unwrap();
        server_dirs.server_dir("f").remove().unwrap();
        server_dirs.remove().unwrap();
    }

    #[test]
    fn a_link_that_dbdyno_did_not_make_is_refused() {
        let (run, other) = (run(), run());
        std::os::unix::fs::symlink(other.path(), run.path().join(SERVERS)).unwrap();
        let error = ServerDirs::open(run.path()).unwrap_err();
        assert!(error.to_string().contains("did not make"), "{error}");
        assert!(other.path().exists());
    }

    #[test]
    fn data_that_was_tidied_away_is_begun_anew() {
        let run = run();
        std::os::unix::fs::symlink("/var/tmp/dbdyno-none", run.path().join(SERVERS)).unwrap();
        let server_dirs = ServerDirs::open(run.path()).unwrap();
        assert!(server_dirs.home.is_dir());
        server_dirs.remove().unwrap();
    }
}
