use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dbdyno_machine::{CpuMask, CpuSet, Signal, die_with_parent};
use rustix::fs::{Mode, OFlags};
use rustix::process::umask;

use super::child_guard::ChildGuard;
use super::command::{clear_environment, describe_exit};
use super::error::system;
use super::log::LogPosition;
use super::process::POLL_INTERVAL;
use super::user::ServerUser;
use super::{ServerDir, ServerError};

/// Starts programs in a server's directory: as the server's user, on its CPUs, with an empty
/// environment and their output in the server's log. They are killed when dbdyno's main thread exits.
#[derive(Clone, Debug)]
pub(crate) struct Launcher {
    pub(crate) user: Option<ServerUser>,
    cpus: Option<CpuMask>,
    death_signal: Signal,
    server_dir: ServerDir,
    environment: Vec<(String, String)>,
}

impl Launcher {
    /// `user` is the name of the server's user, `cpus` a list such as `0,2-3`, and `death_signal` is
    /// sent when dbdyno's main thread exits. The environment of the programs is `environment` only.
    pub(crate) fn new(
        server_dir: &ServerDir,
        user: &str,
        cpus: Option<&str>,
        death_signal: Signal,
        environment: &[(String, String)],
    ) -> Result<Self, ServerError> {
        let user = ServerUser::choose(user)
            .map_err(system("choosing a user to run the server as, for", server_dir.path()))?;
        let cpus = cpus.map(str::parse::<CpuSet>).transpose().map_err(|error| {
            ServerError::Setting { name: "cpus".to_owned(), reason: error.to_string() }
        })?;
        Ok(Self {
            user,
            cpus: cpus.map(|cpus| cpus.mask()),
            death_signal,
            server_dir: server_dir.clone(),
            environment: environment.to_vec(),
        })
    }

    /// Starts the command in its own process group.
    pub(crate) fn spawn(&self, mut command: Command) -> Result<ChildGuard, ServerError> {
        let program = PathBuf::from(command.get_program());
        let (directory, data) = (self.server_dir.path(), self.server_dir.data());
        clear_environment(&mut command);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env("HOME", directory).env("TMPDIR", self.server_dir.temporary());
        let log = self.open_log().map_err(system("opening the log", &self.server_dir.log()))?;
        let errors = log.try_clone().map_err(system("opening the log", &self.server_dir.log()))?;
        command.stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0);
        command.current_dir(&data);
        let (user, cpus) = (self.user.clone(), self.cpus.clone());
        let (signal, parent) = (self.death_signal, std::process::id());
        // SAFETY: between fork and exec only system calls are made, on data prepared before; nothing
        // is allocated and no lock is taken.
        unsafe {
            command.pre_exec(move || {
                if let Some(cpus) = &cpus {
                    cpus.pin_current_thread()?;
                }
                if let Some(user) = &user {
                    user.assume()?;
                }
                umask(Mode::from_raw_mode(0o077));
                // After the change of user, which clears it.
                die_with_parent(signal, parent)
            });
        }
        let child = command.spawn().map_err(system("starting", &program))?;
        Ok(ChildGuard::new(child, data))
    }

    /// Runs the command to its end.
    ///
    /// # Errors
    /// It failed, the disk is full, or it ran for longer than `timeout`.
    pub(crate) fn run(
        &self,
        doing: &str,
        command: Command,
        timeout: Duration,
    ) -> Result<(), ServerError> {
        let directory = self.server_dir.path();
        let log = LogPosition::at_end_of(&self.server_dir.log());
        let started = Instant::now();
        let mut processes = self.spawn(command)?;
        loop {
            if let Some(status) = processes.try_wait() {
                return if status.success() {
                    Ok(())
                } else {
                    Err(log.failure(doing, &describe_exit(status), directory))
                };
            }
            // Some servers wait indefinitely for free disk space.
            if log.is_disk_full() {
                return Err(log.failure(doing, "it waits for free disk space", directory));
            }
            if started.elapsed() > timeout {
                let how = format!("it has not finished after {} s", timeout.as_secs());
                return Err(log.failure(doing, &how, directory));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn open_log(&self) -> io::Result<File> {
        let nofollow = OFlags::NOFOLLOW.bits().cast_signed();
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600).custom_flags(nofollow);
        options.open(self.server_dir.log())
    }
}
