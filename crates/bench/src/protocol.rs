//! What is said between dbdyno and a worker: one JSON value per line, a response for each
//! request; a step of the insert benchmark has one more for each of its seconds.

use std::path::PathBuf;

use dbdyno_engines::server::ServerAccess;
use dbdyno_engines::sqlite;
use dbdyno_record::insert::{Second, StepMeasured};
use dbdyno_record::{Counting, SliceMeasured, StateSnapshot};
use dbdyno_units::Share;
use dbdyno_workloads::definition::Microbenchmark;
use dbdyno_workloads::insert::Plan;
use serde::{Deserialize, Serialize};

use crate::slice::SliceRequest;

/// What a worker is asked to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Connect every client; must come first.
    Open(Box<Open>),
    /// Make and fill the tables.
    Load,
    /// Read all tables and indexes once, through every client's connection.
    Warm,
    /// Bring the database to its settled state.
    Settle,
    /// Tell where the database stands.
    StateSnapshot,
    /// Prepare a microbenchmark's statements on every connection.
    Prepare(Box<Prepare>),
    /// Run one slice of the prepared microbenchmark.
    Slice(SliceRequest),
    /// Free the prepared statements.
    FreeStatements,
    /// Take away everything that dbdyno made in the database.
    Remove,
    /// Make the tables of the insert benchmark.
    InsertTables,
    /// Run one step of the insert benchmark. Each of its seconds is told as it ends.
    InsertStep(InsertStep),
}

/// The instance that a worker connects to, and how.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Open {
    /// The system under test.
    pub system: SystemUnderTest,
    /// Whether to make room for the tables first: for data that is about to be loaded.
    pub create: bool,
    /// Connections to open: as many as a microbenchmark may want clients.
    pub clients: u32,
    /// Threads that drive the connections of a server; an embedded system has one per client.
    pub threads: u32,
    /// Tables.
    pub tables: u32,
    /// Rows in each table.
    pub rows: u64,
    /// Where all random draws start from.
    pub seed: u64,
    /// CPUs that the worker may run on, such as `1` or `2-3`; all where there is none.
    pub cpus: Option<String>,
    /// Time added to every event, as a share of it.
    pub injected_delay: Option<Share>,
    /// Whether the CPU and the kernel count for the system in each slice.
    pub count: bool,
    /// What the insert benchmark does; `None` for microbenchmarks.
    pub insert: Option<Plan>,
}

/// A step of the insert benchmark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InsertStep {
    /// The step's number in the plan, from 0.
    pub step: u32,
    /// The repeat, from 0: it selects the streams of rows and queries.
    pub repeat: u32,
    /// Where the database's files are, if they are on this machine and ours to look at.
    pub data: Option<PathBuf>,
}

/// A system that a worker can hold connections to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SystemUnderTest {
    /// SQLite, loaded into the worker.
    Sqlite {
        /// The shared library.
        library: PathBuf,
        /// How it is set up.
        settings: sqlite::Settings,
        /// The database file.
        file: PathBuf,
    },
    /// A server that is running.
    Server {
        /// How it is reached.
        settings: ServerAccess,
        /// The server's first process, where it runs on this machine and is ours to watch.
        pid: Option<u32>,
    },
}

/// A microbenchmark to prepare.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Prepare {
    /// What its events do.
    pub microbenchmark: Microbenchmark,
    /// Its position in the running order: it selects the streams of events.
    pub position: u32,
    /// Clients at work at once, at most as many as connections were opened.
    pub clients: u32,
}

/// What a worker answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Response {
    /// Done, with nothing to tell.
    Done,
    /// The instance is open.
    Opened(Opened),
    /// Where the database stands.
    StateSnapshot(StateSnapshot),
    /// What the slice measured.
    Sliced(Box<SliceMeasured>),
    /// A second of a step has ended; more will follow.
    Second(Box<Second>),
    /// What the step measured.
    Stepped(Box<StepMeasured>),
    /// It did not work. The worker is still there.
    Failed(Failed),
}

/// What an opened instance says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// The system's version.
    pub version: String,
    /// How it says it was built or is set up.
    pub options: Vec<String>,
    /// The clock that times single events.
    pub ticks: String,
    /// What the CPU and the kernel count for it, and what cannot be counted; `None` where that was
    /// not asked for.
    pub counting: Option<Counting>,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// In words.
    pub message: String,
}
