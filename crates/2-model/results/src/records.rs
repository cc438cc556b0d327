//! The records of a run directory. These types define the file format: changing one requires a new
//! format number.

use std::collections::BTreeMap;
use std::fmt;

use dbdyno_types::insert::StepMeasured;
use dbdyno_types::profile::Profile;
use dbdyno_types::server::{ServerSystem, SettingDefaults};
use dbdyno_types::{
    ClientWait, Counting, EngineCounts, NewLayout, ReleaseFile, SliceMeasured, StateSnapshot,
};
use dbdyno_units::{Bytes, Nanos, Share};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The data of a new run.
#[derive(Clone, Debug)]
pub struct NewRun {
    pub name: String,
    pub baseline: String,
    pub experiment_text: String,
    /// The experiment with all defaults filled in.
    pub experiment: Value,
    /// The experiment's settings for reports: label and value, in display order.
    pub settings: Vec<(String, String)>,
    /// The microbenchmarks, in running order.
    pub microbenchmarks: Vec<MicrobenchmarkRecord>,
    /// The insert benchmark; `None` for a run of microbenchmarks.
    pub insert: Option<InsertPlanRecord>,
}

/// Labels of a run's settings that reports treat specially.
pub mod setting {
    pub const BASELINE: &str = "baseline";
    pub const MICROBENCHMARKS: &str = "microbenchmarks";
    /// Its value is a word with an explanation, see [`explained`].
    pub const PACE: &str = "pace";
    /// One for each extension of the run.
    pub const EXTENDED: &str = "extended";
    /// The numbers of clients of imported results.
    pub const IMPORTED_CLIENTS: &str = "Clients";
    /// The scripts that create the user's own tables, with the checksum of their text.
    pub const OWN_TABLES: &str = "own tables";

    /// The label of the checksum of the statements of a microbenchmark that is not built in.
    pub fn statements_of(microbenchmark: &str) -> String {
        format!("statements of {microbenchmark}")
    }

    /// The label of a script, its options and the checksum of its text.
    pub fn script_of(microbenchmark: &str) -> String {
        format!("script of {microbenchmark}")
    }

    /// A word with an explanation, which another version of dbdyno may give in other words.
    pub fn explained(word: &str, explanation: &str) -> String {
        format!("{word}: {explanation}")
    }

    /// The word without its explanation.
    pub fn word(explained: &str) -> &str {
        explained.split_once(": ").map_or(explained, |(word, _)| word)
    }

    /// The labels of what is not the same in two runs, although they use the same names for it: the
    /// user's own tables, and statements and scripts of microbenchmarks that both have.
    pub fn other_work(one: &[(String, String)], other: &[(String, String)]) -> Vec<String> {
        let value = |settings: &[(String, String)], label: &str| {
            settings.iter().find(|(known, _)| known == label).map(|(_, value)| value.clone())
        };
        let starts = [statements_of(""), script_of("")];
        let differs = |label: &str| match (value(one, label), value(other, label)) {
            (a, b) if label == OWN_TABLES => a != b,
            (Some(a), Some(b)) => a != b && starts.iter().any(|start| label.starts_with(start)),
            _ => false,
        };
        let own = one.iter().map(|(label, _)| label.as_str());
        let labels = own.filter(|label| *label != OWN_TABLES).chain([OWN_TABLES]);
        labels.filter(|label| differs(label)).map(str::to_owned).collect()
    }
}

/// The size of the data, as one of the run's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataSize {
    /// Number of tables; 0 if the microbenchmarks use none of dbdyno's.
    pub tables: u32,
    /// Rows per table.
    pub rows: u64,
}

impl DataSize {
    /// The label of the setting.
    pub const LABEL: &str = "tables × rows";
    const NONE: &str = "none: no statement uses dbdyno's tables";

    /// The size among a run's settings; `None` if the run does not record it.
    pub fn of(settings: &[(String, String)]) -> Option<Self> {
        let (_, value) = settings.iter().find(|(label, _)| label == Self::LABEL)?;
        let none = || (value == Self::NONE).then_some(("0", "0"));
        let (tables, rows) = value.split_once(" × ").or_else(none)?;
        Some(Self { tables: tables.parse().ok()?, rows: rows.parse().ok()? })
    }
}

impl fmt::Display for DataSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tables {
            0 => f.write_str(Self::NONE),
            tables => write!(f, "{tables} × {}", self.rows),
        }
    }
}

/// The parts of a stored experiment that reports need.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct StoredExperiment {
    pub schedule: StoredSchedule,
    pub profile: Option<StoredProfiling>,
}

/// The parts of the stored section of profiles that reports need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct StoredProfiling {
    /// CPU time of each candidate and microbenchmark that is to be sampled.
    pub time: Option<Nanos>,
    pub layers: Option<StoredLayers>,
}

/// The user's rules for layers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct StoredLayers {
    pub rules: String,
}

/// The parts of a stored schedule that reports need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct StoredSchedule {
    /// The number of starts of each microbenchmark that the schedule requires.
    pub restarts: u32,
}

/// The parameters of the insert benchmark that reports need.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InsertPlanRecord {
    pub clients: u32,
    pub tables: u32,
    pub repeats: u32,
    /// A second with less than this share of the step's median throughput is a write stall.
    pub stall: Share,
    /// A step that inserts less than this share of its rate did not sustain it.
    pub sustained: Share,
    pub steps: Vec<InsertStepPlan>,
}

/// A step of the insert benchmark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InsertStepPlan {
    /// Its published name.
    pub name: String,
    pub what: String,
    /// Whether it runs queries.
    pub queries: bool,
    /// Whether it inserts.
    pub inserts: bool,
    /// Requested rate of inserts, in rows per second over all clients.
    pub rate: Option<u64>,
}

/// One step of one candidate in one repeat.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InsertStepRecord {
    /// Row ID; ignored when writing.
    pub id: i64,
    pub repeat: u32,
    /// The candidate's position within the repeat.
    pub position: u32,
    pub candidate: u32,
    pub step: u32,
    pub name: String,
    /// Source of its data and caches.
    pub started_from: StartedFrom,
    /// Measurements; `None` while it runs, or if it was interrupted.
    pub measured: Option<StepMeasured>,
}

dbdyno_types::words! {
    /// Source of a step's data and caches.
    #[derive(Default)]
    StartedFrom {
        /// The previous step, or nothing for the first step.
        #[default]
        Step = "step",
        /// A copy from storage after an interruption; the caches were empty.
        Copy = "copy",
    }
}

/// One microbenchmark of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MicrobenchmarkRecord {
    /// The published name.
    pub name: String,
    /// Number of clients. A sweep has one record per microbenchmark and number of clients.
    pub clients: u32,
    /// The published group.
    pub group: String,
    /// The group in the older scheme with three groups.
    pub three_group: String,
    /// Rows read per statement if throughput counts rows instead of statements.
    pub rows_read_per_statement: Option<u64>,
    /// Whether it changes data.
    pub writes: bool,
    /// The sysbench script with its options; `None` if it is not a script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// What is compared between answers, and why not everything; `None` for everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<String>,
}

/// A candidate's role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The others are divided by it.
    Baseline,
    /// Compared with the baseline.
    #[default]
    Candidate,
    /// A second instance of the baseline, which shows the noise floor.
    Control,
}

/// One candidate of a run; its number is its index in the run's list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CandidateRecord {
    pub name: String,
    pub role: Role,
    /// The system, such as `sqlite`.
    pub system: String,
    pub version: String,
    /// The storage engine, such as `innodb`; `None` if the system has only one.
    pub engine: Option<String>,
    /// How it was built; `None` for a program that dbdyno did not build.
    pub build: Option<BuildRecord>,
    /// The program or the address used; `None` for a build.
    pub origin: Option<OriginRecord>,
    /// Configuration: key and value, in display order.
    pub configuration: Vec<(String, String)>,
    /// Build options and settings that an existing server reported when it was first opened: names
    /// and values, those that are known to affect speed first. In a run with an existing server, also
    /// those of private servers. Otherwise empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server_settings: Vec<(String, String)>,
    /// Settings whose effective values differ from the baseline's, as text; empty for the
    /// baseline.
    pub config_diff: Vec<String>,
    /// What its private server made of its settings.
    #[serde(default, skip_serializing_if = "InForceRecord::is_empty")]
    pub in_force: InForceRecord,
    /// An injected delay, for tests of dbdyno.
    pub injected_delay: Option<Share>,
}

/// What a private server made of its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InForceRecord {
    /// Whose values the settings have that the candidate does not set; `None` if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<SettingDefaults>,
    /// dbdyno's own values of settings that make benchmarks differ from the server's defaults.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notable_defaults: Vec<(String, String)>,
    /// Settings whose values in force are not those that were asked for. The configuration has the values in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adjusted: Vec<AdjustedSetting>,
    /// Settings that only the candidate or only the baseline sets, or both differently, with equal values in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_effect: Vec<String>,
    /// Settings that the candidate sets to what is known to be the server's own default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set_to_default: Vec<String>,
    /// Warnings and errors that the server logged at the first start of a session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server_log: Vec<String>,
}

impl InForceRecord {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A setting whose value in force is not the one that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdjustedSetting {
    pub name: String,
    pub asked: String,
    pub in_force: String,
}

/// The only system without a server.
const EMBEDDED: &str = "sqlite";

impl CandidateRecord {
    /// Whether the database runs inside the worker: then the clients' CPU time is that of the system
    /// under test.
    pub fn is_embedded(&self) -> bool {
        self.system == EMBEDDED
    }

    /// The system's display name with its version and storage engine, such as `MariaDB 10.11.6
    /// (innodb)`.
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

/// Origin of a candidate that dbdyno did not build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OriginRecord {
    /// An installed program.
    Program {
        path: String,
        /// SHA-256 of the file.
        sha256: String,
        /// The file's size.
        file_size: Bytes,
        /// The release that it is from, if the experiment names one.
        release: Option<ReleaseRecord>,
    },
    /// An existing server.
    Server { address: String },
    /// Imported results.
    Imported { file: String },
}

/// The release that a program is from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseRecord {
    /// Its name, or where it was fetched from: `Debian sid`.
    pub origin: String,
    /// The packages or the archive that it was unpacked from, that with the program first; empty if
    /// it is installed.
    pub files: Vec<ReleaseFile>,
}

/// The properties of a build that reports need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildRecord {
    pub variant: String,
    /// What its profile was collected from, as text; `None` without a profile.
    pub trained_on: Option<String>,
    /// Whether BOLT rewrote the linked file.
    pub bolted: bool,
    /// The compiler and its version.
    pub compiler: String,
    /// The build commands, in shell syntax.
    pub commands: Vec<String>,
    /// Identifies the build.
    pub fingerprint: String,
    /// SHA-256 of the source.
    pub source_sha256: String,
    /// SHA-256 of the library.
    pub library_sha256: String,
    /// Size of the machine code in the library. Earlier versions recorded only the hot part of what BOLT rewrote.
    pub text_size: Bytes,
    pub file_size: Bytes,
    /// Size of the library after `strip`; `None` if unknown.
    pub stripped_size: Option<Bytes>,
    /// Flag audit; `None` if the build was not audited.
    pub audit: Option<AuditRecord>,
}

impl BuildRecord {
    /// All commands, one per line.
    pub fn command(&self) -> String {
        self.commands.join("\n")
    }
}

/// Flag audit of a build, summed over its objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// Number of objects, without those of assembly sources.
    pub objects: u64,
    /// Whether the data comes from objects; otherwise it comes from the linked file.
    pub from_objects: bool,
    /// Optimization levels, such as `O3`, most frequent first. Objects without data are not counted
    /// in any of these lists.
    pub optimization: Vec<NamedCount>,
    /// Forms of link-time optimization: `none`, `slim`, `fat`, `thin`, `linked`.
    pub lto: Vec<NamedCount>,
    /// Instruction sets, such as `x86-64`.
    pub march: Vec<NamedCount>,
    /// Assertions: `on`, `off`.
    pub assertions: Vec<NamedCount>,
    /// Use of profiles: `none`, `generate`, `use`, `samples`.
    pub profile: Vec<NamedCount>,
    /// Hardening options, such as `stack protector strong`; objects may have several.
    pub hardening: Vec<NamedCount>,
    /// Violations that the experiment ignores, by check.
    pub ignored: Vec<NamedCount>,
    pub warnings: Vec<NamedCount>,
    /// Differences from the baseline's command lines; `None` for the baseline, and if the baseline
    /// has no audit.
    pub against_baseline: Option<CommandLinesRecord>,
}

/// A name with a count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedCount {
    pub name: String,
    pub count: u64,
}

/// Differences between the recorded command lines of a build and the baseline's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandLinesRecord {
    /// Number of files with a recorded command line in both builds.
    pub compared: u64,
    /// Number of these files with equal command lines.
    pub same: u64,
    /// Number of files only in this build.
    pub only_here: u64,
    /// Number of files only in the baseline.
    pub only_in_baseline: u64,
    /// Kinds of differences with their files, most frequent first.
    pub kinds: Vec<CommandLineDifference>,
}

/// A difference between command lines that several files may share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandLineDifference {
    /// Flags only in this build.
    pub added: Vec<String>,
    /// Flags only in the baseline.
    pub removed: Vec<String>,
    pub files: u64,
    /// Some of these files.
    pub examples: Vec<String>,
}

/// One uninterrupted part of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SessionRecord {
    pub started: String,
    pub version: String,
    /// Facts about the host for reports: label and value, in display order.
    pub host: Vec<(String, String)>,
    /// All facts about the host.
    pub facts: Value,
    /// Conditions that may distort the results.
    pub warnings: Vec<Warning>,
    /// CPUs available to the load generator if it is not inside the system under test; used with
    /// its CPU time to determine whether it was the bottleneck. `None` if unknown, and for a run of
    /// embedded engines only.
    pub client_cpus: Option<u32>,
    /// CPUs available to the systems under test; used with a server's CPU time to determine whether
    /// it was the bottleneck. `None` if unknown, as for a server on another machine.
    pub system_cpus: Option<u32>,
    /// How the clients of servers waited for answers; `None` without servers.
    pub client_wait: Option<ClientWait>,
    /// Available and unavailable counters of each candidate, by number; `None` for a candidate
    /// whose counters were not opened. Empty until all are opened.
    pub counting: Vec<Option<Counting>>,
    /// Whether a later session cannot continue with the data of this one.
    #[serde(default)]
    pub loses_data: bool,
    /// Time from the start to the last stored record.
    #[serde(default)]
    pub elapsed: Nanos,
}

/// A condition that may distort the results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    pub what: String,
    /// What to do about it: a sentence, or a command or step in lower case.
    pub advice: String,
}

impl Warning {
    /// How warnings begin about stacks that are not sampled.
    pub const NO_STACKS: &str = "no stacks are sampled";

    /// Whether it says why a profile is missing.
    pub fn is_of_missing_profile(&self) -> bool {
        self.what.starts_with(Self::NO_STACKS)
    }

    /// The condition with the sign before the advice: a full stop before a sentence, else a semicolon.
    pub fn what_with_stop(&self) -> String {
        let is_sentence = self.advice.is_empty() || self.advice.starts_with(char::is_uppercase);
        format!("{}{}", self.what.trim_end_matches('.'), if is_sentence { '.' } else { ';' })
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct SliceRecord {
    pub microbenchmark: u32,
    /// Number of restarts of the instances for this microbenchmark before this slice.
    pub restart: u32,
    pub block: u32,
    /// Its position in the block.
    pub position: u32,
    pub candidate: u32,
    /// Whether it is a warm-up slice.
    pub warmup: bool,
    pub measured: SliceMeasured,
}

/// The times of one statement of a script in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatementRecord {
    pub restart: u32,
    pub block: u32,
    pub candidate: u32,
    /// Timed executions.
    pub executions: u64,
    /// The sum of their response times.
    pub total: Nanos,
}

/// By how much the engine's own counters grew in a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineCountsRecord {
    pub restart: u32,
    pub block: u32,
    pub candidate: u32,
    pub counts: EngineCounts,
}

/// What was sampled of a candidate on a microbenchmark in one start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileRecord {
    pub candidate: u32,
    pub restart: u32,
    /// Statements in the timed parts that were sampled.
    pub statements: u64,
    /// CPU time of the system under test meanwhile.
    pub cpu: Nanos,
    pub profile: Profile,
}

dbdyno_types::words! {
    /// Kind of a failure.
    FailureKind {
        /// Wrong answers: the measurements are invalid.
        Wrong = "wrong",
        /// The candidate ended or gave up: earlier measurements are valid.
        Ended = "ended",
        /// Connections or the server were lost, and the candidate continued after a restart: not a
        /// failure of the candidate, but reported.
        Lost = "lost",
        /// After a loss its data differs from the others': not a failure, but its answers are not
        /// compared from then on.
        Differs = "differs",
        /// Equal instances gave other values: not a failure, but only numbers of rows are compared from then on.
        Undetermined = "undetermined",
    }
}

/// A failure or a loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureRecord {
    pub kind: FailureKind,
    /// Whether a later session completed what this failure had stopped. Determined when reading;
    /// ignored when writing.
    pub recovered: bool,
    pub candidate: u32,
    /// The microbenchmark's number; `None` if outside of any microbenchmark.
    pub microbenchmark: Option<u32>,
    pub at: String,
    pub reason: String,
}

impl FailureRecord {
    /// Whether it invalidates the candidate's results: wrong answers do, and an end unless a later
    /// session completed the measurement. A lost connection does not.
    pub const fn is_invalidating(&self) -> bool {
        match self.kind {
            FailureKind::Wrong => true,
            FailureKind::Ended => !self.recovered,
            FailureKind::Lost | FailureKind::Differs | FailureKind::Undetermined => false,
        }
    }
}

/// The state of a candidate's instance at one time of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSnapshotRecord {
    pub candidate: u32,
    /// The time, such as `before the first microbenchmark`.
    pub at: String,
    pub state_snapshot: StateSnapshot,
}

/// An optimization of a running server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptimizationRecord {
    pub candidate: u32,
    /// The microbenchmark during which it was sampled.
    pub trained_with: u32,
    /// The next measured microbenchmark.
    pub measured_next: u32,
    /// Whether it reuses the samples of an earlier optimization, for a restarted server.
    pub after_restart: bool,
    /// Why the server was not optimized; then its code is the original one and there is no new layout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    #[serde(flatten)]
    pub layout: NewLayout,
}

/// Extended microbenchmarks. It is stored before they are measured, so that an interrupted extension
/// is resumed like any other run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtensionRecord {
    /// The measuring time of all candidates, with that of earlier sessions, after which a
    /// microbenchmark is done again; by its number.
    pub goals: BTreeMap<u32, Nanos>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_of_the_data_is_read_as_it_was_written() {
        let setting = |text: &str| [(DataSize::LABEL.to_owned(), text.to_owned())];
        for (tables, rows, text) in
            [(1, 100_000, "1 × 100000"), (0, 0, "none: no statement uses dbdyno's tables")]
        {
            let size = DataSize { tables, rows };
            assert_eq!(size.to_string(), text);
            assert_eq!(DataSize::of(&setting(text)), Some(size));
        }
        assert_eq!(DataSize::of(&setting("many")), None);
        assert_eq!(DataSize::of(&[]), None);
    }

    #[test]
    fn later_session_makes_up_for_an_end_but_not_for_wrong_answers() {
        let is_invalidating = |kind, recovered| {
            let (at, reason) = (String::new(), String::new());
            FailureRecord { kind, recovered, candidate: 1, microbenchmark: Some(0), at, reason }
                .is_invalidating()
        };
        let of = |kind| [false, true].map(|recovered| is_invalidating(kind, recovered));
        assert_eq!(of(FailureKind::Wrong), [true, true]);
        assert_eq!(of(FailureKind::Ended), [true, false]);
        assert_eq!(of(FailureKind::Lost), [false, false]);
        assert_eq!(of(FailureKind::Differs), [false, false]);
    }
}
