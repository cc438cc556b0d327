//! The directory of an agent, with all data of its servers, and the guard: a second process on the host that removes
//! it when the agent is killed.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, stdin};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use dbdyno_engines::server::ServerDirs;
use dbdyno_machine::{ProcessIdentity, Signal};
use rustix::process::{geteuid, setsid};

/// Where data is by default: on disk, unlike `/tmp` on many systems.
const BASE: &str = "/var/tmp";

const PREFIX: &str = "dbdyno-agent-";

/// A file that the agent locks while it lives.
const LOCK: &str = "lock";

/// A directory without a lock file is abandoned at this age: creating one takes milliseconds.
const ABANDONED_AFTER: Duration = Duration::from_secs(600);

/// The argument of this program for a guard, before the agent's directory.
const ARGUMENT: &str = "--guard";

/// How long cleaning up is tried.
const TRY_FOR: Duration = Duration::from_secs(120);

/// The directory of a living agent. Dropping it removes it.
#[derive(Debug)]
pub(super) struct AgentDir {
    path: PathBuf,
    program: PathBuf,
    _lock: File,
}

impl AgentDir {
    /// Creates a directory in `base` that other users can only traverse.
    pub(super) fn create(base: Option<PathBuf>, program: &Path) -> io::Result<Self> {
        let base = base.unwrap_or_else(|| PathBuf::from(BASE));
        let create = || -> io::Result<Self> {
            let path = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&base)?.keep();
            let lock = File::create_new(path.join(LOCK))?;
            lock.lock()?;
            // If this is root, servers run as another user, who must reach its data.
            let mode = if geteuid().is_root() { 0o711 } else { 0o700 };
            fs::set_permissions(&path, Permissions::from_mode(mode))?;
            fs::create_dir(path.join("data"))?;
            fs::set_permissions(path.join("data"), Permissions::from_mode(mode))?;
            Ok(Self { path, program: program.to_owned(), _lock: lock })
        };
        create().map_err(|error| {
            let text = format!("creating a directory for data in {}: {error}", base.display());
            io::Error::new(error.kind(), text)
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// The directory for journals of the live optimizer.
    pub(super) fn journals(&self) -> PathBuf {
        self.path.join("live")
    }

    /// A guard that removes the directory after the end of this process.
    pub(super) fn guard(&self) -> Guard {
        Guard::start(&self.program, &self.path)
    }

    /// Removes the directories beside this one whose agents and guards were both killed.
    pub(super) fn remove_abandoned(&self) {
        let Some(entries) = self.path.parent().and_then(|base| fs::read_dir(base).ok()) else {
            return;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            if path != self.path && is_of_agent(&path) && is_abandoned(&path) {
                remove(&path);
            }
        }
    }
}

impl Drop for AgentDir {
    fn drop(&mut self) {
        // What remains is the guard's.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Whether it is a directory of an agent of this user.
pub(super) fn is_of_agent(path: &Path) -> bool {
    let named =
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()));
    let own = |metadata: fs::Metadata| metadata.is_dir() && metadata.uid() == geteuid().as_raw();
    named && fs::symlink_metadata(path).is_ok_and(own)
}

fn is_abandoned(path: &Path) -> bool {
    match File::open(path.join(LOCK)) {
        Ok(lock) => lock.try_lock().is_ok(),
        Err(_) => fs::symlink_metadata(path)
            .and_then(|metadata| metadata.modified())
            .is_ok_and(|time| time.elapsed().is_ok_and(|age| age > ABANDONED_AFTER)),
    }
}

/// Ends the servers in the directory of an agent that has ended, and removes it. Errors are ignored: the
/// next agent tries again.
pub(super) fn remove(path: &Path) {
    // Kills the servers that the agent registered, and removes their sockets and shared memory.
    let opened = ServerDirs::open(&path.join("data"));
    // Other programs there create data.
    kill_processes_in(path);
    if let Ok(directories) = opened {
        let _ = directories.remove();
    }
    let _ = fs::remove_dir_all(path);
}

/// Kills the processes that work in a directory. One that executes another program meanwhile is not the same to a
/// signal any more, and one that is killed may have started another: it is tried until there is none.
fn kill_processes_in(directory: &Path) {
    const TRIES: u32 = 200;
    for _ in 0..TRIES {
        let Ok(processes) = fs::read_dir("/proc") else { return };
        let works_there = |process: &fs::DirEntry| {
            fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(directory))
        };
        let mut found = false;
        for process in processes.flatten().filter(works_there) {
            found = true;
            let pid = process.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(Ok(process)) = pid.map(ProcessIdentity::of) {
                // One that has ended meanwhile needs no signal.
                let _ = process.signal(Signal::KILL);
            }
        }
        if !found {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// The guard of a living agent, which waits for the end of its input.
#[derive(Debug)]
pub(super) struct Guard {
    program: PathBuf,
    directory: PathBuf,
    /// `None` if it could not be started.
    child: Option<Child>,
}

impl Guard {
    /// Starts `program` as the guard of an agent with this directory.
    pub(super) fn start(program: &Path, directory: &Path) -> Self {
        let (program, directory) = (program.to_owned(), directory.to_owned());
        let mut guard = Self { program, directory, child: None };
        guard.ensure();
        guard
    }

    /// Starts it again, if it was killed.
    pub(super) fn ensure(&mut self) {
        let runs = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        if !self.child.as_mut().is_some_and(runs) {
            self.child = self.spawn().ok();
        }
    }

    fn spawn(&self) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        command.args(["agent", ARGUMENT]).arg(&self.directory).current_dir("/");
        // Its outputs are not ssh's, which would wait for it.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: `setsid` is a system call and async-signal-safe.
        unsafe { command.pre_exec(|| Ok(setsid().map(drop)?)) };
        command.spawn()
    }
}

/// Waits for the end of the agent, which holds the other end of standard input, then ends its servers and
/// removes its directory.
pub fn guard(directory: &Path) {
    // An error is an end, too.
    let _ = stdin().read_to_end(&mut Vec::new());
    let started = Instant::now();
    while is_of_agent(directory) && started.elapsed() < TRY_FOR {
        remove(directory);
        if fs::symlink_metadata(directory).is_ok() {
            thread::sleep(Duration::from_millis(200));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent_dir(base: &Path) -> AgentDir {
        AgentDir::create(Some(base.to_owned()), Path::new("/bin/true")).unwrap()
    }

    #[test]
    fn directory_is_removed_with_its_agent() {
        let base = tempfile::tempdir().unwrap();
        let directory = agent_dir(base.path());
        let path = directory.path().to_owned();
        assert!(is_of_agent(&path) && directory.data().is_dir());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o066, 0);
        drop(directory);
        assert!(!path.exists());
        let error = AgentDir::create(Some(path), Path::new("/bin/true")).unwrap_err().to_string();
        assert!(error.contains("creating a directory for data in"), "{error}");
    }

    #[test]
    fn only_directories_of_dead_agents_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let (own, living) = (agent_dir(base.path()), agent_dir(base.path()));
        let dead = base.path().join("dbdyno-agent-dead");
        fs::create_dir_all(dead.join("data/servers/a/data")).unwrap();
        fs::write(dead.join(LOCK), "").unwrap();
        let starting = base.path().join("dbdyno-agent-new");
        let other = base.path().join("dbdyno-results");
        fs::create_dir(&starting).unwrap();
        fs::create_dir(&other).unwrap();
        let mut worker = Command::new("sleep")
            .arg("60")
            .current_dir(dead.join("data/servers/a/data"))
            .spawn()
            .unwrap();
        own.remove_abandoned();
        let killed = worker.wait().unwrap();
        assert!(!killed.success());
        assert!(!dead.exists() && living.path().exists() && starting.exists() && other.exists());
    }

    #[test]
    fn link_of_another_user_is_not_followed() {
        let (base, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(other.path().join(LOCK), "").unwrap();
        let link = base.path().join("dbdyno-agent-link");
        std::os::unix::fs::symlink(other.path(), &link).unwrap();
        agent_dir(base.path()).remove_abandoned();
        assert!(other.path().join(LOCK).exists() && fs::symlink_metadata(&link).is_ok());
    }
}
