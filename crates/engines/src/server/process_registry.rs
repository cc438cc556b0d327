use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use super::ServerError;
use super::error::system;
use super::process::{Process, end_remains};
use super::user::{ServerUser, is_open_to_all, our_uid, we_are_root};

/// How the names of our directories in shared places begin.
pub(crate) const PREFIX: &str = "dbdyno-";

/// How the name of a directory ends while it is being made.
const UNFINISHED: &str = ".new";

/// The longest path that our directory of sockets may lie in: the kernel allows 107 bytes for
/// the whole path of a socket.
const LONGEST_BASE: usize = 48;

/// How long a session waits for another one that tidies up after the same run.
const PATIENCE: Duration = Duration::from_secs(30);

/// The private directory of this dbdyno: its servers' sockets, and the record of what it
/// started, for whoever must tidy up after it. It goes when the last user of it does.
///
/// Whether its owner lives is told by a lock on a file in it: the kernel releases it with the
/// owner, and unlike a process number it holds across containers that share the directory.
#[derive(Debug)]
pub(crate) struct ProcessRegistry {
    directory: PathBuf,
    record: Mutex<Record>,
    /// The places that asked for sockets; a server_dir's number is its directory's name.
    names: Mutex<Vec<String>>,
    _lock: File,
}

/// `owner.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    /// Which start of the machine the process numbers are of.
    boot: String,
    owner: Process,
    /// The run's data directory.
    data: PathBuf,
    servers: Vec<Running>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Running {
    process: Process,
    /// Its data directory.
    home: PathBuf,
}

impl ProcessRegistry {
    /// Ends what dead owners left, then makes a directory of our own for the run with this data
    /// directory.
    pub(crate) fn open(data: &Path) -> Result<Arc<Self>, ServerError> {
        for base in bases() {
            sweep(&base, data)?;
        }
        let bases = bases();
        let base = bases.first().map_or(Path::new("/tmp"), PathBuf::as_path);
        Self::make(base, data).map(Arc::new).map_err(system("making a private directory in", base))
    }

    fn make(base: &Path, data: &Path) -> io::Result<Self> {
        let me = Process::now(std::process::id()).ok_or(io::ErrorKind::NotFound)?;
        let record = Record { boot: boot()?, owner: me, data: data.to_owned(), servers: vec![] };
        let unfinished = new_directory(base, UNFINISHED)?;
        let lock = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(unfinished.join("lock"))?;
        lock.lock()?;
        write(&unfinished, &record)?;
        let name = unfinished.to_string_lossy();
        let directory = PathBuf::from(name.trim_end_matches(UNFINISHED));
        // From here on it is there for others, and locked.
        std::fs::rename(&unfinished, &directory)?;
        Ok(Self { directory, record: Mutex::new(record), names: Mutex::default(), _lock: lock })
    }

    /// The directory for the sockets of the server_dir of this name.
    pub(crate) fn sockets(&self, name: &str) -> PathBuf {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let number = names.iter().position(|known| known == name).unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        self.directory.join(number.to_string())
    }

    /// Makes an empty directory for sockets, for nobody but the server's user.
    pub(crate) fn make_sockets(&self, name: &str, user: Option<&ServerUser>) -> io::Result<()> {
        let directory = self.sockets(name);
        remove_if_there(&directory)?;
        std::fs::DirBuilder::new().mode(0o700).create(&directory)?;
        user.map_or(Ok(()), |user| user.own(&directory))
    }

    /// Takes away a server_dir's sockets.
    pub(crate) fn remove_sockets(&self, name: &str) {
        // What is left goes with the whole directory.
        let _ = remove_if_there(&self.sockets(name));
    }

    /// Writes down a server that was started.
    pub(crate) fn add(&self, process: &Process, home: &Path) -> io::Result<()> {
        self.change(|servers| {
            servers.push(Running { process: process.clone(), home: home.to_owned() });
        })
    }

    /// Strikes out a server that has ended.
    pub(crate) fn strike(&self, process: &Process) -> io::Result<()> {
        self.change(|servers| servers.retain(|running| running.process != *process))
    }

    /// Whether a server of ours runs in this data directory.
    pub(crate) fn runs_in(&self, home: &Path) -> bool {
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        record.servers.iter().any(|running| running.home == home)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Running>)) -> io::Result<()> {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut record.servers);
        write(&self.directory, &record)
    }
}

impl Drop for ProcessRegistry {
    fn drop(&mut self) {
        // What cannot be removed now is found by the next session.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Makes a directory of a name nobody can guess in a server_dir that others write to as well, which
/// only we may list and, where servers run as other users, those may pass through.
pub(crate) fn new_directory(base: &Path, suffix: &str) -> io::Result<PathBuf> {
    let mut builder = tempfile::Builder::new();
    let directory = builder.prefix(PREFIX).suffix(suffix).tempdir_in(base)?.keep();
    let mode = if we_are_root() { 0o711 } else { 0o700 };
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(mode))?;
    Ok(directory)
}

/// Whether `path` is itself a directory, and ours: not a link, which others could have laid.
pub(crate) fn is_our_directory(path: &Path) -> bool {
    std::fs::symlink_metadata(path)
        .is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == our_uid())
}

/// Removes a directory with all in it; that there may be none is fine.
pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Where directories of sockets may lie, the one for new ones first.
fn bases() -> Vec<PathBuf> {
    let fallback = PathBuf::from("/tmp");
    let named = std::env::temp_dir();
    let usable = named.is_absolute()
        && named.as_os_str().len() <= LONGEST_BASE
        && (!we_are_root() || is_open_to_all(&named).unwrap_or(false));
    match usable && named != fallback {
        true => vec![named, fallback],
        false => vec![fallback],
    }
}

/// Looks through the private directories in `base` and tidies up after dead owners.
fn sweep(base: &Path, data: &Path) -> Result<(), ServerError> {
    let Ok(entries) = std::fs::read_dir(base) else { return Ok(()) };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
        let directory = entry.path();
        if !is_our_directory(&directory) {
            continue;
        }
        if name.ends_with(UNFINISHED) {
            remove_abandoned(&directory);
        } else if let Some(record) = read(&directory) {
            tidy_up(&directory, &record, data)
                .map_err(system("tidying up what an earlier session left in", &directory))?;
        }
    }
    Ok(())
}

fn tidy_up(directory: &Path, record: &Record, data: &Path) -> io::Result<()> {
    let lock = match OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(directory.join("lock"))
    {
        Ok(lock) => lock,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let waiting = Instant::now();
    loop {
        match lock.try_lock() {
            Ok(()) => break,
            // Another run's, alive; or another session that tidies it up.
            Err(TryLockError::WouldBlock) if record.data != data => return Ok(()),
            Err(TryLockError::WouldBlock) if waiting.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::new(
                    io::ErrorKind::WouldBlock,
                    format!(
                        "process {} still uses the servers of {}",
                        record.owner.pid,
                        data.display()
                    ),
                ));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    // The record may have changed until the lock was ours.
    let Some(record) = read(directory) else { return Ok(()) };
    // Process numbers from before the machine's last start say nothing.
    if record.boot == boot()? {
        for Running { process, home } in &record.servers {
            end_remains(process, home)?;
        }
    }
    remove_if_there(directory)
}

/// Removes a directory whose maker died while making it; only what it puts in, and only after
/// more time than making takes.
fn remove_abandoned(directory: &Path) {
    let age = std::fs::metadata(directory)
        .and_then(|metadata| metadata.modified())
        .map(|time| SystemTime::now().duration_since(time).unwrap_or_default());
    if age.is_ok_and(|age| age > Duration::from_secs(600)) {
        // Where something else is in it, it is not what it seems, and stays.
        let _ = std::fs::remove_file(directory.join("lock"));
        let _ = std::fs::remove_file(directory.join("owner.json"));
        let _ = std::fs::remove_dir(directory);
    }
}

fn read(directory: &Path) -> Option<Record> {
    let file = directory.join("owner.json");
    let metadata = std::fs::symlink_metadata(&file).ok()?;
    if !metadata.is_file() || metadata.uid() != our_uid() {
        return None;
    }
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}

fn write(directory: &Path, record: &Record) -> io::Result<()> {
    let unfinished = directory.join("owner.json.new");
    let text = serde_json::to_vec_pretty(record)?;
    std::fs::write(&unfinished, text)?;
    std::fs::set_permissions(&unfinished, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(unfinished, directory.join("owner.json"))
}

fn boot() -> io::Result<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(id.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::mem::ManuallyDrop;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    use super::super::process::tests::started;
    use super::*;

    /// A registry whose owner died without a word, and the directory that it leaves.
    fn abandoned(base: &Path, data: &Path, fill: impl FnOnce(&ProcessRegistry)) -> PathBuf {
        let registry = ManuallyDrop::new(ProcessRegistry::make(base, data).unwrap());
        fill(&registry);
        registry._lock.unlock().unwrap();
        registry.directory.clone()
    }

    fn sleeper(home: &Path) -> (Child, Process) {
        let mut command = Command::new("/bin/sleep");
        let child = command.arg("60").current_dir(home).process_group(0).spawn().unwrap();
        let process = started(&child);
        (child, process)
    }

    #[test]
    fn ends_what_a_dead_owner_started_and_nothing_else() {
        let base = tempfile::tempdir().unwrap();
        let (home, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (mut left, left_process) = sleeper(home.path());
        let (mut other, other_process) = sleeper(elsewhere.path());
        // The number is used again, by the same program.
        let gone = Process { started: other_process.started - 1, ..other_process.clone() };
        let directory = abandoned(base.path(), Path::new("/run/a"), |registry| {
            registry.add(&left_process, home.path()).unwrap();
            registry.add(&gone, Path::new("/elsewhere")).unwrap();
            registry.make_sockets("a", None).unwrap();
        });
        // Another run tidies up.
        let swept = sweep(base.path(), Path::new("/run/b"));
        let killed = left.try_wait().unwrap().is_some() || !left_process.is_alive();
        let survived = other_process.is_alive();
        for child in [&mut left, &mut other] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        swept.unwrap();
        assert!(killed, "what was left still runs");
        assert!(survived, "another process was ended");
        assert!(!directory.exists());
    }

    #[test]
    fn leaves_a_living_owner_and_what_is_not_ours_alone() {
        let base = tempfile::tempdir().unwrap();
        let registry = ProcessRegistry::make(base.path(), Path::new("/run/a")).unwrap();
        let results = base.path().join("dbdyno-results");
        std::fs::create_dir(&results).unwrap();
        std::fs::write(results.join("run.sqlite"), "precious").unwrap();
        sweep(base.path(), Path::new("/run/b")).unwrap();
        assert!(registry.directory.exists() && results.join("run.sqlite").exists());
        let directory = registry.directory.clone();
        drop(registry);
        assert!(!directory.exists());
    }

    #[test]
    fn a_link_in_a_shared_directory_is_not_followed() {
        let base = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let directory = abandoned(other.path(), Path::new("/run/a"), |_| {});
        let link = base.path().join("dbdyno-abcdef");
        std::os::unix::fs::symlink(&directory, &link).unwrap();
        sweep(base.path(), Path::new("/run/b")).unwrap();
        assert!(directory.exists() && std::fs::symlink_metadata(&link).is_ok());
    }

    #[test]
    fn what_another_user_owns_is_not_looked_at() {
        if !we_are_root() {
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let directory = abandoned(base.path(), Path::new("/run/a"), |_| {});
        lchown_to_nobody(&directory);
        sweep(base.path(), Path::new("/run/b")).unwrap();
        assert!(directory.exists());
    }

    fn lchown_to_nobody(path: &Path) {
        std::os::unix::fs::lchown(path, Some(65_534), Some(65_534)).unwrap();
    }

    #[test]
    fn a_place_keeps_its_sockets_apart_from_others() {
        let base = tempfile::tempdir().unwrap();
        let registry = ProcessRegistry::make(base.path(), Path::new("/run/a")).unwrap();
        let (a, b) = (registry.sockets("a"), registry.sockets("b"));
        assert_ne!(a, b);
        assert_eq!(registry.sockets("a"), a);
        registry.make_sockets("a", None).unwrap();
        assert_eq!(std::fs::metadata(&a).unwrap().mode() & 0o777, 0o700);
    }
}
