//! The protocol between dbdyno and an agent: one JSON value per line. Each request but [`Request::LeadIn`] has
//! one response; [`Request::Heartbeat`] is answered even while another request is in progress.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use dbdyno_engines::server::{
    DataShape, Network, ProcessFound, ProcessSearch, ServerError, ServerPlan,
};
use dbdyno_live::{OptimizedServer, ServerOptions};
use dbdyno_relayout::Profile;
use dbdyno_types::server::{Durability, ServerSystem, StorageEngine};
use dbdyno_types::{CertificateFingerprint, Counting};
use dbdyno_units::{Bytes, Nanos};
use dbdyno_worker::protocol::{Reading, StepReading, StepUsages, TimedUsage};
use serde::{Deserialize, Serialize};

/// Interval of heartbeats.
pub const HEARTBEAT: Duration = Duration::from_secs(2);

/// Maximum length of a response: that of a profile.
pub(crate) const LONGEST_RESPONSE: u64 = 64 << 20;

/// The connection is lost if nothing was heard for this time.
pub const LOST_AFTER: Duration = Duration::from_secs(12);

/// A request to an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Create the directory for all data in this directory, or in `/var/tmp`; must be the first request.
    Open(Option<PathBuf>),
    /// Nothing: shows that dbdyno is there.
    Heartbeat,
    /// Tell the time.
    Time,
    /// Tell the text of `/proc/cpuinfo`.
    Machine,
    /// Tell the free space on the disk with the data.
    FreeSpace,
    /// Open the copy of a server's programs with this name: use it, or be ready to make it.
    OpenTree(String),
    /// Tell what is missing in the copy, which has these entries.
    FillTree(Vec<TreeEntry>),
    /// Write a part of a file.
    Put(FilePart),
    /// Verify the copy and give it its name.
    FinishTree,
    /// Find a program, and derive the settings of a server.
    Plan(Box<PlanRequest>),
    /// Listen at this address for this number of connections, to measure the network.
    Listen(IpAddr, u32),
    /// Tell whether complete data exists.
    Exists(String),
    /// Create a data directory.
    Initialise(Box<ServerPlan>, String),
    /// Remove a data directory.
    Remove(String),
    /// Copy a data directory.
    Clone(String, String),
    /// Rename a data directory.
    Rename(String, String),
    /// Start a server.
    Start(Box<StartRequest>),
    /// Find the process of a server that somebody else started.
    Find(ProcessSearch),
    /// Prepare to read the usage of this process; with `true`, with counters of the CPU and the kernel.
    Watch(u32, bool),
    /// Run the live optimizer on a server.
    Live(u32, LiveRequest),
    /// Tell how a server exited, if it has.
    Ended(u32),
    /// Read a server's usage.
    Read(u32, Reading),
    /// Read the usage of a server and of its storage in a step of the insert benchmark.
    ReadStep(u32, StepReading),
    /// Take a reading before a lead-in that follows without interruption; has no response.
    LeadIn(u32),
    /// Stop a server cleanly.
    Stop(u32),
    /// Kill a server, or forget a process.
    Kill(u32),
    /// Remove everything, and exit.
    End,
}

/// A file, directory or symbolic link of a server's programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeEntry {
    /// Its path in the tree; a directory comes before what is in it.
    pub path: PathBuf,
    /// What it is.
    pub kind: EntryKind,
}

/// The kind of a [`TreeEntry`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EntryKind {
    Directory,
    File {
        /// Its size in bytes.
        size: u64,
        /// The SHA-256 of its content, 64 hexadecimal digits.
        sha256: String,
        /// Whether it may be executed.
        executable: bool,
    },
    /// A symbolic link with this target.
    Link(PathBuf),
}

/// A part of a file to write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePart {
    /// The number of the file's entry, from 0.
    pub entry: usize,
    /// Where the part begins.
    pub offset: u64,
    /// Its bytes in Base64.
    pub data: String,
}

/// The copy of a server's programs on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TreeState {
    /// Complete, in this directory.
    Complete(PathBuf),
    /// To be made or completed. It will be in this directory.
    Incomplete(PathBuf),
    /// Another dbdyno is making it.
    Busy,
}

/// A step of the live optimizer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LiveRequest {
    StartSampling(ServerOptions),
    /// End sampling, and make code that counts.
    EndSampling,
    /// Start counting executions.
    StartCounting,
    /// Wait for the end of counting.
    EndCounting,
    /// Optimize with what was sampled and counted.
    Optimize,
    /// Optimize with these samples of another process, whose source has this description.
    OptimizeBy(ServerOptions, Box<Profile>, String),
}

/// A server to find.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlanRequest {
    pub system: ServerSystem,
    pub engine: Option<StorageEngine>,
    /// The program; `None`: searched for.
    pub program: Option<PathBuf>,
    /// The name of an installed release, if no program is given.
    pub release: Option<String>,
    /// The durability of commits.
    pub durability: Durability,
    /// Settings that override dbdyno's.
    pub configuration: Vec<(String, String)>,
    /// What the settings depend on.
    pub shape: DataShape,
}

/// A server to start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StartRequest {
    pub plan: ServerPlan,
    /// The name of its data directory.
    pub directory: String,
    pub cpus: Option<String>,
    /// Where it listens. The agent chooses the port.
    pub network: Network,
    /// Whether to open counters of the CPU and the kernel.
    pub count: bool,
}

/// An agent's response.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Response {
    Done,
    /// The agent is ready, with its data in this directory.
    Opened(PathBuf),
    /// The answer to a heartbeat.
    Alive,
    /// Nanoseconds since 1970.
    Time(u64),
    /// The text of `/proc/cpuinfo`.
    Machine(String),
    /// The directory for data, and the free space there; `None` if it is unknown.
    FreeSpace(Option<(PathBuf, Bytes)>),
    /// The state of a copy.
    Tree(TreeState),
    /// The numbers of the files that are not complete, each with the bytes that are there.
    Missing(Vec<(usize, u64)>),
    /// The program and the settings of a server.
    Plan(Box<ServerPlan>),
    /// The port that is listened at.
    Listening(u16),
    /// Whether complete data exists.
    Exists(bool),
    /// The server runs.
    Started(Box<Started>),
    /// The process of a server, or why it is not known.
    Found(ProcessFound),
    /// Its number, for further requests, and which counters are available.
    Watching(u32, Option<Counting>),
    /// Sampling has ended; whether executions are to be counted.
    Sampled(bool),
    /// The server was optimized, or refused.
    Optimized(Box<OptimizedServer>),
    /// How a server exited; `None` while it runs.
    Ended(Option<Failed>),
    /// The reading was taken.
    Read(Option<TimedUsage>),
    /// The reading of a step; all unknown for its start, and for a server that is not known.
    ReadStep(Box<StepUsages>),
    /// The request failed.
    Failed(Failed),
}

/// A running server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Started {
    /// Its number, for further requests.
    pub server: u32,
    /// The port that it listens at.
    pub port: u16,
    /// The certificate for connections over the network, if they are encrypted.
    pub certificate: Option<CertificateFingerprint>,
    /// For MySQL, the public key with which passwords are encrypted, as PEM.
    pub public_key: Option<String>,
    /// Which counters are available; `None` if none were requested.
    pub counting: Option<Counting>,
    /// How long it took.
    pub time: Nanos,
}

/// Why something failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The reason, in one line.
    pub brief: String,
    /// The reason with the last lines of logs.
    pub whole: String,
}

impl Failed {
    /// A reason in one line.
    #[must_use]
    pub fn because(reason: impl std::fmt::Display) -> Self {
        let brief = reason.to_string();
        Self { whole: brief.clone(), brief }
    }
}

impl From<ServerError> for Failed {
    fn from(error: ServerError) -> Self {
        Self { brief: error.brief(), whole: error.to_string() }
    }
}
