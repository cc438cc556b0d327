//! The protocol between dbdyno and a worker: one JSON value per line, one response per request. A
//! step of the insert benchmark has an additional response for each second. During a slice or a step on a
//! server of another host, the worker asks for readings of its usage.

use std::io::{BufRead, Write};
use std::path::PathBuf;

use dbdyno_engines::in_force::ReportedSetting;
use dbdyno_engines::server::ServerAccess;
use dbdyno_engines::{SchemaRemoval, sqlite};
use dbdyno_types::insert::{DeviceUsage, Second, StepMeasured};
use dbdyno_types::profile::{Profile, Waits};
use dbdyno_types::{
    ClientWait, Counting, Counts, ServerUsage, SliceMeasured, StateSnapshot, StatementPlan,
};
use dbdyno_units::{Bytes, Energy, Nanos, Share};
use dbdyno_workloads::definition::{Microbenchmark, Script};
use dbdyno_workloads::insert::Plan;
use dbdyno_workloads::setup::SetupScript;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::ServeError;

/// A request to a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Connect every client; must be the first request.
    Open(Box<Open>),
    /// Create and fill the tables, then run the setup scripts.
    Load,
    /// Read all tables and indexes once, through every client's connection.
    Warm,
    /// Settle the database: write back pending changes.
    Settle,
    /// Read the state of the database.
    StateSnapshot,
    /// Prepare a microbenchmark's statements on every connection.
    Prepare(Box<Prepare>),
    /// Run one slice of the prepared microbenchmark.
    Slice(SliceRequest),
    /// The requested reading was taken.
    Read,
    /// The requested reading of a step; all unknown if it failed.
    ReadStep(Box<StepUsages>),
    /// Prepare the statements of these microbenchmarks once, to find those that the system refuses.
    CheckStatements(Vec<Microbenchmark>),
    /// Explain the statements of a microbenchmark.
    Plans(Box<Microbenchmark>),
    /// Prepare to sample stacks in slices, with this number of samples per second and CPU.
    StartProfile(u32),
    /// Return what was sampled since the last of these requests.
    Profile,
    /// Run one slice, and record where the system's threads wait in its timed part.
    WaitSlice(SliceRequest),
    /// Return the waits that were recorded since the last of these requests.
    Waits,
    /// Log in to an existing server and check that the run can create its schema, and have this number of connections.
    CheckAccess(u32),
    /// Free the prepared statements.
    FreeStatements,
    /// End the statements that killed workers left on an existing server.
    EndStatements,
    /// Remove the tables of the run, and its schema if nothing else is in it.
    Remove,
    /// Create the tables of the insert benchmark.
    InsertTables,
    /// Run one step of the insert benchmark, with a response for each second.
    InsertStep(InsertStep),
}

/// The instance that a worker connects to, and how.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Open {
    pub system: SystemUnderTest,
    /// Whether to create the schema first, for data that is about to be loaded.
    pub create: bool,
    pub clients: u32,
    /// Threads that drive the connections; an embedded system has one per client.
    pub threads: u32,
    /// How the clients of a server wait for answers.
    pub wait: ClientWait,
    /// Number of tables that statements choose from, at least 1.
    pub tables: u32,
    /// Whether these tables are loaded: some statement uses them.
    pub load_tables: bool,
    /// Whether there are other tables, created by setup scripts.
    pub own_tables: bool,
    /// Schemas with the data of scripts, in addition to that of the system: the script with the data number 1 uses the
    /// first.
    pub more_schemas: Vec<String>,
    /// The setup scripts, for data that is about to be loaded.
    pub setup: Vec<SetupScript>,
    /// The sysbench scripts that make data which is about to be loaded, one for each number.
    pub scripts: Vec<Script>,
    /// Number of clients that scripts make their data for: the largest that is measured.
    pub script_clients: u32,
    pub rows: u64,
    pub seed: u64,
    /// CPUs that the worker may run on, such as `1` or `2-3`; `None` for all.
    pub cpus: Option<String>,
    /// Work added to slices, as a share of their time.
    pub injected_delay: Option<Share>,
    /// Whether to read counters of the CPU and the kernel in each slice.
    pub count: bool,
    /// The insert benchmark; `None` for microbenchmarks.
    pub insert: Option<Plan>,
    /// The settings whose values in force are reported.
    pub settings: Vec<String>,
}

/// A step of the insert benchmark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InsertStep {
    /// The step's number in the plan, from 0.
    pub step: u32,
    /// The repeat, from 0, which selects the streams of rows and queries.
    pub repeat: u32,
    /// The directory of the database's files, if known and on this machine.
    pub data: Option<PathBuf>,
}

/// A system that a worker can hold connections to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SystemUnderTest {
    /// SQLite, loaded into the worker.
    Sqlite { library: PathBuf, settings: sqlite::Settings, file: PathBuf },
    /// A running server.
    Server {
        settings: ServerAccess,
        /// The server's first process, if it runs on this machine and its usage may be read.
        pid: Option<u32>,
        /// Whether it runs on another host, where its usage is read on request.
        on_host: bool,
    },
}

/// A reading of a server's usage in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reading {
    /// Before the lead-in.
    LeadIn {
        /// Whether other requests came since the last slice, so that its work since then is not in the
        /// background.
        interrupted: bool,
    },
    /// Before the timed part.
    Start,
    /// The same; stacks are sampled until its end.
    StartSampled,
    /// After the timed part.
    End,
}

/// A server's usage in a timed part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimedUsage {
    /// CPU time and other resources; `None` if unknown.
    pub server: Option<ServerUsage>,
    /// Counters of the CPU and the kernel.
    pub counts: Counts,
    /// The machine's energy.
    pub energy: Option<Energy>,
}

/// A reading of a server's usage in a step of the insert benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepReading {
    Start,
    /// At the end of a second.
    Second,
}

/// A server's usage in a part of a step; what is unknown is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepUsage {
    /// CPU time and other resources.
    pub server: Option<ServerUsage>,
    /// Reads and writes of the device with its files, by all processes.
    pub device: Option<DeviceUsage>,
    /// Size of its files on storage, at the end.
    pub database: Option<Bytes>,
    /// Its memory, at the end.
    pub resident: Option<Bytes>,
}

/// A server's usage at the end of a second of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepUsages {
    /// Since the last reading.
    pub second: StepUsage,
    /// Since the start.
    pub total: StepUsage,
}

/// A microbenchmark to prepare.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Prepare {
    pub microbenchmark: Microbenchmark,
    /// Position in the running order, which selects the streams of events.
    pub position: u32,
    /// Number of concurrent clients, at most the number of connections.
    pub clients: u32,
}

/// A worker's response.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Response {
    Done,
    /// The instance is open.
    Opened(Opened),
    StateSnapshot(StateSnapshot),
    /// The statements that the system refuses.
    RefusedStatements(Vec<RefusedStatement>),
    Plans(Vec<StatementPlan>),
    /// `None` if nothing was sampled.
    Profile(Option<Box<Profile>>),
    /// `None` if nothing was recorded.
    Waits(Option<Box<Waits>>),
    /// What became of the schema.
    Removed(SchemaRemoval),
    /// Take a reading of the server on another host, before the lead-in or the timed part; answered with
    /// [`Request::Read`]. The one after the timed part is taken at [`Response::Sliced`].
    Read(Reading),
    /// Take a reading of the server on another host in a step; answered with [`Request::ReadStep`].
    ReadStep(StepReading),
    Sliced(Box<SliceMeasured>),
    /// The measurements of one second of a step; more responses follow.
    Second(Box<Second>),
    Stepped(Box<StepMeasured>),
    /// The request failed. The worker continues to run.
    Failed(Failed),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    pub version: String,
    /// Its compile options or settings.
    pub options: Vec<(String, String)>,
    /// The values in force of the settings that were named.
    pub in_force: Vec<ReportedSetting>,
    /// Which counters are available; `None` if none were requested.
    pub counting: Option<Counting>,
}

/// A statement that the system refuses to prepare.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedStatement {
    pub microbenchmark: String,
    /// Its number in the microbenchmark, from 1.
    pub number: u32,
    pub error: String,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    pub message: String,
    /// Whether a connection is lost.
    pub lost_connection: bool,
}

/// The condition that ends a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quota {
    /// The end of the first event that ends after this time.
    Time(Nanos),
    /// This number of events of each client.
    Events(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceRequest {
    /// The block, which selects the stream of events.
    pub block: u32,
    /// Number of clients: the first of those that are prepared; all if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<u32>,
    /// Quota of the lead-in; see [`Quota::lead_in`].
    pub lead_in: Option<Quota>,
    /// Quota of the timed part.
    pub quota: Quota,
    /// Whether the engine's own counters are read, before the lead-in and after the timed part.
    pub counters: bool,
    /// Whether stacks are sampled in the timed part.
    pub profile: bool,
}

impl SliceRequest {
    /// A slice of the first block by all clients, without lead-in, counters and profile.
    pub const fn of(quota: Quota) -> Self {
        Self { block: 0, clients: None, lead_in: None, quota, counters: false, profile: false }
    }

    /// How long it takes at least; 0 if it ends after a number of events.
    pub fn least_time(&self) -> Nanos {
        let time = |quota| match quota {
            Quota::Time(least) => least,
            Quota::Events(_) => Nanos::ZERO,
        };
        self.lead_in.into_iter().chain([self.quota]).map(time).sum()
    }
}

/// How long caches and branch predictors take to refill after slices of other candidates. Without a
/// lead-in, a slice would measure how they refill, which is equal for all candidates and makes
/// differences too small.
const REFILL: Nanos = Nanos::from_millis(5);

/// The lead-in of a long slice is this fraction of it.
const FRACTION: u64 = 8;

/// The length of the lead-in of a slice: that of the slice up to 5 ms, 5 ms up to slices of 40 ms, then
/// an eighth of the slice.
pub fn lead_in_time(slice: Nanos) -> Nanos {
    Nanos::from_nanos(slice.as_nanos() / FRACTION).max(slice.min(REFILL))
}

impl Quota {
    /// The quota of the lead-in before this quota, which takes `wall`. Events are rounded to the
    /// nearest number; `None` if that is none.
    pub fn lead_in(self, wall: Nanos) -> Option<Self> {
        let time = lead_in_time(wall);
        let events = match self {
            Self::Time(_) => return Some(Self::Time(time)),
            Self::Events(events) => events as f64 * time.as_secs_f64() / wall.as_secs_f64(),
        };
        (events >= 0.5).then_some(Self::Events(events.round() as u64))
    }
}

/// Receives a message; `None` at the end of input, also within a message: the other side has exited.
pub(crate) fn receive<M: DeserializeOwned>(
    input: &mut impl BufRead,
) -> Result<Option<M>, ServeError> {
    let mut line = String::new();
    input.read_line(&mut line).map_err(ServeError::Read)?;
    if line.ends_with('\n') { Ok(Some(serde_json::from_str(&line)?)) } else { Ok(None) }
}

pub(crate) fn send(output: &mut impl Write, message: &impl Serialize) -> Result<(), ServeError> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    output.write_all(&line).and_then(|()| output.flush()).map_err(ServeError::Send)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lead_in_is_as_long_as_short_slices_and_an_eighth_of_long_ones() {
        let micros = |slice| lead_in_time(Nanos::from_micros(slice)).as_nanos() / 1_000;
        let lengths = [1_000, 5_000, 20_000, 40_000, 80_000, 1_000_000].map(micros);
        assert_eq!(lengths, [1_000, 5_000, 5_000, 5_000, 10_000, 125_000]);
        let wall = Nanos::from_millis(20);
        assert_eq!(Quota::Time(wall).lead_in(wall), Some(Quota::Time(Nanos::from_millis(5))));
    }

    #[test]
    fn slice_takes_at_least_its_time_and_that_of_its_lead_in() {
        let long = Quota::Time(Nanos::from_secs(80));
        let timed =
            SliceRequest { lead_in: long.lead_in(Nanos::from_secs(80)), ..SliceRequest::of(long) };
        assert_eq!(timed.least_time(), Nanos::from_secs(90));
        assert_eq!(SliceRequest::of(Quota::Events(80)).least_time(), Nanos::ZERO);
    }

    #[test]
    fn lead_in_of_events_takes_as_long_as_that_of_their_time() {
        let events =
            |events, millis| match Quota::Events(events).lead_in(Nanos::from_millis(millis)) {
                Some(Quota::Events(events)) => events,
                None => 0,
                time => panic!("{time:?}"),
            };
        assert_eq!(events(500, 5), 500);
        assert_eq!(events(100, 50), 13);
        assert_eq!(events(3, 20), 1);
        // Long events refill caches themselves.
        assert_eq!((events(1, 8), events(1, 12), events(1, 1_000)), (1, 0, 0));
        assert_eq!(events(1, 0), 0);
    }
}
