//! What a run directory stores, as plain data. These types are the file format: a field that is
//! added must have a default, and one that is removed needs a new format number.

use dbdyno_record::insert::StepMeasured;
use dbdyno_record::server::ServerSystem;
use dbdyno_record::{Counting, SliceMeasured, StateSnapshot};
use dbdyno_units::{Bytes, Nanos, Share};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is known when a run is made.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// The experiment's name.
    pub name: String,
    /// The name of the baseline.
    pub baseline: String,
    /// The text of the experiment file.
    pub experiment_text: String,
    /// The experiment with all defaults filled in.
    pub experiment: Value,
    /// The experiment's settings for reports: label and value, in the order to show.
    pub settings: Vec<(String, String)>,
    /// What is measured, in running order.
    pub microbenchmarks: Vec<MicrobenchmarkRecord>,
    /// The insert benchmark; `None` for a run of microbenchmarks.
    pub insert: Option<InsertPlanRecord>,
}

/// The insert benchmark of a run, as far as a report wants to know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InsertPlanRecord {
    /// Clients at work at once.
    pub clients: u32,
    /// Tables.
    pub tables: u32,
    /// How often all of it is done.
    pub repeats: u32,
    /// A second with less than this share of the step's median throughput is a write stall.
    pub stall: Share,
    /// A step that inserts less than this share of its rate did not sustain it.
    pub sustained: Share,
    /// The steps, in order.
    pub steps: Vec<InsertStepRecord>,
}

/// A step of the insert benchmark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InsertStepRecord {
    /// Its published name.
    pub name: String,
    /// What it does, in words.
    pub what: String,
    /// Whether it runs queries.
    #[serde(alias = "asks")]
    pub queries: bool,
    /// Whether it inserts.
    pub inserts: bool,
    /// The rate of inserts that was asked for, in rows per second of all clients together.
    pub rate: Option<u64>,
}

/// One step of one candidate in one repeat.
#[derive(Clone, Debug, PartialEq)]
pub struct InsertStepRow {
    /// Identifies it; of no meaning when it is written.
    pub id: i64,
    /// The repeat, from 0.
    pub repeat: u32,
    /// The candidate's place within the repeat.
    pub place: u32,
    /// The candidate's number.
    pub candidate: u32,
    /// The step's number.
    pub step: u32,
    /// The step's name.
    pub name: String,
    /// Where its data and its caches come from.
    pub started_from: StartedFrom,
    /// What it measured; `None` while it runs, and where it was broken off.
    pub measured: Option<StepMeasured>,
}

/// Where a step's data and its caches come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartedFrom {
    /// The step before it, or nothing.
    Step,
    /// What was on storage when the run was interrupted: the caches were empty.
    Copy,
}

impl StartedFrom {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Copy => "copy",
        }
    }
}

/// One microbenchmark of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MicrobenchmarkRecord {
    /// The published name.
    pub name: String,
    /// Clients at work at once. A sweep has one record per microbenchmark and number of clients.
    pub clients: u32,
    /// The published group.
    pub group: String,
    /// The group in the older form with three groups.
    pub three_group: String,
    /// Rows that one statement reads, where throughput counts rows read instead of statements.
    pub rows_read_per_statement: Option<u64>,
}

/// What a candidate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The others are divided by it.
    Baseline,
    /// Compared with the baseline.
    Candidate,
    /// The baseline again: shows the noise floor.
    Control,
}

/// One candidate of a run; its number is its place in the run's list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CandidateRecord {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// The system, such as `sqlite`.
    pub system: String,
    /// The system's version.
    pub version: String,
    /// The storage engine inside the system, such as `innodb`; `None` where it has only its own.
    pub engine: Option<String>,
    /// How it was built; `None` for a program that dbdyno did not build.
    pub build: Option<BuildRecord>,
    /// The program or the address that was used; `None` for a build.
    pub origin: Option<OriginRecord>,
    /// Configuration: key and value, in the order to show.
    pub configuration: Vec<(String, String)>,
    /// Settings whose effective values differ from the baseline's, as text; empty for the
    /// baseline.
    #[serde(default, alias = "parity")]
    pub config_diff: Vec<String>,
    /// An injected delay, in tests of dbdyno itself.
    pub injected_delay: Option<Share>,
}

impl CandidateRecord {
    /// The system's proper name with its version and storage engine, such as
    /// `MariaDB 10.11.6 (innodb)`.
    #[must_use]
    pub fn system_title(&self) -> String {
        let server = ServerSystem::ALL.into_iter().find(|system| system.name() == self.system);
        let name = match self.system.as_str() {
            "sqlite" => "SQLite",
            other => server.map_or(other, |server| server.title()),
        };
        // MariaDB's version string includes its name.
        let version = self.version.split_once("-MariaDB").map_or(self.version.as_str(), |v| v.0);
        let engine = self.engine.as_ref().map_or_else(String::new, |engine| format!(" ({engine})"));
        format!("{}{engine}", format!("{name} {version}").trim_end())
    }
}

/// Where a candidate that dbdyno did not build comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OriginRecord {
    /// An installed program.
    Program {
        /// Its path.
        path: String,
        /// SHA-256 of the file.
        sha256: String,
        /// The file's size.
        file_size: Bytes,
    },
    /// A server that was there already.
    Server {
        /// Its address, without user and password.
        address: String,
    },
    /// Results that others measured.
    Imported {
        /// The file they were read from.
        file: String,
    },
}

/// A build, as far as a report wants to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildRecord {
    /// The variant's name.
    pub variant: String,
    /// What its profile was collected from, in words; `None` where it was made without one.
    #[serde(default)]
    pub trained_on: Option<String>,
    /// Whether BOLT laid it out after the link.
    #[serde(default)]
    pub bolted: bool,
    /// The compiler and its version.
    pub compiler: String,
    /// The commands, as one could paste them into a shell.
    pub commands: Vec<String>,
    /// What identifies the build.
    pub fingerprint: String,
    /// SHA-256 of the source.
    pub source_sha256: String,
    /// SHA-256 of the library.
    pub library_sha256: String,
    /// Machine code in the library.
    pub text_size: Bytes,
    /// The library's file.
    pub file_size: Bytes,
    /// What `strip` would leave of it; `None` where it is not known.
    #[serde(default)]
    pub stripped_size: Option<Bytes>,
    /// What compilers recorded in its objects; `None` where nobody read it.
    #[serde(default)]
    pub audit: Option<AuditRecord>,
}

impl BuildRecord {
    /// All commands, one per line.
    #[must_use]
    pub fn command(&self) -> String {
        self.commands.join("\n")
    }
}

/// What a flag audit found in a build, summed up over its objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// How many objects there are, those of assemblers left out.
    pub objects: u64,
    /// Whether they are objects; else they are what the linked file tells of them.
    pub from_objects: bool,
    /// Optimization levels, such as `O3`, that of most objects first. Objects of which nothing is
    /// known are counted in none of these lists.
    pub optimization: Vec<NamedCount>,
    /// Forms of link-time optimization: `none`, `slim`, `fat`, `thin`, `linked`.
    pub lto: Vec<NamedCount>,
    /// Instruction sets, such as `x86-64`.
    pub march: Vec<NamedCount>,
    /// Assertions: `on`, `off`.
    pub assertions: Vec<NamedCount>,
    /// Uses of profiles: `none`, `generate`, `use`, `samples`.
    pub profile: Vec<NamedCount>,
    /// What makes attacks harder, such as `stack protector strong`; objects may have several.
    pub hardening: Vec<NamedCount>,
    /// Violations that the experiment ignores, by check.
    #[serde(alias = "allowed")]
    pub ignored: Vec<NamedCount>,
    /// Warnings, by the names of the checks.
    pub warnings: Vec<NamedCount>,
    /// How command lines differ from the baseline's; `None` for the baseline itself and where the
    /// baseline has no audit.
    pub against_baseline: Option<CommandLinesRecord>,
}

/// A name with a count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedCount {
    /// What is counted.
    #[serde(alias = "what")]
    pub name: String,
    /// How many there are.
    pub count: u64,
}

/// How the recorded command lines of a build differ from the baseline's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandLinesRecord {
    /// How many files have a recorded command line in both.
    pub compared: u64,
    /// How many of them have the same.
    pub same: u64,
    /// How many files are only here.
    pub only_here: u64,
    /// How many files are only in the baseline.
    pub only_in_baseline: u64,
    /// Differences, each with the files that have it, those of most files first.
    pub kinds: Vec<CommandLineDifference>,
}

/// One difference of command lines, which some files share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandLineDifference {
    /// Flags that are here and not in the baseline.
    pub added: Vec<String>,
    /// Flags that are in the baseline and not here.
    pub removed: Vec<String>,
    /// How many files.
    pub files: u64,
    /// Some of them.
    pub examples: Vec<String>,
}

/// One uninterrupted stretch of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionRecord {
    /// When it started, RFC 3339.
    pub started: String,
    /// dbdyno's version.
    pub version: String,
    /// Facts of the host for reports: label and value, in the order to show.
    pub host: Vec<(String, String)>,
    /// The same facts, whole.
    pub facts: Value,
    /// What may spoil the results.
    pub warnings: Vec<Warning>,
    /// CPUs that the load generator may use, where it is not inside the system under test: with
    /// its CPU time they tell whether it was the limit. `None` where unknown, and for a run of
    /// embedded engines only.
    #[serde(default)]
    pub client_cpus: Option<u32>,
    /// CPUs that the systems under test may use: with a server's CPU time they tell whether it
    /// was the limit. `None` where unknown, as for a server elsewhere.
    #[serde(default)]
    pub system_cpus: Option<u32>,
    /// What the CPU and the kernel counted for each candidate, by its number, and what could not
    /// be counted; `None` for one that was not opened. Empty until all are.
    #[serde(default)]
    pub counting: Vec<Option<Counting>>,
    /// Time from start to the last thing stored.
    #[serde(default)]
    pub elapsed: Nanos,
}

/// Something that may spoil the results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// What was seen.
    pub what: String,
    /// What to do about it.
    pub advice: String,
}

/// One slice.
#[derive(Clone, Debug, PartialEq)]
pub struct SliceRow {
    /// The microbenchmark's number.
    pub microbenchmark: u32,
    /// How often the instances had been started anew for this microbenchmark.
    pub restart: u32,
    /// The block.
    pub block: u32,
    /// Its place in the block.
    pub place: u32,
    /// The candidate's number.
    pub candidate: u32,
    /// Whether it is warm-up.
    pub warmup: bool,
    /// What it measured.
    pub measured: SliceMeasured,
}

/// In what way something failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// It answered, and wrongly: what was measured is worth nothing.
    Wrong,
    /// It ended or gave up: what was measured before is good.
    Ended,
    /// Its connections or its server were lost, and it went on after a restart: not a failure of
    /// the candidate, but a reader wants to know how often.
    Lost,
    /// A loss left it with other data than the rest: no failure either, but its answers are not
    /// compared with theirs from there on.
    Differs,
}

impl FailureKind {
    const ALL: [Self; 4] = [Self::Wrong, Self::Ended, Self::Lost, Self::Differs];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Wrong => "wrong",
            Self::Ended => "ended",
            Self::Lost => "lost",
            Self::Differs => "differs",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Something that failed or was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureRecord {
    /// In what way.
    pub kind: FailureKind,
    /// Whether a later session measured what this failure had stopped. Known when the run is
    /// read; of no meaning when it is written.
    pub recovered: bool,
    /// The candidate's number.
    pub candidate: u32,
    /// The microbenchmark's number; `None` outside of any.
    pub microbenchmark: Option<u32>,
    /// What was being done.
    pub at: String,
    /// Why it failed.
    pub reason: String,
}

/// Where a candidate's instance stood at some point of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSnapshotRecord {
    /// The candidate's number.
    pub candidate: u32,
    /// When: such as `before the first microbenchmark`.
    pub at: String,
    /// Where it stood.
    pub state_snapshot: StateSnapshot,
}
