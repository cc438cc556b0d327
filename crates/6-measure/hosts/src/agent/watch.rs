//! The threads of an agent that notice when nobody needs it any more, and the readings of servers' usage. They are taken
//! on the thread that reads requests: waking another one can take longer than a reading.

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, Write, stdin, stdout};
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{io, thread};

use dbdyno_units::Nanos;
use dbdyno_worker::protocol::{Reading, StepReading, StepUsages, TimedUsage};
use dbdyno_worker::{ServerMonitor, StepMeter, TimedPart};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::value::RawValue;

use super::directory::Guard;
use super::stacks::StackSampler;
use crate::connection::lock;
use crate::protocol;
use crate::protocol::{Answer, AnyRequest, Failed, LOST_AFTER, Request, line_of};

/// How long the main thread may take to end after a loss.
const END_AFTER: Duration = Duration::from_secs(4);

/// The line that answers a request.
pub(super) fn answer<R: Request>(reply: Result<R::Reply, Failed>) -> io::Result<Vec<u8>> {
    line_of(&reply.map_or_else(Answer::Failed, Answer::Done))
}

/// Standard output, one answer per line.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers(Arc<Mutex<()>>);

impl Answers {
    pub fn send(&self, line: io::Result<Vec<u8>>) -> io::Result<()> {
        let line = line?;
        let _one_at_a_time = lock(&self.0);
        let mut output = stdout().lock();
        output.write_all(&line)?;
        output.flush()
    }
}

#[derive(Debug)]
struct State {
    heard: Instant,
    /// The connection is lost, since then.
    lost: Option<Instant>,
    /// The end was requested: it may take its time.
    ending: bool,
    /// `None` until the main thread waits for requests.
    requests: Option<Sender<AnyRequest>>,
    guard: Option<Guard>,
}

/// Watches standard input. When it ends, or nothing was heard for a while, the main thread gets no more
/// requests; if it does not end soon, because it is busy, the agent kills itself, and its guard cleans up.
#[derive(Debug)]
pub(super) struct Watch(Arc<Mutex<State>>);

impl Watch {
    pub fn start(
        requests: Sender<AnyRequest>,
        answers: Answers,
        readings: Readings,
    ) -> io::Result<Self> {
        let state = Arc::new(Mutex::new(State {
            heard: Instant::now(),
            lost: None,
            ending: false,
            requests: Some(requests),
            guard: None,
        }));
        let (reading, timing) = (Arc::clone(&state), Arc::clone(&state));
        thread::Builder::new().spawn(move || read(&reading, &answers, &readings))?;
        thread::Builder::new().spawn(move || time(&timing))?;
        Ok(Self(state))
    }

    pub fn guard(&self, guard: Guard) {
        lock(&self.0).guard = Some(guard);
    }

    pub fn end(&self) {
        lock(&self.0).ending = true;
    }
}

fn read(state: &Mutex<State>, answers: &Answers, readings: &Readings) {
    for line in stdin().lock().lines() {
        let Some(request) = line.ok().and_then(|line| serde_json::from_str(&line).ok()) else {
            break;
        };
        lock(state).heard = Instant::now();
        // If nobody reads the answers, the input ends, too.
        match request {
            AnyRequest::Heartbeat(_) => {
                if let Some(guard) = &mut lock(state).guard {
                    guard.ensure();
                }
                let _ = answers.send(line_of(&Answer::<()>::Alive));
            }
            AnyRequest::Read(protocol::Read(server, reading)) => {
                let usage = readings.take(server, reading);
                let _ = answers.send(answer::<protocol::Read>(Ok(usage)));
            }
            AnyRequest::ReadStep(protocol::ReadStep(server, reading)) => {
                let usages = readings.take_in_step(server, reading);
                let _ = answers.send(answer::<protocol::ReadStep>(Ok(usages)));
            }
            AnyRequest::LeadIn(protocol::LeadIn(server)) => {
                // Nobody waits for it.
                let _ = readings.take(server, Reading::LeadIn { interrupted: false });
            }
            request => match &lock(state).requests {
                Some(requests) if requests.send(request).is_ok() => {}
                _ => break,
            },
        }
    }
    lose(state);
}

fn lose(state: &Mutex<State>) {
    let mut state = lock(state);
    state.requests = None;
    state.lost.get_or_insert_with(Instant::now);
}

fn time(state: &Mutex<State>) {
    loop {
        thread::sleep(Duration::from_millis(200));
        let (heard, lost, ending) = {
            let state = lock(state);
            (state.heard, state.lost, state.ending)
        };
        match lost {
            None if heard.elapsed() > LOST_AFTER => lose(state),
            Some(since) if !ending && since.elapsed() > END_AFTER => {
                // An error is not possible: every process may signal itself.
                let _ = kill_process(getpid(), Signal::KILL);
            }
            None | Some(_) => {}
        }
    }
}

/// The monitors of all servers, by the agent's number.
#[derive(Clone, Default)]
pub(super) struct Readings(Arc<Mutex<BTreeMap<u32, Monitored>>>);

struct Monitored {
    monitor: ServerMonitor,
    background: Option<Nanos>,
    timed_part: Option<TimedPart>,
    /// The directory with the server's files, if it is known.
    data: Option<PathBuf>,
    step: Option<StepMeter>,
    /// `None` until its stacks are sampled.
    stacks: Option<StackSampler>,
    /// Whether they are sampled in the present timed part.
    is_sampled: bool,
}

impl Readings {
    /// `data` is the directory with the server's files, if it is known.
    pub fn add(&self, server: u32, monitor: ServerMonitor, data: Option<PathBuf>) {
        let monitored = Monitored {
            monitor,
            background: None,
            timed_part: None,
            data,
            step: None,
            stacks: None,
            is_sampled: false,
        };
        lock(&self.0).insert(server, monitored);
    }

    pub fn remove(&self, server: u32) {
        lock(&self.0).remove(&server);
    }

    /// Takes a reading; `None` if the usage is unknown, and for readings that do not end a timed part.
    pub fn take(&self, server: u32, reading: Reading) -> Option<TimedUsage> {
        lock(&self.0).get_mut(&server)?.take(reading)
    }

    /// Takes a reading in a step of the insert benchmark; all unknown for its start.
    pub fn take_in_step(&self, server: u32, reading: StepReading) -> StepUsages {
        let mut all = lock(&self.0);
        all.get_mut(&server).map_or_else(StepUsages::default, |one| one.take_in_step(reading))
    }

    /// Prepares to sample the stacks of a server.
    pub fn start_stacks(&self, server: u32, frequency: u32) -> Result<(), Failed> {
        let mut all = lock(&self.0);
        let Some(Monitored { monitor, stacks, .. }) = all.get_mut(&server) else {
            return Err(Failed::because(UNKNOWN));
        };
        if stacks.is_none() {
            let family = monitor.family();
            // An error occurs again when it is sampled.
            let _ = family.read();
            let started = StackSampler::start(family.pids().collect(), frequency);
            *stacks = Some(started.map_err(Failed::because)?);
        }
        Ok(())
    }

    /// The profile of what was sampled of a server.
    pub fn stacks(&self, server: u32) -> Result<Box<RawValue>, Failed> {
        let mut all = lock(&self.0);
        let stacks = all.get_mut(&server).and_then(|one| one.stacks.as_mut());
        let text = stacks.ok_or_else(|| Failed::because(UNKNOWN))?.take();
        RawValue::from_string(text.map_err(Failed::because)?).map_err(Failed::because)
    }
}

const UNKNOWN: &str = "the processes of the server are not known";

impl Monitored {
    fn take(&mut self, reading: Reading) -> Option<TimedUsage> {
        match reading {
            Reading::LeadIn { interrupted } => {
                if interrupted {
                    self.monitor.interrupt();
                    self.background = None;
                }
                self.background = self.monitor.background();
                None
            }
            Reading::Start | Reading::StartSampled => {
                self.timed_part = Some(self.monitor.start(self.background.take()));
                self.is_sampled = reading == Reading::StartSampled;
                if let (true, Some(stacks)) = (self.is_sampled, &mut self.stacks) {
                    stacks.begin();
                }
                None
            }
            Reading::End => self.timed_part.take().map(|started| self.end(started)),
        }
    }

    fn end(&mut self, started: TimedPart) -> TimedUsage {
        let is_sampled = std::mem::take(&mut self.is_sampled);
        let Some(stacks) = self.stacks.as_mut().filter(|_| is_sampled) else {
            return self.monitor.end(started);
        };
        let mut pids: HashSet<u32> = self.monitor.family().pids().collect();
        stacks.end();
        let used = self.monitor.end(started);
        // Some may have begun, and others ended.
        pids.extend(self.monitor.family().pids());
        stacks.collect(pids, used.server);
        used
    }

    fn take_in_step(&mut self, reading: StepReading) -> StepUsages {
        let family = Some(self.monitor.family());
        StepMeter::read(&mut self.step, reading, family, self.data.as_deref())
    }
}
