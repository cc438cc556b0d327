use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::system;
use super::external_dir::{EXTERNAL_BASE, SERVERS};
use super::private_dir::{
    create_dir, is_own_dir, is_world_traversable, remove_dir_if_exists, remove_file_if_exists,
    traversable_mode,
};
use super::process_registry::ProcessRegistry;
use super::server_dir::is_incomplete;
use super::user::is_root;
use super::{ServerDir, ServerError, external_dir, stale_servers};

/// The directories of all servers of one run.
///
/// They are in `servers` in the run's data directory. If dbdyno is root, its servers run as another
/// user that may not have access to it; then `servers` is a link to a directory in `/var/tmp`.
/// Sockets, whose paths must be short, are in a private directory in `TMPDIR` or `/tmp`, which is
/// removed when the last [`ServerDirs`], [`ServerDir`] and [`super::Server`] of the run is dropped.
#[derive(Debug)]
pub struct ServerDirs {
    /// `servers` in the run's data directory.
    link: PathBuf,
    /// The directory itself, or the target of the link.
    root: PathBuf,
    registry: Arc<ProcessRegistry>,
}

impl ServerDirs {
    /// Opens the directories of the run with this data directory, which is created if missing.
    /// Existing data is kept.
    ///
    /// First kills the servers that killed sessions of this user left running, of any run, and
    /// removes their sockets. Only processes that these sessions registered are killed, and only
    /// after a check that the id was not reused. Their data is kept: the runs may be resumed.
    ///
    /// # Errors
    /// A directory cannot be created or is another user's, another process uses the directories of
    /// this run, or a left-over server cannot be killed.
    pub fn open(data: &Path) -> Result<Self, ServerError> {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(data).map_err(system("creating the directory", data))?;
        let data = data.canonicalize().map_err(system("resolving the directory", data))?;
        stale_servers::clean_up(&data)?;
        let base = stale_servers::socket_base();
        let registry = ProcessRegistry::create(&base, &data)
            .map_err(system("creating a private directory in", &base))?;
        external_dir::remove_orphans();
        let link = data.join(SERVERS);
        let root = open_root(&data, &link)?;
        // Processes are recognised by their working directories, which the kernel gives resolved.
        let root = root.canonicalize().map_err(system("resolving the directory", &root))?;
        remove_incomplete(&root).map_err(system("cleaning up", &root))?;
        Ok(Self { link, root, registry: Arc::new(registry) })
    }

    /// The directory that [`Self::open`] would choose for the servers of a new run with this data
    /// directory, or a directory above it. Nothing is created.
    #[must_use]
    pub fn planned_root(data: &Path) -> PathBuf {
        let absolute = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
        let existing = absolute.ancestors().find(|one| one.is_dir()).unwrap_or(&absolute);
        // What is created has mode 0700.
        let is_new = existing != absolute;
        if is_root() && (is_new || !is_world_traversable(existing).unwrap_or(true)) {
            return PathBuf::from(EXTERNAL_BASE);
        }
        existing.to_owned()
    }

    /// The directory that contains the directories of all servers.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of the server with this name, which may have any characters. It is not created.
    #[must_use]
    pub fn server_dir(&self, name: &str) -> ServerDir {
        ServerDir::new(&self.root, name, Arc::clone(&self.registry))
    }

    /// Removes the data of all servers of this run, which must have stopped. Call it before removing
    /// the run's data directory, which may contain a link only.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn remove(self) -> Result<(), ServerError> {
        remove_dir_if_exists(&self.root).map_err(system("removing", &self.root))?;
        remove_file_if_exists(&self.link).map_err(system("removing", &self.link))
    }
}

/// The existing directory for the servers' data, or a new one.
fn open_root(data: &Path, link: &Path) -> Result<PathBuf, ServerError> {
    let refused = |path: &Path, reason: &str| {
        let source = io::Error::new(io::ErrorKind::PermissionDenied, reason.to_owned());
        system("using the servers' data in", path)(source)
    };
    match std::fs::read_link(link) {
        Ok(root) if is_own_dir(&root) => {
            if !external_dir::is_external(&root) {
                return Err(refused(link, "it links to a directory that dbdyno did not create"));
            }
            let using = "using the servers' data in";
            match external_dir::run_of(&root).map_err(system(using, &root))? {
                Some(run) if run == data => {}
                Some(run) => {
                    let reason = format!(
                        "it links to the data of another run, whose data directory is {}: remove \
                         the link, and the data is loaded again",
                        run.display()
                    );
                    return Err(refused(link, &reason));
                }
                None => external_dir::name_run(&root, data).map_err(system("writing to", &root))?,
            }
            return Ok(root);
        }
        Ok(root) if std::fs::symlink_metadata(&root).is_ok() => {
            return Err(refused(&root, "it is not a directory owned by this user"));
        }
        // The system has removed the data, for example at boot: start with an empty directory.
        Ok(_) => std::fs::remove_file(link).map_err(system("removing", link))?,
        Err(_) => {}
    }
    let reachable = !is_root()
        || is_world_traversable(data).map_err(system("checking the permissions of", data))?;
    if link.exists() {
        return match (is_own_dir(link), reachable) {
            (true, true) => Ok(link.to_owned()),
            (false, _) => Err(refused(link, "it is not a directory owned by this user")),
            (true, false) => Err(refused(
                link,
                "the servers' user cannot reach it; it was created by another user or before the \
                 permissions of a directory above it changed",
            )),
        };
    }
    if reachable {
        create_dir(link, traversable_mode()).map_err(system("creating the directory", link))?;
        return Ok(link.to_owned());
    }
    external_dir::create(data, link)
}

/// Removes directories that were still being filled when a session was killed.
fn remove_incomplete(root: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(root)? {
        let entry = entry?;
        if is_incomplete(&entry.file_name()) {
            remove_dir_if_exists(&entry.path())?;
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
    fn data_is_where_the_servers_user_can_reach_it() {
        let run = run();
        let server_dirs = ServerDirs::open(run.path()).unwrap();
        let root = server_dirs.root.clone();
        // The run's directory has mode 0700: servers of root need an external one.
        assert_eq!(root.starts_with(EXTERNAL_BASE), is_root(), "{}", root.display());
        assert_eq!(run.path().join(SERVERS).canonicalize().unwrap(), root);
        server_dirs.remove().unwrap();
        assert!(!root.exists() && std::fs::symlink_metadata(run.path().join(SERVERS)).is_err());
    }

    #[test]
    fn complete_data_is_kept_and_incomplete_data_removed() {
        let run = run();
        let server_dirs = ServerDirs::open(run.path()).unwrap();
        let server_dir = server_dirs.server_dir("a b");
        server_dir.fill(|server_dir| server_dir.create(None)).unwrap();
        let failed = server_dirs.server_dir("c").fill(|server_dir| {
            server_dir.create(None)?;
            Err(system("testing", Path::new("/"))(io::ErrorKind::Other.into()))
        });
        assert!(failed.is_err() && !server_dirs.server_dir("c").exists());
        std::fs::create_dir(server_dirs.root.join(".unfinished-d")).unwrap();
        drop((server_dirs, server_dir));
        let server_dirs = ServerDirs::open(run.path()).unwrap();
        assert!(server_dirs.server_dir("a b").exists() && !server_dirs.server_dir("c").exists());
        assert!(!server_dirs.root.join(".unfinished-d").exists());

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
    fn foreign_link_is_refused() {
        let (run, other) = (run(), run());
        std::os::unix::fs::symlink(other.path(), run.path().join(SERVERS)).unwrap();
        let error = ServerDirs::open(run.path()).unwrap_err();
        assert!(error.to_string().contains("did not create"), "{error}");
        assert!(other.path().exists());
    }

    #[test]
    fn link_to_the_servers_of_another_run_is_refused() {
        let (run, other) = (run(), run());
        let theirs = other.path().join("data");
        std::fs::create_dir(&theirs).unwrap();
        let external = external_dir::create(&theirs, &theirs.join(SERVERS)).unwrap();
        std::fs::create_dir(external.join("a")).unwrap();
        std::os::unix::fs::symlink(&external, run.path().join(SERVERS)).unwrap();
        let opened = ServerDirs::open(run.path()).map(ServerDirs::remove);
        let kept = external.join("a").exists();
        // Without the name of its run, it could be anybody's.
        std::fs::remove_file(external.join("run.txt")).unwrap();
        let unnamed = ServerDirs::open(run.path());
        std::fs::remove_dir_all(&external).unwrap();
        assert!(kept, "the data of another run was removed");
        let error = opened.unwrap_err().to_string();
        assert!(error.contains("another run") && error.contains(&*theirs.to_string_lossy()));
        let error = unnamed.unwrap_err().to_string();
        assert!(error.contains("run.txt"), "{error}");
    }

    #[test]
    fn missing_external_directory_is_replaced() {
        let run = run();
        std::os::unix::fs::symlink("/var/tmp/dbdyno-none", run.path().join(SERVERS)).unwrap();
        let server_dirs = ServerDirs::open(run.path()).unwrap();
        assert!(server_dirs.root.is_dir());
        server_dirs.remove().unwrap();
    }
}
