//! The protocol between dbdyno and an agent: one JSON value per line. Each request but [`LeadIn`] and [`End`] has one
//! answer; a [`Heartbeat`] is answered even while another request is in progress.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use dbdyno_engines::server::{
    DataShape, Installation, Network, ProcessFound, ProcessSearch, ServerError, ServerPlan,
};
use dbdyno_live::{OptimizedServer, ServerOptions};
use dbdyno_relayout::Profile;
use dbdyno_types::server::{Durability, ServerSystem, SettingDefaults, StorageEngine};
use dbdyno_types::{CertificateFingerprint, Counting};
use dbdyno_units::{Bytes, Nanos};
use dbdyno_worker::protocol::{Reading, StepReading, StepUsages, TimedUsage};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub const HEARTBEAT: Duration = Duration::from_secs(2);

/// Maximum length of an answer: that of a profile.
pub(crate) const LONGEST_ANSWER: u64 = 64 << 20;

/// Maximum length of the text of a profile of stacks, which is stored with the run.
pub(crate) const LONGEST_PROFILE: usize = 8 << 20;

/// The connection is lost if nothing was heard for this time.
pub const LOST_AFTER: Duration = Duration::from_secs(12);

/// How long the answer to a request may take that only reads or prepares something.
const QUICK: Option<Duration> = Some(Duration::from_secs(5 * 60));

/// How long any answer may take, such as that to a copy of data.
const SLOW: Option<Duration> = Some(Duration::from_secs(12 * 3_600));

/// Of a request without an answer, and of a heartbeat, whose answer nobody waits for.
const NO_ANSWER: Option<Duration> = None;

pub trait Request: Into<AnyRequest> {
    type Reply: Serialize + DeserializeOwned;
}

macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident($($field:ty),*) -> $reply:ty, $limit:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Serialize, Deserialize)]
            pub struct $name($(pub $field),*);

            impl Request for $name {
                type Reply = $reply;
            }

            impl From<$name> for AnyRequest {
                fn from(request: $name) -> Self {
                    Self::$name(request)
                }
            }
        )*

        /// A request as it is sent.
        #[derive(Debug, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum AnyRequest {
            $($name($name),)*
        }

        impl AnyRequest {
            /// How long its answer may take; `None` if it has none.
            pub(crate) const fn time_limit(&self) -> Option<Duration> {
                match self {
                    $(Self::$name(_) => $limit,)*
                }
            }
        }
    };
}

requests! {
    /// Create the directory for all data in this directory, or in `/var/tmp`, and tell its path; must be the first
    /// request.
    Open(Option<PathBuf>) -> PathBuf, SLOW;
    /// Shows that dbdyno is there; answered by [`Answer::Alive`].
    Heartbeat() -> (), NO_ANSWER;
    /// Tell the time in nanoseconds since 1970.
    Time() -> u64, QUICK;
    /// Tell the text of `/proc/cpuinfo`.
    Machine() -> String, QUICK;
    /// Tell the directory for data and the free space there; `None` if it is unknown.
    FreeSpace() -> Option<(PathBuf, Bytes)>, QUICK;
    /// Open the copy of a server's programs with this name: use it, or be ready to make it.
    OpenTree(String) -> TreeState, QUICK;
    /// Tell what is missing in the copy, which has these entries: the numbers of the files that are not complete,
    /// each with the bytes that are there.
    FillTree(Vec<TreeEntry>) -> Vec<(usize, u64)>, SLOW;
    /// Write a part of a file.
    Put(FilePart) -> (), QUICK;
    /// Verify the copy and give it its name.
    FinishTree() -> (), SLOW;
    /// Find a program, and derive the settings of a server.
    Plan(Box<PlanRequest>) -> Box<ServerPlan>, SLOW;
    /// Listen at this address for this number of connections, to measure the network; tell the port.
    Listen(IpAddr, u32) -> u16, QUICK;
    Exists(String) -> bool, QUICK;
    Initialise(Box<ServerPlan>, String) -> (), SLOW;
    Remove(String) -> (), SLOW;
    Copy(String, String) -> (), SLOW;
    Rename(String, String) -> (), SLOW;
    Start(Box<StartRequest>) -> Started, SLOW;
    /// Find the process of a server that somebody else started.
    Find(ProcessSearch) -> ProcessFound, QUICK;
    /// Prepare to read the usage of this process; with `true`, with counters of the CPU and the kernel. Tell its
    /// number for further requests, and which counters are available.
    Watch(u32, bool) -> (u32, Option<Counting>), QUICK;
    /// Start sampling a server for the live optimizer.
    StartSampling(u32, ServerOptions) -> (), SLOW;
    /// End sampling, and make code that counts; tell whether executions are to be counted.
    EndSampling(u32) -> bool, SLOW;
    StartCounting(u32) -> (), SLOW;
    /// Wait for the end of counting.
    EndCounting(u32) -> (), SLOW;
    /// Optimize with what was sampled and counted.
    Optimize(u32) -> Box<OptimizedServer>, SLOW;
    /// Optimize with these samples of another process, whose source has this description.
    OptimizeBy(u32, ServerOptions, Box<Profile>, String) -> Box<OptimizedServer>, SLOW;
    /// Tell how a server exited, if it has.
    Ended(u32) -> Option<Failed>, QUICK;
    /// Read a server's usage.
    Read(u32, Reading) -> Option<TimedUsage>, QUICK;
    /// Read the usage of a server and of its storage in a step of the insert benchmark; all unknown for its start, and
    /// for a server that is not known.
    ReadStep(u32, StepReading) -> StepUsages, QUICK;
    /// Prepare to sample the stacks of a server, with this number of samples per second and CPU.
    StartStacks(u32, u32) -> (), QUICK;
    /// Tell the profile of what was sampled of a server since the last of these requests.
    Stacks(u32) -> Box<RawValue>, QUICK;
    /// Take a reading before a lead-in that follows without interruption; has no answer.
    LeadIn(u32) -> (), NO_ANSWER;
    /// Stop a server cleanly.
    Stop(u32) -> (), SLOW;
    /// Kill a server, or forget a process.
    Kill(u32) -> (), SLOW;
    /// Remove everything, and exit; has no answer.
    End() -> (), NO_ANSWER;
}

/// An agent's answer to a request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer<T> {
    /// To a heartbeat.
    Alive,
    Done(T),
    Failed(Failed),
}

impl Answer<()> {
    /// How the line of an answer begins, other than that to a heartbeat.
    pub(crate) fn starts(line: &[u8]) -> bool {
        ["{\"done\":", "{\"failed\":"].iter().any(|start| line.starts_with(start.as_bytes()))
    }
}

/// The line of a request or an answer.
pub(crate) fn line_of(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

/// A file, directory or symbolic link of a server's programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeEntry {
    /// Its path in the tree; a directory comes before what is in it.
    pub path: PathBuf,
    pub kind: EntryKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EntryKind {
    Directory,
    File {
        size: u64,
        /// The SHA-256 of its content, 64 hexadecimal digits.
        sha256: String,
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

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlanRequest {
    pub system: ServerSystem,
    pub engine: Option<StorageEngine>,
    /// The program; `None`: searched for.
    pub program: Option<PathBuf>,
    /// The name of an installed release, if no program is given.
    pub release: Option<String>,
    pub durability: Durability,
    /// Settings that override dbdyno's.
    pub configuration: Vec<(String, String)>,
    pub defaults: SettingDefaults,
    /// What the settings depend on.
    pub shape: DataShape,
}

impl PlanRequest {
    /// The plan of a server on this machine.
    pub fn plan(self) -> Result<ServerPlan, ServerError> {
        let (system, engine) = (self.system, self.engine);
        let installation = match (&self.program, &self.release) {
            (None, Some(name)) => Installation::of_release(system, engine, name)?,
            (program, _) => Installation::find(system, engine, program.as_deref())?,
        };
        let defaults = (self.defaults, self.durability);
        ServerPlan::with_defaults(installation, engine, defaults, self.configuration, self.shape)
    }
}

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
    /// Warnings and errors that it logged when it started.
    pub warnings: Vec<String>,
    /// How long it took.
    pub time: Nanos,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The reason, in one line.
    pub brief: String,
    /// The reason with the last lines of logs.
    pub whole: String,
}

impl Failed {
    pub fn because(reason: impl std::fmt::Display) -> Self {
        let brief = reason.to_string();
        Self { whole: brief.clone(), brief }
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::because(error)
    }
}

impl From<ServerError> for Failed {
    fn from(error: ServerError) -> Self {
        Self { brief: error.brief(), whole: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use dbdyno_fuzz::Fuzz;
    use dbdyno_types::Counts;

    use super::*;

    fn sample(value: impl Serialize) -> Vec<u8> {
        line_of(&value).unwrap()
    }

    #[test]
    fn damaged_lines_are_read_or_refused() {
        let entry = |path: &str, kind| TreeEntry { path: path.into(), kind };
        let file = EntryKind::File { size: 5, sha256: "ab".repeat(32), executable: true };
        let entries = vec![entry("bin", EntryKind::Directory), entry("bin/server", file)];
        let network = Network {
            address: IpAddr::from([192, 0, 2, 1]),
            client: IpAddr::from([192, 0, 2, 2]),
            port: 3306,
            verifier: "*0123".to_owned(),
            tls: true,
        };
        let started = Started {
            server: 1,
            port: 3306,
            certificate: None,
            public_key: Some("-----BEGIN PUBLIC KEY-----".to_owned()),
            counting: Some(Counting::default()),
            warnings: vec!["a warning".to_owned()],
            time: Nanos::from_millis(300),
        };
        let usage = TimedUsage { server: None, counts: Counts::default(), energy: None };
        let samples = vec![
            sample(AnyRequest::from(Open(Some("/data".into())))),
            sample(AnyRequest::from(FillTree(entries))),
            sample(AnyRequest::from(Read(1, Reading::LeadIn { interrupted: true }))),
            sample(network),
            sample(Answer::Done(started)),
            sample(Answer::Done(Some(usage))),
            sample(Answer::Done(StepUsages::default())),
            sample(Answer::Done(vec![(1_usize, 2_u64)])),
            sample(Answer::Done(dbdyno_types::profile::Profile::default())),
            sample(Answer::<()>::Failed(Failed::because("no"))),
        ];
        let words = ["{\"done\":", "{\"failed\":", "null", "-1", "1e400", "[[[[", "\\u001b"];
        Fuzz::new(samples).words(&words).run(|line| {
            let _ = serde_json::from_slice::<AnyRequest>(line);
            let _ = serde_json::from_slice::<Network>(line);
            let _ = serde_json::from_slice::<Answer<Started>>(line);
            let _ = serde_json::from_slice::<Answer<Option<TimedUsage>>>(line);
            let _ = serde_json::from_slice::<Answer<StepUsages>>(line);
            let _ = serde_json::from_slice::<Answer<Vec<(usize, u64)>>>(line);
            let _ = serde_json::from_slice::<Answer<Box<OptimizedServer>>>(line);
            let _ = serde_json::from_slice::<Answer<Box<RawValue>>>(line);
        });
    }
}
