use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use dbdyno_machine::{CpuMask, CpuSet, FileSystemSpace, Signal, die_with_parent};

use super::error::system;
use super::log::LogMark;
use super::process::{Process, end_remains};
use super::program::Program;
use super::user::ServerUser;
use super::{ServerDir, ServerError};

/// How often a process that is waited for is looked at.
pub(crate) const GLANCE: Duration = Duration::from_millis(10);

/// Starts programs for a server_dir: as the server's user, on its CPUs, with nothing of our
/// environment, its output in the server_dir's log; and so that they end when dbdyno does.
#[derive(Clone, Debug)]
pub(crate) struct Launcher {
    pub(crate) user: Option<ServerUser>,
    cpus: Option<CpuMask>,
    death_signal: Signal,
    server_dir: ServerDir,
    environment: Vec<(String, String)>,
}

impl Launcher {
    pub(crate) fn new(
        kind: &dyn Program,
        server_dir: &ServerDir,
        cpus: Option<&str>,
    ) -> Result<Self, ServerError> {
        let user = ServerUser::choose(kind.user()).map_err(system(
            "looking for a user to run the server as, for",
            server_dir.directory(),
        ))?;
        let cpus = cpus.map(str::parse::<CpuSet>).transpose().map_err(|error| {
            ServerError::Setting { name: "cpus".to_owned(), reason: error.to_string() }
        })?;
        let cpus = cpus.map(|cpus| cpus.mask());
        let (death_signal, server_dir, environment) =
            (kind.death_signal(), server_dir.clone(), Vec::new());
        Ok(Self { user, cpus, death_signal, server_dir, environment })
    }

    /// The same, with this in the environment of what it starts.
    pub(crate) fn with_environment(self, environment: &[(String, String)]) -> Self {
        Self { environment: environment.to_vec(), ..self }
    }

    /// Starts the command in a process group of its own.
    pub(crate) fn spawn(&self, mut command: Command) -> Result<Group, ServerError> {
        let program = PathBuf::from(command.get_program());
        clean_environment(&mut command);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env("HOME", self.server_dir.directory()).env("TMPDIR", self.server_dir.temporary());
        let log = self.open_log().map_err(system("opening the log", &self.server_dir.log()))?;
        let errors = log.try_clone().map_err(system("opening the log", &self.server_dir.log()))?;
        command.stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0);
        command.current_dir(self.server_dir.data());
        let (user, cpus) = (self.user.clone(), self.cpus.clone());
        let (signal, parent) = (self.death_signal, std::process::id());
        // SAFETY: what runs between fork and exec are system calls on data made beforehand; it
        // allocates nothing and takes no locks.
        unsafe {
            command.pre_exec(move || {
                if let Some(cpus) = &cpus {
                    cpus.pin_current_thread()?;
                }
                if let Some(user) = &user {
                    become_user(user)?;
                }
                libc::umask(0o077);
                // After the change of user, which clears it.
                die_with_parent(signal, parent)
            });
        }
        let child = command.spawn().map_err(system("starting", &program))?;
        let process = Process::now(child.id());
        Ok(Group { child, process, home: self.server_dir.data(), status: None })
    }

    /// Runs the command to its end.
    ///
    /// # Errors
    /// It failed, the disk was full, or it took longer than `limit`.
    pub(crate) fn run(
        &self,
        doing: &str,
        command: Command,
        limit: Duration,
    ) -> Result<(), ServerError> {
        let mark = LogMark::at_end_of(&self.server_dir.log());
        let started = Instant::now();
        let mut group = self.spawn(command)?;
        loop {
            if let Some(status) = group.ended() {
                return if status.success() {
                    Ok(())
                } else {
                    Err(mark.failure(doing, &ended(status), &self.server_dir))
                };
            }
            // Some servers wait for somebody to make room, for ever.
            if mark.says_disk_is_full() {
                return Err(mark.failure(doing, "it waits for room on the disk", &self.server_dir));
            }
            if started.elapsed() > limit {
                let how = format!("it is not done after {} s", limit.as_secs());
                return Err(mark.failure(doing, &how, &self.server_dir));
            }
            std::thread::sleep(GLANCE);
        }
    }

    fn open_log(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600).open(self.server_dir.log())
    }
}

/// A started program and all that it starts. Dropping it kills them and waits.
#[derive(Debug)]
pub(crate) struct Group {
    child: Child,
    /// None where it ended before it could be looked at.
    pub(crate) process: Option<Process>,
    home: PathBuf,
    status: Option<ExitStatus>,
}

impl Group {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has; what it started ends with it.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() && self.is_over() {
            self.finish();
        }
        self.status
    }

    /// Asks the program, and not what it started, to end.
    pub(crate) fn signal(&self, signal: i32) {
        if self.status.is_none() {
            // SAFETY: takes numbers only; the child was not waited for, so the number is its own.
            unsafe { libc::kill(self.pid().cast_signed(), signal) };
        }
    }

    /// Ends whatever is left, and waits for it.
    pub(crate) fn finish(&mut self) {
        if self.status.is_some() {
            return;
        }
        // SAFETY: takes numbers only; the child was not waited for, so the group is its own.
        unsafe { libc::kill(-self.pid().cast_signed(), libc::SIGKILL) };
        self.status = self.child.wait().ok();
        if let Some(process) = &self.process {
            // Nothing can be done about what cannot be ended, and its data is found locked.
            let _ = end_remains(process, &self.home);
        }
    }

    /// Whether the program ended, without forgetting its number as `wait` does.
    fn is_over(&self) -> bool {
        // SAFETY: an all-zero siginfo_t is a valid value of this plain C structure.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: `info` is ours and outlives the call.
        let status = unsafe { libc::waitid(libc::P_PID, self.pid(), &raw mut info, options) };
        // SAFETY: waitid filled it in, or left the zeros that mean no child.
        status != 0 || unsafe { info.si_pid() } != 0
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.finish();
    }
}

/// How a program ended, in words.
pub(crate) fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with exit code {code}"),
        (None, Some(libc::SIGKILL)) => {
            "it was killed (by somebody, or by the kernel for want of memory)".to_owned()
        }
        (None, Some(signal)) => format!("it was ended by signal {signal}"),
        (None, None) => "it ended".to_owned(),
    }
}

/// Leaves nothing of our environment that a server or its tools would read, such as `MYSQL_HOME`
/// or `PGDATA`, and has them speak English.
pub(crate) fn clean_environment(command: &mut Command) {
    command.env_clear().env("LC_ALL", "C").env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
}

fn become_user(user: &ServerUser) -> io::Result<()> {
    // SAFETY: the list of groups has the length that is given; the rest are numbers.
    let done = unsafe {
        libc::setgroups(user.groups.len(), user.groups.as_ptr()) == 0
            && libc::setgid(user.gid) == 0
            && libc::setuid(user.uid) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Bytes that are free for everybody on the file system of `path`.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    FileSystemSpace::of(path).ok().map(|space| space.free.as_bytes())
}
