//! dbdyno's side of the protocol.

use std::fs::File;
use std::io::{self, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dbdyno_engines::SchemaRemoval;
use dbdyno_machine::{Signal, die_with_parent};
use dbdyno_types::insert::{Second, StepMeasured};
use dbdyno_types::profile::{Profile, Waits};
use dbdyno_types::{SliceMeasured, StateSnapshot, StatementPlan};
use dbdyno_units::Nanos;
use dbdyno_workloads::definition::Microbenchmark;
use rustix::event::Timespec;
use rustix::fs::OFlags;

use crate::error::ServeError;
use crate::protocol::{
    self, Failed, InsertStep, Open, Opened, Prepare, Reading, RefusedStatement, Request, Response,
    SliceRequest, StepReading, StepUsages, TimedUsage,
};
use crate::waiting::sleep_until_readable;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    /// The worker could not be started.
    #[error("starting a worker: {0}")]
    NotStarted(String),
    /// The server failed.
    #[error("{whole}")]
    Server {
        /// The message, in one line.
        brief: String,
        /// The message with the last lines of the server's log.
        whole: String,
    },
    /// The worker exited: the system under test crashed, or the worker was killed.
    #[error("the worker {ended} while {doing}{}", last_lines(.log))]
    Died {
        /// The exit status, such as `was killed by signal 9 (SIGKILL)`.
        ended: String,
        doing: &'static str,
        /// The last lines of its error output.
        log: String,
    },
    /// The request failed.
    #[error("{doing}: {message}")]
    Failed {
        doing: &'static str,
        message: String,
        /// Whether a connection is lost.
        lost_connection: bool,
    },
    /// The user asked to stop, and the worker took too long, as in an endless loop of a script: it was killed.
    #[error("the worker was killed because it did not stop")]
    Stopped,
}

impl WorkerError {
    /// A failed request, without the loss of a connection.
    pub fn failed(doing: &'static str, message: impl ToString) -> Self {
        Self::Failed { doing, message: message.to_string(), lost_connection: false }
    }

    /// Whether the worker, its server, or a connection between them is lost: the same request may
    /// succeed after a restart. Other failures, such as a full disk, would occur again.
    pub const fn is_loss(&self) -> bool {
        match self {
            Self::Server { .. } | Self::Died { .. } => true,
            Self::Failed { lost_connection, .. } => *lost_connection,
            Self::NotStarted(_) | Self::Stopped => false,
        }
    }

    /// The message without lines of logs.
    pub fn brief(&self) -> String {
        match self {
            Self::Server { brief, .. } => brief.clone(),
            Self::Died { ended, doing, .. } => format!("the worker {ended} while {doing}"),
            Self::NotStarted(_) | Self::Failed { .. } | Self::Stopped => self.to_string(),
        }
    }
}

fn last_lines(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("; last lines of its log: {log}") }
}

/// By how much longer than a slice a worker may take to end what it does after the user asked to stop.
pub const STOP_TIME: Nanos = Nanos::from_secs(10);

/// How often it is checked whether the user asked to stop.
const CHECK: Duration = Duration::from_secs(1);

/// A running worker. Dropping it kills the process.
#[derive(Debug)]
pub struct WorkerHandle {
    child: Child,
    requests: Option<ChildStdin>,
    responses: BufReader<ChildStdout>,
    log: PathBuf,
    /// Set when the user asks to stop.
    cancel: Arc<AtomicBool>,
    /// When that was noticed.
    stopping: Option<Instant>,
    stop_time: Duration,
    longest_slice: Duration,
}

/// Sends a request and takes a part of the response, which must match the pattern.
macro_rules! ask {
    ($worker:ident, $request:expr, $doing:expr, $response:pat => $part:expr) => {
        match $worker.request($request, $doing)? {
            $response => Ok($part),
            other => Err(unexpected($doing, &other)),
        }
    };
}

/// An empty log. A symbolic link of this name is not followed.
fn new_log(log: &Path) -> io::Result<File> {
    let nofollow = OFlags::NOFOLLOW.bits().cast_signed();
    File::options().write(true).create(true).truncate(true).custom_flags(nofollow).open(log)
}

impl WorkerHandle {
    /// Starts `command` as a worker, with its error output in the file `log`. The command must
    /// call [`crate::serve`] on its standard input and output. Once `cancel` is set, it is killed if it takes
    /// [`STOP_TIME`] longer than a slice.
    ///
    /// The kernel kills the worker when the calling thread ends, even if dbdyno is killed. The
    /// worker has its own process group, so that Ctrl-C in a terminal does not affect it.
    pub fn start(
        command: &mut Command,
        log: &Path,
        cancel: Arc<AtomicBool>,
    ) -> Result<Self, WorkerError> {
        let failed = |error: io::Error| WorkerError::NotStarted(error.to_string());
        let errors = new_log(log).map_err(|error| {
            WorkerError::NotStarted(format!("creating its log {}: {error}", log.display()))
        })?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).process_group(0);
        let parent = std::process::id();
        // SAFETY: `die_with_parent` is async-signal-safe.
        unsafe { command.pre_exec(move || die_with_parent(Signal::KILL, parent)) };
        let mut child = command.spawn().map_err(failed)?;
        let no_pipes = || WorkerError::NotStarted("it has no pipes".to_owned());
        let requests = Some(child.stdin.take().ok_or_else(no_pipes)?);
        let responses = BufReader::new(child.stdout.take().ok_or_else(no_pipes)?);
        Ok(Self {
            child,
            requests,
            responses,
            log: log.to_owned(),
            cancel,
            stopping: None,
            stop_time: STOP_TIME.into(),
            longest_slice: Duration::ZERO,
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn open(&mut self, open: Open) -> Result<Opened, WorkerError> {
        let request = Request::Open(Box::new(open));
        ask!(self, &request, "opening the instance", Response::Opened(opened) => opened)
    }

    pub fn load(&mut self) -> Result<(), WorkerError> {
        self.request_done(&Request::Load, "loading the tables")
    }

    pub fn warm(&mut self) -> Result<(), WorkerError> {
        self.request_done(&Request::Warm, "warming the caches")
    }

    pub fn settle(&mut self) -> Result<(), WorkerError> {
        self.request_done(&Request::Settle, "settling the database")
    }

    pub fn state_snapshot(&mut self) -> Result<StateSnapshot, WorkerError> {
        let doing = "reading the state of the database";
        ask!(self, &Request::StateSnapshot, doing, Response::StateSnapshot(snapshot) => snapshot)
    }

    pub fn prepare(&mut self, prepare: Prepare) -> Result<(), WorkerError> {
        self.request_done(&Request::Prepare(Box::new(prepare)), "preparing statements")
    }

    pub fn slice(&mut self, order: SliceRequest) -> Result<SliceMeasured, WorkerError> {
        self.slice_on_host(order, &mut |_| None)
    }

    /// Runs one slice on a server of another host; `read` takes the readings of its usage there.
    pub fn slice_on_host(
        &mut self,
        order: SliceRequest,
        read: &mut dyn FnMut(Reading) -> Option<TimedUsage>,
    ) -> Result<SliceMeasured, WorkerError> {
        let doing = "running a slice";
        let began = Instant::now();
        self.longest_slice = self.longest_slice.max(order.least_time().into());
        self.send(&Request::Slice(order), doing)?;
        loop {
            match self.receive(doing)? {
                Response::Read(reading) => {
                    read(reading);
                    self.send(&Request::Read, doing)?;
                }
                Response::Sliced(measured) => {
                    self.longest_slice = self.longest_slice.max(began.elapsed());
                    let Some(TimedUsage { server, counts, energy }) = read(Reading::End) else {
                        return Ok(*measured);
                    };
                    return Ok(SliceMeasured { server, counts, energy, ..*measured });
                }
                other => return Err(unexpected(doing, &other)),
            }
        }
    }

    /// Prepares the statements of these microbenchmarks once. Returns those that the system refuses.
    pub fn check_statements(
        &mut self,
        microbenchmarks: &[Microbenchmark],
    ) -> Result<Vec<RefusedStatement>, WorkerError> {
        let request = Request::CheckStatements(microbenchmarks.to_vec());
        let doing = "preparing all statements";
        ask!(self, &request, doing, Response::RefusedStatements(refused) => refused)
    }

    /// Explains the statements of a microbenchmark, which is not a script.
    pub fn plans(
        &mut self,
        microbenchmark: &Microbenchmark,
    ) -> Result<Vec<StatementPlan>, WorkerError> {
        let request = Request::Plans(Box::new(microbenchmark.clone()));
        ask!(self, &request, "explaining statements", Response::Plans(plans) => plans)
    }

    /// Prepares to sample stacks in slices, with this number of samples per second and CPU.
    pub fn start_profile(&mut self, frequency: u32) -> Result<(), WorkerError> {
        self.request_done(&Request::StartProfile(frequency), "sampling stacks")
    }

    /// What was sampled since the last call; `None` if nothing was.
    pub fn profile(&mut self) -> Result<Option<Profile>, WorkerError> {
        let doing = "collecting samples";
        ask!(self, &Request::Profile, doing, Response::Profile(profile) => profile.map(|all| *all))
    }

    /// Runs one slice, and records where the system's threads wait in its timed part.
    pub fn slice_with_waits(&mut self, order: SliceRequest) -> Result<SliceMeasured, WorkerError> {
        let request = Request::WaitSlice(order);
        ask!(self, &request, "recording waits", Response::Sliced(measured) => *measured)
    }

    /// The waits that were recorded since the last call; `None` if there are none.
    pub fn waits(&mut self) -> Result<Option<Waits>, WorkerError> {
        let doing = "collecting waits";
        ask!(self, &Request::Waits, doing, Response::Waits(waits) => waits.map(|all| *all))
    }

    /// Logs in to an existing server and checks that the run can create its schema, and have so many connections.
    pub fn check_access(&mut self, connections: u32) -> Result<(), WorkerError> {
        self.request_done(&Request::CheckAccess(connections), "checking the access")
    }

    pub fn free_statements(&mut self) -> Result<(), WorkerError> {
        self.request_done(&Request::FreeStatements, "freeing statements")
    }

    /// Ends the statements that killed workers of the run left on an existing server.
    pub fn end_statements(&mut self) -> Result<(), WorkerError> {
        self.request_done(&Request::EndStatements, "ending statements")
    }

    /// Removes the tables of the run, and its schema if nothing else is in it.
    pub fn remove(&mut self) -> Result<SchemaRemoval, WorkerError> {
        let doing = "removing dbdyno's tables";
        ask!(self, &Request::Remove, doing, Response::Removed(removal) => removal)
    }

    pub fn insert_tables(&mut self) -> Result<(), WorkerError> {
        self.request_done(&Request::InsertTables, "creating the tables")
    }

    /// Runs a step of the insert benchmark and calls `on_second` after each of its seconds. If that
    /// returns false, kills the worker and returns `None`. `read` takes the readings of a server on another
    /// host.
    /// The worker is also killed after an error of `on_second`.
    pub fn insert_step<X: From<WorkerError>>(
        &mut self,
        step: InsertStep,
        read: &mut dyn FnMut(StepReading) -> StepUsages,
        mut on_second: impl FnMut(Second) -> Result<bool, X>,
    ) -> Result<Option<StepMeasured>, X> {
        let doing = "running a step of the insert benchmark";
        self.send(&Request::InsertStep(step), doing)?;
        loop {
            match self.receive(doing)? {
                Response::Second(second) => {
                    let continues = on_second(*second);
                    if !matches!(continues, Ok(true)) {
                        self.kill();
                        return continues.map(|_| None);
                    }
                }
                Response::ReadStep(reading) => {
                    self.send(&Request::ReadStep(Box::new(read(reading))), doing)?;
                }
                Response::Stepped(measured) => return Ok(Some(*measured)),
                other => return Err(unexpected(doing, &other).into()),
            }
        }
    }

    fn kill(&mut self) {
        self.requests = None;
        // An error means that it has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Lets the worker close its connections and waits for its exit.
    pub fn close(mut self) -> Result<(), WorkerError> {
        self.requests = None;
        self.wait()?;
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            _ => Err(self.died("closing")),
        }
    }

    fn request_done(&mut self, request: &Request, doing: &'static str) -> Result<(), WorkerError> {
        ask!(self, request, doing, Response::Done => ())
    }

    fn request(&mut self, request: &Request, doing: &'static str) -> Result<Response, WorkerError> {
        self.send(request, doing)?;
        self.receive(doing)
    }

    fn send(&mut self, request: &Request, doing: &'static str) -> Result<(), WorkerError> {
        let Some(requests) = &mut self.requests else { return Err(self.died(doing)) };
        match protocol::send(requests, request) {
            Ok(()) => Ok(()),
            Err(ServeError::Format(error)) => Err(WorkerError::failed(doing, error)),
            Err(_) => Err(self.died(doing)),
        }
    }

    /// Waits until the worker responds or exits. After the user asked to stop, kills it if it takes too long.
    fn wait(&mut self) -> Result<(), WorkerError> {
        let pause = Timespec::try_from(self.stop_time.min(CHECK)).ok();
        while self.responses.buffer().is_empty()
            && !sleep_until_readable(std::iter::once(self.responses.get_ref()), pause.as_ref())
            && matches!(self.child.try_wait(), Ok(None))
        {
            if self.cancel.load(Ordering::Relaxed)
                && self.stopping.get_or_insert_with(Instant::now).elapsed()
                    >= self.longest_slice + self.stop_time
            {
                self.kill();
                return Err(WorkerError::Stopped);
            }
        }
        Ok(())
    }

    fn receive(&mut self, doing: &'static str) -> Result<Response, WorkerError> {
        self.wait()?;
        match protocol::receive(&mut self.responses) {
            Ok(Some(Response::Failed(Failed { message, lost_connection }))) => {
                Err(WorkerError::Failed { doing, message, lost_connection })
            }
            Ok(Some(response)) => Ok(response),
            Err(ServeError::Format(error)) => {
                Err(WorkerError::failed(doing, format!("invalid response: {error}")))
            }
            Ok(None) | Err(_) => Err(self.died(doing)),
        }
    }

    fn died(&mut self, doing: &'static str) -> WorkerError {
        if self.requests.is_none() && self.stopping.is_some() {
            return WorkerError::Stopped;
        }
        // The worker closed its pipe. The kill prevents waiting forever for a stuck worker; it has
        // no effect on a process that has exited.
        let _ = self.child.kill();
        let ended = match self.child.wait() {
            Ok(status) => match (status.signal(), status.code()) {
                (Some(signal), _) => {
                    format!("was killed by signal {signal}{}", signal_name(signal))
                }
                (None, Some(code)) => format!("exited with code {code}"),
                (None, None) => "exited".to_owned(),
            },
            Err(error) => format!("exited with unknown status ({error})"),
        };
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.trim().lines().collect();
        let log = lines[lines.len().saturating_sub(5)..].join(" | ");
        WorkerError::Died { ended, doing, log }
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.kill();
    }
}

fn unexpected(doing: &'static str, response: &Response) -> WorkerError {
    WorkerError::failed(doing, format!("unexpected response: {response:?}"))
}

fn signal_name(signal: i32) -> &'static str {
    match Signal::from_named_raw(signal) {
        Some(Signal::KILL) => " (SIGKILL: by a user, or by the kernel when out of memory)",
        Some(Signal::SEGV) => " (SIGSEGV)",
        Some(Signal::BUS) => " (SIGBUS)",
        Some(Signal::ABORT) => " (SIGABRT)",
        Some(Signal::ILL) => " (SIGILL: possibly built for another CPU)",
        Some(Signal::FPE) => " (SIGFPE)",
        Some(Signal::TERM) => " (SIGTERM)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn link_in_place_of_a_log_is_refused_and_its_target_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (log, target) = (dir.path().join("base.log"), dir.path().join("target"));
        fs::write(&target, "kept").unwrap();
        symlink(&target, &log).unwrap();
        let started = WorkerHandle::start(&mut Command::new("/bin/true"), &log, Arc::default());
        let error = started.unwrap_err().to_string();
        assert!(error.contains("creating its log"), "{error}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
    }

    #[test]
    fn log_of_an_earlier_worker_is_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("base.log");
        fs::write(&log, "earlier").unwrap();
        drop(WorkerHandle::start(&mut Command::new("/bin/true"), &log, Arc::default()).unwrap());
        assert_eq!(fs::read_to_string(&log).unwrap(), "");
    }

    /// A worker that receives a request and executes these commands of a shell.
    fn worker(answer: &str, cancel: Arc<AtomicBool>) -> WorkerHandle {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("read -r request; {answer}")]);
        WorkerHandle::start(&mut command, &dir.path().join("log"), cancel).unwrap()
    }

    #[test]
    fn worker_is_killed_only_if_it_does_not_stop_in_time() {
        let stopping = || Arc::new(AtomicBool::new(true));
        let response = serde_json::to_string(&Response::Done).unwrap();
        let mut stops = worker(&format!("echo '{response}'; read -r end"), stopping());
        stops.free_statements().unwrap();

        let mut endless = worker("exec sleep 600", stopping());
        endless.stop_time = Duration::ZERO;
        let error = endless.free_statements().unwrap_err();
        assert_eq!((&error, error.is_loss()), (&WorkerError::Stopped, false));
        assert_eq!(endless.free_statements(), Err(WorkerError::Stopped));

        let mut does_not_exit = worker("exec sleep 600", stopping());
        does_not_exit.stop_time = Duration::ZERO;
        assert_eq!(does_not_exit.close(), Err(WorkerError::Stopped));
    }

    #[test]
    fn answer_says_whether_a_connection_was_lost() {
        let error_of = |answer: &str| worker(answer, Arc::default()).free_statements().unwrap_err();
        let failed = |lost_connection| {
            let message = "no space left".to_owned();
            let response = Response::Failed(Failed { message, lost_connection });
            error_of(&format!("echo '{}'", serde_json::to_string(&response).unwrap()))
        };
        assert!(failed(true).is_loss());
        let error = failed(false);
        assert_eq!(error.to_string(), "freeing statements: no space left");
        assert!(!error.is_loss());
        assert!(error_of("exit 3").is_loss(), "the worker died");
    }
}
