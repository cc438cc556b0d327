//! A process that ends the counting of executions if dbdyno is killed meanwhile, or cannot end it.
//!
//! The code that counts is slow, and must not stay active. The guard waits for the end of a pipe whose other
//! end only dbdyno has: the kernel closes it when dbdyno ends for any reason, and dbdyno after an error.

use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use dbdyno_live::{LiveError, ProbeOptions};

use super::Session;
use crate::args::TargetProcess;
use crate::commands::own_program;
use crate::error::CliError;
use crate::output;

/// Name of the command that the guard runs.
const COMMAND: &str = "guard-counting";

/// The guard of this process. Ends when it is dropped.
pub(super) struct CountingGuard(Option<Child>);

impl CountingGuard {
    /// Starts the guard of the counting in process `pid`.
    ///
    /// # Errors
    /// It could not be started.
    pub(super) fn start(
        session: &Session,
        pid: u32,
        max_pause: Duration,
    ) -> Result<Self, CliError> {
        let program = own_program()?;
        let mut command = Command::new(&program);
        command.args(["live", COMMAND, "--pid", &pid.to_string()]);
        command.args(["--max-pause", &max_pause.as_millis().to_string(), "--state"]);
        command.arg(&session.state).stdin(Stdio::piped()).stdout(Stdio::null());
        // Ctrl-C is for dbdyno, which ends the counting itself.
        let started = command.process_group(0).spawn();
        started.map(|guard| Self(Some(guard))).map_err(|error| {
            CliError::Other(format!("starting the guard, {}: {error}", program.display()))
        })
    }

    /// Has the guard activate the original code, as soon as this dbdyno is not attached any more.
    pub(super) fn act(mut self) {
        if let Some(mut guard) = self.0.take() {
            // This closes its standard input.
            thread::spawn(move || guard.wait());
        }
    }
}

impl Drop for CountingGuard {
    fn drop(&mut self) {
        if let Some(guard) = &mut self.0 {
            // It waits for its standard input, which is open until then: it has not done anything.
            let _ = guard.kill();
            let _ = guard.wait();
        }
    }
}

/// That code that counts was deactivated.
pub(super) fn ended(pid: u32) -> String {
    format!(
        "an interrupted dbdyno counted executions in process {pid}: the original code is active now"
    )
}

/// Time in which the guard tries again to activate the original code. Right after dbdyno was killed, the kernel may
/// not have ended its tracing yet; or the process is stopped, or another program traces it.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

/// Waits until the dbdyno that started this process has ended, and then activates the original code, if
/// code that counts is active. SIGINT, SIGTERM and SIGHUP are ignored.
pub(super) fn guard(session: &Session, target: &TargetProcess) -> Result<ExitCode, CliError> {
    // They may be sent to dbdyno and its guard together, as `systemctl stop` does.
    ctrlc::set_handler(|| ())
        .map_err(|error| CliError::Other(format!("handling signals: {error}")))?;
    // An error is the end, too.
    let _ = io::stdin().read_to_end(&mut Vec::new());
    let start = Instant::now();
    loop {
        match end_counting(session, target) {
            Ok(()) => return Ok(ExitCode::SUCCESS),
            Err(error @ LiveError::Exited { .. }) => return Err(error.into()),
            Err(error) if start.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

fn end_counting(session: &Session, target: &TargetProcess) -> Result<(), LiveError> {
    let pid = target.pid;
    let probe = ProbeOptions { allow_seccomp: true, unmap: false };
    let mut attachment = session.attach(pid, probe, target.options.max_pause())?;
    if attachment.end_abandoned_counting()? {
        output::note(&ended(pid));
    }
    Ok(())
}
