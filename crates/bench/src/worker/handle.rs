//! dbdyno's end of the conversation with a worker.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use dbdyno_machine::{Signal, die_with_parent};
use dbdyno_record::insert::{Second, StepMeasured};
use dbdyno_record::{SliceMeasured, StateSnapshot};

use crate::protocol::{InsertStep, Open, Opened, Prepare, Request, Response};
use crate::slice::SliceRequest;

/// Why a worker did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    /// It could not be started.
    #[error("starting a worker: {0}")]
    NotStarted(String),
    /// The server that it needs failed.
    #[error("{whole}")]
    Server {
        /// In a line.
        brief: String,
        /// With the end of its log.
        whole: String,
    },
    /// It ended: the system under test crashed, or somebody killed it.
    #[error("the worker {ended} while {doing}{}", tail(.said))]
    Died {
        /// How it ended, such as `was killed by signal 9 (SIGKILL)`.
        ended: String,
        /// What it had been asked to do.
        doing: &'static str,
        /// The end of its error output.
        said: String,
    },
    /// It tried and failed.
    #[error("{doing}: {message}")]
    Failed {
        /// What it had been asked to do.
        doing: &'static str,
        /// Why it failed.
        message: String,
    },
}

impl WorkerError {
    /// What failed, without what logs say of it.
    #[must_use]
    pub fn brief(&self) -> String {
        match self {
            Self::Server { brief, .. } => brief.clone(),
            Self::Died { ended, doing, .. } => format!("the worker {ended} while {doing}"),
            Self::NotStarted(_) | Self::Failed { .. } => self.to_string(),
        }
    }
}

fn tail(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!("; its last words: {said}") }
}

/// A running worker. Dropping it ends the process.
#[derive(Debug)]
pub struct WorkerHandle {
    child: Child,
    requests: Option<ChildStdin>,
    responses: BufReader<ChildStdout>,
    log: PathBuf,
}

impl WorkerHandle {
    /// Starts `command` as a worker, with its error output in the file `log`. The command must
    /// call [`super::serve`] on its standard input and output.
    ///
    /// The worker ends with the thread that calls this: even where dbdyno is killed, no worker
    /// stays behind. It does not see the terminal's Ctrl-C.
    ///
    /// # Errors
    /// The program or the log file cannot be had.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self, WorkerError> {
        let failed = |error: std::io::Error| WorkerError::NotStarted(error.to_string());
        let errors = File::create(log).map_err(|error| {
            WorkerError::NotStarted(format!("making its log {}: {error}", log.display()))
        })?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).process_group(0);
        let parent = std::process::id();
        // SAFETY: the closure makes two system calls that are safe between fork and exec.
        unsafe { command.pre_exec(move || die_with_parent(Signal::KILL, parent)) };
        let mut child = command.spawn().map_err(failed)?;
        let gone = || WorkerError::NotStarted("it has no pipes".to_owned());
        let requests = Some(child.stdin.take().ok_or_else(gone)?);
        let responses = BufReader::new(child.stdout.take().ok_or_else(gone)?);
        Ok(Self { child, requests, responses, log: log.to_owned() })
    }

    /// The worker's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Connects to the instance.
    ///
    /// # Errors
    /// As all of the worker's tasks: it died, or the database failed.
    pub fn open(&mut self, open: Open) -> Result<Opened, WorkerError> {
        let doing = "opening the instance";
        match self.ask(&Request::Open(Box::new(open)), doing)? {
            Response::Opened(opened) => Ok(opened),
            other => Err(unexpected(doing, &other)),
        }
    }

    /// Makes and fills the tables.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn load(&mut self) -> Result<(), WorkerError> {
        self.ask_for_nothing(&Request::Load, "loading the tables")
    }

    /// Reads all tables and indexes once.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn warm(&mut self) -> Result<(), WorkerError> {
        self.ask_for_nothing(&Request::Warm, "warming the caches")
    }

    /// Brings the database to its settled state.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn settle(&mut self) -> Result<(), WorkerError> {
        self.ask_for_nothing(&Request::Settle, "settling the database")
    }

    /// Tells where the database stands.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn state_snapshot(&mut self) -> Result<StateSnapshot, WorkerError> {
        let doing = "reading the state of the database";
        match self.ask(&Request::StateSnapshot, doing)? {
            Response::StateSnapshot(state_snapshot) => Ok(state_snapshot),
            other => Err(unexpected(doing, &other)),
        }
    }

    /// Prepares a microbenchmark.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn prepare(&mut self, prepare: Prepare) -> Result<(), WorkerError> {
        self.ask_for_nothing(&Request::Prepare(Box::new(prepare)), "preparing statements")
    }

    /// Runs one slice.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn slice(&mut self, order: SliceRequest) -> Result<SliceMeasured, WorkerError> {
        let doing = "running a slice";
        match self.ask(&Request::Slice(order), doing)? {
            Response::Sliced(measured) => Ok(*measured),
            other => Err(unexpected(doing, &other)),
        }
    }

    /// Frees the prepared statements.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn free_statements(&mut self) -> Result<(), WorkerError> {
        self.ask_for_nothing(&Request::FreeStatements, "freeing statements")
    }

    /// Takes away everything that dbdyno made in the database.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn remove(&mut self) -> Result<(), WorkerError> {
        self.ask_for_nothing(&Request::Remove, "removing dbdyno's tables")
    }

    /// Makes the tables of the insert benchmark.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn insert_tables(&mut self) -> Result<(), WorkerError> {
        self.ask_for_nothing(&Request::InsertTables, "making the tables")
    }

    /// Runs a step of the insert benchmark, and hands over each of its seconds as it ends. Where
    /// `second` returns false the worker is killed, and the step with it: `None` is returned.
    ///
    /// # Errors
    /// As [`Self::open`]; and those of `second`, with which the worker is killed, too.
    pub fn insert_step<X: From<WorkerError>>(
        &mut self,
        step: InsertStep,
        mut second: impl FnMut(Second) -> Result<bool, X>,
    ) -> Result<Option<StepMeasured>, X> {
        let doing = "running a step of the insert benchmark";
        self.send(&Request::InsertStep(step), doing)?;
        loop {
            match self.receive(doing)? {
                Response::Second(told) => {
                    let goes_on = second(*told);
                    if !matches!(goes_on, Ok(true)) {
                        self.kill();
                        return goes_on.map(|_| None);
                    }
                }
                Response::Stepped(measured) => return Ok(Some(*measured)),
                other => return Err(unexpected(doing, &other).into()),
            }
        }
    }

    fn kill(&mut self) {
        self.requests = None;
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Lets the worker close its connections and waits for its end.
    ///
    /// # Errors
    /// It did not end well.
    pub fn close(mut self) -> Result<(), WorkerError> {
        self.requests = None;
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            _ => Err(self.died("closing")),
        }
    }

    fn ask_for_nothing(
        &mut self,
        request: &Request,
        doing: &'static str,
    ) -> Result<(), WorkerError> {
        match self.ask(request, doing)? {
            Response::Done => Ok(()),
            other => Err(unexpected(doing, &other)),
        }
    }

    fn ask(&mut self, request: &Request, doing: &'static str) -> Result<Response, WorkerError> {
        self.send(request, doing)?;
        self.receive(doing)
    }

    fn send(&mut self, request: &Request, doing: &'static str) -> Result<(), WorkerError> {
        let mut line = serde_json::to_vec(request)
            .map_err(|error| WorkerError::Failed { doing, message: error.to_string() })?;
        line.push(b'\n');
        let sent = match &mut self.requests {
            Some(requests) => requests.write_all(&line).is_ok(),
            None => false,
        };
        if sent { Ok(()) } else { Err(self.died(doing)) }
    }

    fn receive(&mut self, doing: &'static str) -> Result<Response, WorkerError> {
        let mut response = String::new();
        // A last line without its end was cut off by the worker's death.
        let whole = self.responses.read_line(&mut response).is_ok() && response.ends_with('\n');
        if !whole {
            return Err(self.died(doing));
        }
        match serde_json::from_str(&response) {
            Ok(Response::Failed(failed)) => {
                Err(WorkerError::Failed { doing, message: failed.message })
            }
            Ok(response) => Ok(response),
            Err(error) => Err(WorkerError::Failed {
                doing,
                message: format!("the worker answered in another language: {error}"),
            }),
        }
    }

    fn died(&mut self, doing: &'static str) -> WorkerError {
        // It closed its end: what is left is to see how. A worker that closed it and lives on
        // would be waited for in vain, hence the kill, which does nothing to a dead one.
        let _ = self.child.kill();
        let ended = match self.child.wait() {
            Ok(status) => match (status.signal(), status.code()) {
                (Some(signal), _) => {
                    format!("was killed by signal {signal}{}", signal_name(signal))
                }
                (None, Some(code)) => format!("ended with exit code {code}"),
                (None, None) => "ended".to_owned(),
            },
            Err(error) => format!("ended, how is unknown ({error})"),
        };
        let said = std::fs::read(&self.log).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let lines: Vec<&str> = said.trim().lines().collect();
        let said = lines[lines.len().saturating_sub(5)..].join(" | ");
        WorkerError::Died { ended, doing, said }
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.kill();
    }
}

fn unexpected(doing: &'static str, response: &Response) -> WorkerError {
    WorkerError::Failed { doing, message: format!("the worker answered {response:?}") }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGKILL => " (SIGKILL: somebody, or the kernel for want of memory)",
        libc::SIGSEGV => " (SIGSEGV)",
        libc::SIGBUS => " (SIGBUS)",
        libc::SIGABRT => " (SIGABRT)",
        libc::SIGILL => " (SIGILL: perhaps built for another CPU)",
        libc::SIGFPE => " (SIGFPE)",
        libc::SIGTERM => " (SIGTERM)",
        _ => "",
    }
}
