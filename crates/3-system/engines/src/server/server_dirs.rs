//! The directories of all servers of a run, in the run's directory or, for servers whose user cannot reach it, outside of
//! it.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dbdyno_machine::safe_files::replace_file;

use super::error::system;
use super::registry::ProcessRegistry;
use super::user::{
    PREFIX, ServerUser, create_dir, create_private_dir, ignore_missing, is_own_dir, is_root,
    is_world_traversable, remove_dir_if_exists, remove_file_if_exists, traversable_mode,
};
use super::{ServerError, registry};
use crate::clone::clone_directory;

/// The directories of all servers of one run.
///
/// They are in `servers` in the run's data directory. If dbdyno is root, its servers run as another
/// user that may not have access to it; then `servers` is a link to a directory in `/var/tmp`.
/// Sockets, whose paths must be short, are in a private directory in `TMPDIR` or `/tmp`, which is
/// removed when the last [`ServerDirs`], [`ServerDir`] and [`super::Server`] of the run is dropped.
#[derive(Clone, Debug)]
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
    pub fn open(data: &Path) -> Result<Self, ServerError> {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(data).map_err(system("creating the directory", data))?;
        let data = data.canonicalize().map_err(system("resolving the directory", data))?;
        registry::clean_up(&data)?;
        let base = registry::socket_base();
        let registry = ProcessRegistry::create(&base, &data)
            .map_err(system("creating a private directory in", &base))?;
        remove_orphans();
        let link = data.join(SERVERS);
        let root = open_root(&data, &link)?;
        // Processes are recognised by their working directories, which the kernel gives resolved.
        let root = root.canonicalize().map_err(system("resolving the directory", &root))?;
        remove_incomplete(&root).map_err(system("cleaning up", &root))?;
        Ok(Self { link, root, registry: Arc::new(registry) })
    }

    /// The directory that [`Self::open`] would choose for the servers of a new run with this data
    /// directory, or a directory above it. Nothing is created.
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
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of the server with this name, which may have any characters. It is not created.
    pub fn server_dir(&self, name: &str) -> ServerDir {
        ServerDir::new(&self.root, name, Arc::clone(&self.registry))
    }

    /// Removes the data of all servers of this run, which must have stopped, but not their logs, which errors may
    /// name. The next [`Self::open`] removes these.
    pub fn remove_data(&self) -> Result<(), ServerError> {
        let entries = std::fs::read_dir(&self.root).map_err(system("reading", &self.root))?;
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            ServerDir::with_file_name(&self.root, name, Arc::clone(&self.registry))
                .remove_data()?;
        }
        Ok(())
    }

    /// Removes the data of all servers of this run, which must have stopped. Call it before removing
    /// the run's data directory, which may contain a link only.
    pub fn remove(&self) -> Result<(), ServerError> {
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
            if !is_external(&root) {
                return Err(refused(link, "it links to a directory that dbdyno did not create"));
            }
            match named_run(&root) {
                Some((run, _)) if run == data => return Ok(root),
                Some((run, _)) => {
                    let reason = format!(
                        "it links to the data of another run, whose data directory is {}: remove \
                         the link, and the data is loaded again",
                        run.display()
                    );
                    return Err(refused(link, &reason));
                }
                // Without the name of its run, it could be anybody's.
                None => {
                    if std::fs::remove_dir(&root).is_err() {
                        tracing::warn!(
                            "{} does not name its run in {RUN_FILE}: it is left alone, and data is loaded again; \
                             remove it if no other run uses it",
                            root.display()
                        );
                    }
                    std::fs::remove_file(link).map_err(system("removing", link))?;
                }
            }
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
    create_external(data, link)
}

/// Removes directories that were still being filled when a session was killed, and logs whose data was removed.
fn remove_incomplete(root: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(root)? {
        let entry = entry?;
        let path = entry.path();
        let has_no_data = || matches!(path.join(DATA).try_exists(), Ok(false));
        if is_incomplete(&entry.file_name()) || (is_own_dir(&path) && has_no_data()) {
            remove_dir_if_exists(&path)?;
        }
    }
    Ok(())
}

/// Name of the servers' directory, or of the link to it, in the run's data directory.
pub(super) const SERVERS: &str = "servers";

/// Parent of external directories; unlike `/tmp` on many systems, it is on disk.
pub(super) const EXTERNAL_BASE: &str = "/var/tmp";

/// The file that names the run of a directory, for users and for later sessions.
const RUN_FILE: &str = "run.txt";
const RUN_FILE_TEXT: &str = "Servers of the run in ";
const DEVICE_TEXT: &str = "\nwhose file system has device number ";

/// Creates a directory for the servers of the run with this data directory, and `link` to it.
pub(super) fn create_external(data: &Path, link: &Path) -> Result<PathBuf, ServerError> {
    let base = Path::new(EXTERNAL_BASE);
    let external = create_private_dir(base, "").map_err(system("creating a directory in", base))?;
    // The link first: without the file, no session considers the directory an orphan.
    std::os::unix::fs::symlink(&external, link)
        .and_then(|()| name_run(&external, data))
        .map_err(system("creating the directory", &external))?;
    Ok(external)
}

/// Whether the path is one that [`create_external`] returns.
pub(super) fn is_external(path: &Path) -> bool {
    let name = path.file_name().map(OsStr::as_encoded_bytes);
    path.parent() == Some(Path::new(EXTERNAL_BASE))
        && name.is_some_and(|name| name.starts_with(PREFIX.as_bytes()))
}

/// The directory outside the run's directory that has the data of its servers; `None` if there is none.
pub fn external_servers(data: &Path) -> Option<PathBuf> {
    let root = std::fs::read_link(data.join(SERVERS)).ok()?;
    (is_external(&root) && is_own_dir(&root)).then_some(root)
}

/// The data directory of the run that an external directory belongs to, and the device of its file system, if that
/// is stored; `None` if dbdyno was killed before it named the run, or the file is damaged.
fn named_run(external: &Path) -> Option<(PathBuf, Option<u64>)> {
    let text = std::fs::read_to_string(external.join(RUN_FILE)).ok()?;
    let named = text.strip_prefix(RUN_FILE_TEXT)?.strip_suffix('\n')?;
    let (data, device) = match named.rsplit_once(DEVICE_TEXT) {
        Some((data, device)) => (data, Some(device.parse().ok()?)),
        None => (named, None),
    };
    Some((PathBuf::from(data), device))
}

/// Stores which run an external directory belongs to.
fn name_run(external: &Path, data: &Path) -> io::Result<()> {
    let device = data.metadata()?.dev();
    let text = format!("{RUN_FILE_TEXT}{}{DEVICE_TEXT}{device}\n", data.display());
    replace_file(&external.join(RUN_FILE), text.as_bytes())
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
    let Some((data, device)) = named_run(external) else { return false };
    // Else the run may be on a disk that is not mounted, or in another container.
    let nearest = data.ancestors().find_map(|path| path.metadata().ok());
    if nearest.is_none_or(|metadata| Some(metadata.dev()) != device) {
        return false;
    }
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

/// The name of the database's directory in the directory of a server.
const DATA: &str = "data";

/// The name of the log in the directory of a server.
pub const LOG_FILE: &str = "server.log";

/// Prefix of a directory that is still being filled. The name of a server never yields a file name
/// that starts with a dot.
const INCOMPLETE_PREFIX: &str = ".unfinished-";

/// The directory of one server: its data, its configuration and its log.
#[derive(Clone, Debug)]
pub struct ServerDir {
    parent: PathBuf,
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
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn data(&self) -> PathBuf {
        self.path.join(DATA)
    }

    /// The server's log file. Each start appends to it.
    pub fn log(&self) -> PathBuf {
        self.path.join(LOG_FILE)
    }

    /// The directory for the server's sockets; exists while it runs. The path is short enough for a
    /// socket's address.
    pub fn sockets(&self) -> PathBuf {
        self.registry.socket_dir(&self.name)
    }

    pub(crate) fn temporary(&self) -> PathBuf {
        self.path.join("tmp")
    }

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

    /// Whether complete data exists.
    pub fn exists(&self) -> bool {
        is_own_dir(&self.path) && self.data().exists()
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
        if self.exists() && !self.path.file_name().is_some_and(is_incomplete) {
            // What is removed only in part is never mistaken for complete data.
            let rest = self.incomplete();
            rest.remove()?;
            return std::fs::rename(&self.path, &rest.path)
                .map_err(system("removing", &self.path))
                .and_then(|()| rest.remove());
        }
        remove_dir_if_exists(&self.path).map_err(system("removing", &self.path))
    }

    /// Removes everything but the log. The server must not run.
    pub fn remove_data(&self) -> Result<(), ServerError> {
        if !self.exists() {
            return Ok(());
        }
        self.check_stopped("removing")?;
        // Renamed first: what is removed only in part is never mistaken for complete data.
        let rest = self.incomplete();
        rest.remove()?;
        std::fs::rename(&self.path, &rest.path)
            .and_then(|()| create_dir(&self.path, traversable_mode()))
            .and_then(|()| ignore_missing(std::fs::rename(rest.log(), self.log())))
            .map_err(system("removing", &self.path))?;
        rest.remove()
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

    /// The directory that a later session removes.
    fn incomplete(&self) -> Self {
        let name = format!("{INCOMPLETE_PREFIX}{}", self.name);
        Self::with_file_name(&self.parent, name, Arc::clone(&self.registry))
    }

    /// Creates and fills a directory under a temporary name with `fill`, then renames it to this
    /// one, so that an interrupted fill is never mistaken for complete data.
    pub(crate) fn fill(
        &self,
        fill: impl FnOnce(&Self) -> Result<(), ServerError>,
    ) -> Result<(), ServerError> {
        self.check_missing()?;
        let incomplete = self.incomplete();
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
    fn log_of_removed_data_stays_until_the_next_session() {
        let run = run();
        let server_dirs = ServerDirs::open(run.path()).unwrap();
        let [a, b] = ["a", "b"].map(|name| server_dirs.server_dir(name));
        a.fill(|server_dir| server_dir.create(None)).unwrap();
        b.fill(|server_dir| server_dir.create(None)).unwrap();
        std::fs::write(a.log(), "unknown variable").unwrap();
        for _ in 0..2 {
            server_dirs.remove_data().unwrap();
            assert_eq!(std::fs::read_to_string(a.log()).unwrap(), "unknown variable");
            assert!(!a.exists() && !b.exists() && !a.temporary().exists());
        }
        let log = a.log();
        drop((server_dirs, a, b));
        let server_dirs = ServerDirs::open(run.path()).unwrap();
        assert!(!log.exists());
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
        let external = create_external(&theirs, &theirs.join(SERVERS)).unwrap();
        std::fs::create_dir(external.join("a")).unwrap();
        std::os::unix::fs::symlink(&external, run.path().join(SERVERS)).unwrap();
        let opened = ServerDirs::open(run.path()).map(|opened| opened.remove());
        let kept = external.join("a").exists();
        std::fs::write(external.join("run.txt"), "").unwrap();
        let unnamed = ServerDirs::open(run.path()).unwrap();
        let renewed = unnamed.root() != external && external.join("a").exists();
        unnamed.remove().unwrap();
        std::fs::remove_dir_all(&external).unwrap();
        assert!(kept && renewed, "the data of another run was removed or used");
        let error = opened.unwrap_err().to_string();
        assert!(error.contains("another run") && error.contains(&*theirs.to_string_lossy()));
    }

    #[test]
    fn missing_external_directory_is_replaced() {
        let run = run();
        std::os::unix::fs::symlink("/var/tmp/dbdyno-none", run.path().join(SERVERS)).unwrap();
        let server_dirs = ServerDirs::open(run.path()).unwrap();
        assert!(server_dirs.root.is_dir());
        server_dirs.remove().unwrap();
    }

    #[test]
    fn only_unlinked_unused_directories_are_removed() {
        let run = tempfile::tempdir().unwrap();
        let data = run.path().join("out/data");
        std::fs::create_dir_all(&data).unwrap();
        let external = create_external(&data, &data.join(SERVERS)).unwrap();
        std::fs::create_dir_all(external.join("a/data")).unwrap();
        remove_orphans();
        assert!(external.join("a/data").exists());

        // Before it is an orphan, which other tests would remove.
        let mut worker = std::process::Command::new("sleep")
            .arg("60")
            .current_dir(external.join("a/data"))
            .spawn()
            .unwrap();
        std::fs::remove_dir_all(run.path().join("out")).unwrap();
        remove_orphans();
        assert!(external.exists(), "a process works in it");
        let alias = run.path().join("alias");
        std::os::unix::fs::symlink(EXTERNAL_BASE, &alias).unwrap();
        assert!(is_in_use(&alias.join(external.file_name().unwrap())));
        worker.kill().unwrap();
        worker.wait().unwrap();
        // The file system of the run may be one that is not mounted.
        let named = std::fs::read_to_string(external.join(RUN_FILE)).unwrap();
        std::fs::write(external.join(RUN_FILE), named.trim_end().to_owned() + "7\n").unwrap();
        remove_orphans();
        assert!(external.exists(), "the run is on another device");
        std::fs::write(external.join(RUN_FILE), named).unwrap();
        // Not only the directory of the run was removed.
        drop(run);
        remove_orphans();
        assert!(!external.exists());
    }

    #[test]
    fn file_names_are_safe_and_distinct() {
        assert_eq!(file_name("innodb-10.11_a"), "innodb-10.11_a");
        assert_eq!(file_name("a/b c"), "a%2fb%20c");
        assert_eq!(file_name(".."), "%2e.");
        assert_eq!(file_name(""), "%");
        assert_ne!(file_name("a%2fb"), file_name("a/b"));
    }
}
