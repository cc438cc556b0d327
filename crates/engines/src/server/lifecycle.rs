use std::time::{Duration, Instant};

use dbdyno_record::server::Target;

use super::error::system;
use super::log::LogMark;
use super::pause::Paused;
use super::program::{Program, program};
use super::spawn::{GLANCE, Group, Launcher, ended};
use super::{ServerDir, ServerError, ServerPlan};

/// How long a server may start without a word in its log.
const SILENCE: Duration = Duration::from_secs(60);

/// How long it may take to start at all: it may have much to recover.
const START_LIMIT: Duration = Duration::from_secs(600);

/// How long a clean shutdown may take: it writes back what memory holds.
const STOP_LIMIT: Duration = Duration::from_secs(120);

/// Makes a new data directory in a server_dir where nothing is yet. One that fails leaves nothing.
///
/// # Errors
/// Something is there already, or the system's own program for it failed; a full disk among the
/// reasons.
pub fn initialise(plan: &ServerPlan, server_dir: &ServerDir) -> Result<(), ServerError> {
    let kind = program(plan.installation().system);
    server_dir.fill(|unfinished| {
        let launcher = Launcher::new(kind, unfinished, None)?;
        let launcher = launcher.with_environment(&plan.environment);
        tracing::info!(directory = %server_dir.directory().display(), "initialising a server");
        unfinished.make(launcher.user.as_ref())?;
        kind.initialise(plan, unfinished, &launcher)
    })
}

/// A running server. Dropping it kills it, and all processes that it started, and waits.
///
/// It also ends when the thread that started it does, however that comes about: start it from
/// dbdyno's main thread.
pub struct Server {
    group: Group,
    kind: &'static dyn Program,
    title: &'static str,
    server_dir: ServerDir,
    mark: LogMark,
}

impl Server {
    /// Starts the server that lives in `server_dir`, on the CPUs in `cpus` (such as `0,2-3`), and
    /// waits until it lets connections in: up to ten minutes, and up to one without a word in
    /// its log.
    ///
    /// # Errors
    /// There is no data, the server ended or took too long (its log's last lines are in the
    /// error), or it may not use these CPUs.
    pub fn start(
        plan: &ServerPlan,
        server_dir: &ServerDir,
        cpus: Option<&str>,
    ) -> Result<Self, ServerError> {
        let kind = program(plan.installation().system);
        server_dir.check_idle("starting a second server on")?;
        if !server_dir.exists() {
            let source = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(system("looking for the server's data in", server_dir.directory())(source));
        }
        let launcher = Launcher::new(kind, server_dir, cpus)?.with_environment(&plan.environment);
        server_dir
            .registry()
            .make_sockets(server_dir.name(), launcher.user.as_ref())
            .map_err(system("making the directory", &server_dir.sockets()))?;
        let command = kind.command(plan, server_dir)?;
        let mark = LogMark::at_end_of(&server_dir.log());
        let group = launcher.spawn(command)?;
        let title = plan.installation().system.title();
        let mut server = Self { group, kind, title, server_dir: server_dir.clone(), mark };
        if let Some(process) = &server.group.process {
            let file = server_dir.sockets();
            server_dir
                .registry()
                .add(process, &server_dir.data())
                .map_err(system("writing down the server for", &file))?;
        }
        let started = Instant::now();
        server.wait_until_ready()?;
        let (pid, time) = (server.pid(), started.elapsed());
        tracing::info!(server = server_dir.name(), pid, ?time, "started {title}");
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> Result<(), ServerError> {
        let started = Instant::now();
        let (mut heard, mut length) = (started, self.mark.length());
        let target = self.target();
        let doing = format!("starting {}", self.title);
        loop {
            if let Some(status) = self.group.ended() {
                return Err(self.mark.failure(&doing, &ended(status), &self.server_dir));
            }
            if self.kind.is_ready(&target) {
                return Ok(());
            }
            let now = self.mark.length();
            if now != length {
                (heard, length) = (Instant::now(), now);
            }
            if heard.elapsed() > SILENCE || started.elapsed() > START_LIMIT {
                let seconds = started.elapsed().as_secs();
                let how = format!("it lets no connection in after {seconds} s");
                return Err(self.mark.failure(&doing, &how, &self.server_dir));
            }
            std::thread::sleep(GLANCE);
        }
    }

    /// Its process; for a server of several, the first one, whose group the others are in.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.group.pid()
    }

    /// How to reach it.
    #[must_use]
    pub fn target(&self) -> Target {
        self.kind.target(&self.server_dir)
    }

    /// How it ended, with the last lines of its log, where it has: a server ends only when it is
    /// asked to.
    pub fn ended(&mut self) -> Option<ServerError> {
        let status = self.group.ended()?;
        let doing = format!("running {}", self.title);
        Some(self.mark.failure(&doing, &ended(status), &self.server_dir))
    }

    /// Copies its data to `to`, where nothing may be, while all its processes stand still: what a
    /// power cut would leave, less what it had not yet handed to the kernel. A server that is
    /// started there recovers all that was committed. Nothing is written back for the copy, and
    /// caches stay as they are.
    ///
    /// # Errors
    /// The server has ended or cannot be stopped, or the data cannot be copied; a full disk among
    /// the reasons.
    pub fn copy_paused(&self, to: &ServerDir) -> Result<(), ServerError> {
        let directory = self.server_dir.directory();
        let Some(process) = &self.group.process else {
            let source = std::io::Error::other("the server has ended");
            return Err(system("pausing the server in", directory)(source));
        };
        let paused = Paused::new(process, &self.server_dir.data())
            .map_err(system("pausing the server in", directory))?;
        let copied = self.server_dir.copy_files_to(to);
        drop(paused);
        copied
    }

    /// Shuts it down so that its data needs no recovery: up to two minutes, then it is killed.
    ///
    /// # Errors
    /// It took longer than that, or ended in another way; its log's last lines are in the error.
    pub fn stop(mut self) -> Result<(), ServerError> {
        let doing = format!("stopping {}", self.title);
        let asked = Instant::now();
        tracing::info!(server = self.server_dir.name(), pid = self.pid(), "{doing}");
        self.group.signal(self.kind.stop_signal());
        loop {
            if let Some(status) = self.group.ended() {
                return if status.success() {
                    Ok(())
                } else {
                    Err(self.mark.failure(&doing, &ended(status), &self.server_dir))
                };
            }
            if asked.elapsed() > STOP_LIMIT {
                let seconds = STOP_LIMIT.as_secs();
                let how = format!("it was killed, because it still ran after {seconds} s");
                return Err(self.mark.failure(&doing, &how, &self.server_dir));
            }
            std::thread::sleep(GLANCE);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.group.finish();
        if let Some(process) = &self.group.process {
            // A record that cannot be written names a process that is gone: it does no harm.
            let _ = self.server_dir.registry().strike(process);
        }
        self.server_dir.registry().remove_sockets(self.server_dir.name());
    }
}
