use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use dbdyno_machine::safe_files::SafeDir;
use dbdyno_types::CertificateFingerprint;
use dbdyno_types::server::{ServerSystem, Target};
use dbdyno_units::Bytes;

use super::access::ServerCertificate;
use super::error::system;
use super::launcher::{ChildGuard, Launcher, LogPosition, describe_exit};
use super::process::{POLL_INTERVAL, PausedServer};
use super::systems::{ProgramFacts, ServerProgram, server_program};
use super::{Network, ServerDir, ServerError, ServerPlan};

/// How long a starting server may log nothing.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a start may take in total: recovery may be long.
const START_TIMEOUT: Duration = Duration::from_secs(600);

/// How long a clean shutdown may take: the server writes back its cache.
const STOP_TIMEOUT: Duration = Duration::from_secs(120);

/// The limit for the size of a public key file, which has less than 1 KiB.
const MAX_PUBLIC_KEY: Bytes = Bytes::from_mib(1);

/// Creates a new data directory. If it fails, nothing is left.
pub fn initialise(plan: &ServerPlan, server_dir: &ServerDir) -> Result<(), ServerError> {
    let program = server_program(plan.installation.system);
    let filled = server_dir.fill(|incomplete| {
        let launcher = launcher(program, plan, incomplete, None)?;
        tracing::info!(directory = %server_dir.path().display(), "initialising a server");
        incomplete.create(launcher.user.as_ref())?;
        program.initialise(plan, incomplete, &launcher)
    });
    filled.map_err(ServerError::without_log_file)
}

fn launcher(
    program: &dyn ServerProgram,
    plan: &ServerPlan,
    server_dir: &ServerDir,
    cpus: Option<&str>,
) -> Result<Launcher, ServerError> {
    let ProgramFacts { user, death_signal, .. } = program.facts();
    Launcher::new(server_dir, user, cpus, death_signal, &plan.environment)
}

/// A running server. Dropping it kills the server and all processes that it started, and waits.
///
/// The kernel also kills it when the thread that started it exits: start it from dbdyno's main
/// thread.
pub struct Server {
    processes: ChildGuard,
    program: &'static dyn ServerProgram,
    kind: ServerSystem,
    server_dir: ServerDir,
    log: LogPosition,
    network: Option<Network>,
    /// The certificate for connections over the network.
    certificate: Option<CertificateFingerprint>,
}

impl Server {
    /// Starts the server in `server_dir`, on the CPUs in `cpus` (such as `0,2-3`), and waits until it
    /// accepts connections: at most ten minutes, and at most one minute without a new line in its log.
    pub fn start(
        plan: &ServerPlan,
        server_dir: &ServerDir,
        cpus: Option<&str>,
    ) -> Result<Self, ServerError> {
        Self::start_with(plan, server_dir, cpus, None)
    }

    /// As [`Self::start`]; the server also listens on the network.
    pub fn start_on_network(
        plan: &ServerPlan,
        server_dir: &ServerDir,
        cpus: Option<&str>,
        network: Network,
    ) -> Result<Self, ServerError> {
        Self::check_network(plan)?;
        let server = Self::start_with(plan, server_dir, cpus, Some(network))?;
        if let Some(network) = &server.network {
            let admitted = server.program.admit(&server.target(), network);
            let doing = "creating the account for the network";
            admitted.map_err(|error| server.failure(doing, &error.to_string()))?;
        }
        Ok(server)
    }

    /// Checks that a server can be started with [`Self::start_on_network`].
    pub fn check_network(plan: &ServerPlan) -> Result<(), ServerError> {
        server_program(plan.installation.system).check_network(plan)
    }

    /// For MySQL, the public key for passwords on connections without encryption, as PEM.
    pub fn public_key(&self) -> Result<Option<String>, ServerError> {
        let Some(name) = self.program.facts().public_key else { return Ok(None) };
        let data = self.server_dir.data();
        // The server's user can replace it by anything.
        let text = SafeDir::open(&data)
            .and_then(|directory| directory.read(Path::new(name), MAX_PUBLIC_KEY))
            .map_err(system("reading the server's public key", &data.join(name)))?;
        // MySQL ends the file with a zero byte.
        Ok(Some(String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned()))
    }

    /// The certificate for connections over the network, if they are encrypted.
    pub const fn certificate(&self) -> Option<CertificateFingerprint> {
        self.certificate
    }

    fn start_with(
        plan: &ServerPlan,
        server_dir: &ServerDir,
        cpus: Option<&str>,
        network: Option<Network>,
    ) -> Result<Self, ServerError> {
        let program = server_program(plan.installation.system);
        server_dir.check_stopped("starting a second server on")?;
        if !server_dir.exists() {
            let source = io::Error::from(io::ErrorKind::NotFound);
            return Err(system("looking for the server's data in", server_dir.path())(source));
        }
        let launcher = launcher(program, plan, server_dir, cpus)?;
        server_dir.create_sockets(launcher.user.as_ref())?;
        let certificate = match network.as_ref().filter(|network| network.tls) {
            Some(Network { address, .. }) => {
                let user = launcher.user.as_ref();
                let made = ServerCertificate::make(server_dir.path(), *address, user);
                Some(made.map_err(system("making a certificate in", server_dir.path()))?)
            }
            None => None,
        };
        let command = program.command(plan, server_dir, network.as_ref(), certificate.as_ref())?;
        let certificate = certificate.map(|made| made.fingerprint);
        let log = LogPosition::at_end_of(&server_dir.log());
        let processes = launcher.spawn(command, Stdio::null())?;
        plan.installation.check_process(processes.pid())?;
        let kind = plan.installation.system;
        let server_dir = server_dir.clone();
        let mut server = Self { processes, program, kind, server_dir, log, network, certificate };
        if let Some(process) = &server.processes.process {
            let server_dir = &server.server_dir;
            let registry = server_dir.registry();
            registry
                .add(process, &server_dir.data())
                .map_err(system("registering the server of", server_dir.path()))?;
        }
        let started = Instant::now();
        server.wait_until_ready().map_err(|error| error.because(plan.beyond_memory()))?;
        let (pid, time, title) = (server.pid(), started.elapsed(), kind.title());
        tracing::info!(server = server.server_dir.name(), pid, ?time, "started {title}");
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> Result<(), ServerError> {
        let started = Instant::now();
        let (mut logged, mut length) = (started, self.log.length());
        let target = self.target();
        let doing = format!("starting {}", self.kind.title());
        loop {
            if let Some(status) = self.processes.try_wait() {
                return Err(self.failure(&doing, &describe_exit(status)));
            }
            if (self.program.facts().is_ready)(&target) {
                return Ok(());
            }
            let now = self.log.length();
            if now != length {
                (logged, length) = (Instant::now(), now);
            }
            if logged.elapsed() > SILENCE_TIMEOUT || started.elapsed() > START_TIMEOUT {
                let seconds = started.elapsed().as_secs();
                let how = format!("it accepts no connections after {seconds} s");
                return Err(self.failure(&doing, &how));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn failure(&self, doing: &str, how: &str) -> ServerError {
        self.log.failure(doing, how, self.server_dir.path())
    }

    /// Warnings and errors that it has logged since its start, without their times.
    pub fn warnings(&self) -> Vec<String> {
        self.log.warnings()
    }

    pub fn pid(&self) -> u32 {
        self.processes.pid()
    }

    /// Whether it has a process for each session.
    pub fn has_process_per_session(&self) -> bool {
        self.kind.has_process_per_session()
    }

    /// How to reach it through its socket.
    pub fn target(&self) -> Target {
        (self.program.facts().target)(&self.server_dir, self.network.as_ref())
    }

    /// How the server exited, with the end of its log; `None` while it runs. It should exit only on
    /// request.
    pub fn ended(&mut self) -> Option<ServerError> {
        let status = self.processes.try_wait()?;
        Some(self.failure(&format!("running {}", self.kind.title()), &describe_exit(status)))
    }

    /// Copies the data to `to`, which must not exist, while all processes of the server are stopped
    /// (SIGSTOP). The copy is what a crash of the server would leave; a server that starts on it
    /// recovers all committed transactions. Nothing is written back for the copy, and caches are not
    /// affected.
    pub fn copy_paused(&self, to: &ServerDir) -> Result<(), ServerError> {
        let paused = match &self.processes.process {
            Some(process) => PausedServer::new(process, &self.server_dir.data()),
            None => Err(io::Error::other("the server has exited")),
        };
        let paused = paused.map_err(system("pausing the server in", self.server_dir.path()))?;
        let copied = self.server_dir.copy_files_to(to);
        drop(paused);
        copied
    }

    /// Shuts the server down cleanly, so that its data needs no recovery. After two minutes it is
    /// killed.
    pub fn stop(mut self) -> Result<(), ServerError> {
        let doing = format!("stopping {}", self.kind.title());
        let requested = Instant::now();
        tracing::info!(server = self.server_dir.name(), pid = self.pid(), "{doing}");
        self.processes.signal(self.program.facts().stop_signal);
        loop {
            if let Some(status) = self.processes.try_wait() {
                return if status.success() {
                    Ok(())
                } else {
                    Err(self.failure(&doing, &describe_exit(status)))
                };
            }
            if requested.elapsed() > STOP_TIMEOUT {
                let seconds = STOP_TIMEOUT.as_secs();
                let how = format!("it was killed because it still ran after {seconds} s");
                return Err(self.failure(&doing, &how));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.processes.kill();
        if let Some(process) = &self.processes.process {
            // If the entry stays, it names a process that does not exist: harmless.
            let _ = self.server_dir.registry().remove(process);
        }
        self.server_dir.registry().remove_socket_dir(self.server_dir.name());
    }
}
