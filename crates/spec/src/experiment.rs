//! What an experiment says, with every default filled in.

use std::path::PathBuf;

use dbdyno_record::FlagCheck;
use dbdyno_record::build::{
    BoltProfileMethod, ConfigureTool, SourceOrigin, UnknownVariant, Variant, VariantOverrides,
};
use dbdyno_record::server::{Durability, ServerSystem, StatementMode, StorageEngine, Target};
use dbdyno_units::{Bytes, Nanos, Share};
use dbdyno_workloads::definition::Microbenchmark;
use dbdyno_workloads::insert::Plan;
use serde::{Deserialize, Serialize};

use crate::schema;

/// A whole experiment, valid and complete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// Its name: also the start of the run directory's name.
    pub name: String,
    /// The name of the candidate that the others are divided by.
    pub baseline: String,
    /// Whether a second instance of the baseline is measured too.
    pub control: bool,
    /// Where all random draws start from.
    pub seed: u64,
    /// The data and the work; for an insert benchmark only what sizes caches and limits.
    pub workload: Workload,
    /// The insert benchmark; `None` for an experiment with microbenchmarks.
    #[serde(default)]
    pub insert_benchmark: Option<InsertBenchmark>,
    /// How long and in what slices.
    pub schedule: Schedule,
    /// Which CPUs do what.
    pub cpus: Cpus,
    /// When wrong answers fail a candidate.
    pub checks: Checks,
    /// What is compared, the baseline among them.
    pub candidates: Vec<Candidate>,
}

impl Experiment {
    /// The candidate that is the baseline.
    ///
    /// # Panics
    /// Never for a parsed experiment: its baseline was checked.
    #[must_use]
    pub fn baseline_candidate(&self) -> &Candidate {
        self.candidates
            .iter()
            .find(|candidate| candidate.name == self.baseline)
            .expect("a valid experiment names one of its candidates as the baseline")
    }
}

/// The insert benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InsertBenchmark {
    /// What is done to each candidate, step by step.
    pub plan: Plan,
    /// How often all of it is done, from an empty database each time.
    pub repeats: u32,
    /// Whether the data is copied after each step, so that an interrupted run can go on from there.
    pub copies: bool,
    /// A second with less than this share of its step's median throughput is a write stall.
    pub stall: Share,
}

/// The data and the work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Number of tables.
    pub tables: u32,
    /// Rows in each table.
    pub rows: u64,
    /// Clients at work at once, each with a connection of its own. Every microbenchmark is
    /// measured with each of these numbers, in this order; never empty.
    pub clients: Vec<u32>,
    /// What is measured, in running order.
    pub microbenchmarks: Vec<Microbenchmark>,
}

impl Workload {
    /// The greatest number of clients at work at once.
    #[must_use]
    pub fn most_clients(&self) -> u32 {
        self.clients.iter().copied().max().unwrap_or(1)
    }
}

/// How long and in what slices.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// Length of a slice of a microbenchmark that only reads.
    pub slice: Nanos,
    /// Length of a slice of a microbenchmark that writes.
    pub write_slice: Nanos,
    /// What ends a slice.
    pub pace: Pace,
    /// Blocks that are run first and never count.
    pub warmup_blocks: u32,
    /// The fewest blocks that count.
    pub min_blocks: u32,
    /// Half-width of the 95% interval at which a microbenchmark is done.
    pub target: Share,
    /// The longest measuring time per candidate and microbenchmark, warm-up left out.
    pub budget: Nanos,
    /// How often, at least, the instances are started for each microbenchmark: each start is
    /// another draw of their layout in memory, and the interval is taken over the starts. 1 stands
    /// for instances that live as long as the run.
    pub restarts: u32,
    /// Whether the CPU and the kernel count for the systems under test in each slice.
    #[serde(default = "counts")]
    pub counters: bool,
}

/// Runs that are continued may be older than the key.
const fn counts() -> bool {
    true
}

/// What ends a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pace {
    /// Every candidate does the same events in a block: as many as take the baseline one slice.
    Events,
    /// Every candidate works for one slice's time, to the end of the event that passes it.
    Time,
}

/// Which CPUs do what; `None` leaves the choice to the machine's layout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpus {
    /// CPUs of the systems under test, as a list such as `1` or `2-3,6`.
    pub system: Option<String>,
    /// CPUs of dbdyno itself.
    pub dbdyno: Option<String>,
    /// Whether these CPUs are kept from idling; by default where wake-ups are expensive.
    #[serde(default, alias = "awake")]
    pub prevent_idle: Option<bool>,
}

/// When wrong answers fail a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checks {
    /// The greatest share of statements of a microbenchmark that may fail or answer wrongly.
    pub max_error_share: Share,
}

/// One thing to compare.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its name in every table.
    pub name: String,
    /// The database program and how it is set up.
    pub system: System,
    /// Time added to every event as a share of it, to check that dbdyno reports it.
    pub injected_delay: Option<Share>,
    /// How its server's hot code is laid out anew while it runs; `None` where it stays as it is.
    #[serde(default)]
    pub live: Option<Live>,
}

/// How the live optimizer treats a candidate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Live {
    /// For how long the server works under load while it is sampled.
    pub profile: Nanos,
    /// Samples per second and CPU.
    pub frequency: u32,
    /// The candidate whose build was sampled for BOLT, where those samples are used and the server
    /// itself is not sampled.
    #[serde(default)]
    pub samples_of: Option<String>,
    /// What it is trained with.
    pub train: Train,
    /// Clients at work while it is sampled; those of what is measured where there are none. One
    /// of the numbers that are measured.
    pub clients: Option<u32>,
    /// For how long its threads may stand still.
    #[serde(alias = "stop")]
    pub max_pause: Nanos,
    /// Code is copied in its own order, to tell what another order brings.
    pub keep_order: bool,
}

/// What the live optimizer is trained with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Train {
    /// With each microbenchmark, before that is measured.
    Each,
    /// With the first microbenchmark; what was optimized then stays.
    Once,
}

/// A database program and how it is set up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// SQLite, compiled for the run and loaded into the worker.
    Sqlite {
        /// How it is compiled.
        build: Build,
        /// How it is set up.
        config: SqliteConfig,
    },
    /// A server that dbdyno starts for the run, with data of its own.
    Private(PrivateServer),
    /// A server that runs already, and not only for dbdyno.
    Existing(ExistingServer),
}

impl System {
    /// The vocabulary's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Sqlite { .. } => "sqlite",
            Self::Private(server) => server.system.name(),
            Self::Existing(server) => server.system.name(),
        }
    }

    /// How it is compiled, where it is compiled for the run.
    #[must_use]
    pub const fn build(&self) -> Option<&Build> {
        match self {
            Self::Sqlite { build, .. } => Some(build),
            Self::Private(server) => server.build.as_ref(),
            Self::Existing(_) => None,
        }
    }

    /// Whether it works inside the worker's process.
    #[must_use]
    pub const fn is_embedded(&self) -> bool {
        matches!(self, Self::Sqlite { .. })
    }
}

/// How a system is compiled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Build {
    /// Where its source comes from.
    #[serde(default)]
    pub source: SourceOrigin,
    /// The name of the variant: a preset, or one that the experiment defines.
    pub variant: String,
    /// The settings of the variant, unless it is a preset.
    #[serde(default)]
    pub settings: Option<VariantOverrides>,
    /// The C compiler: `gcc`, `clang` or a versioned name or path.
    pub compiler: String,
    /// Compiler flags after the variant's.
    pub flags: Vec<String>,
    /// The tool that configures the source, where there is a choice.
    #[serde(default)]
    pub configure_with: Option<ConfigureTool>,
    /// Additional arguments for that tool.
    #[serde(default)]
    pub configure: Vec<String>,
    /// The workload that profiles are collected from, if it uses any.
    #[serde(default)]
    pub training: Option<Training>,
    /// For a variant with BOLT: whether BOLT is run. Otherwise the build is only linked for BOLT.
    #[serde(default = "yes")]
    pub bolt: bool,
    /// Checks of the flag audit whose violations are notes only.
    #[serde(default, alias = "audit_allows")]
    pub audit_ignore: Vec<FlagCheck>,
}

impl Build {
    /// The compiler settings.
    ///
    /// # Errors
    /// There is no such preset; impossible for a parsed experiment.
    pub fn resolved_variant(&self) -> Result<Variant, UnknownVariant> {
        match &self.settings {
            Some(settings) => settings.resolve(&self.variant),
            None => Variant::by_name(&self.variant),
        }
    }
}

const fn yes() -> bool {
    true
}

/// What an instrumented build runs to collect a profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Training {
    /// The words of the experiment, for people.
    pub words: Vec<String>,
    /// The microbenchmarks that they select.
    pub microbenchmarks: Vec<Microbenchmark>,
    /// How long each of them runs.
    pub time: Nanos,
    /// How BOLT's profile is collected, where it gets one.
    pub bolt_profile: BoltProfileMethod,
}

/// A server that dbdyno starts for the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrivateServer {
    /// The program.
    pub system: ServerSystem,
    /// The storage engine; `None` where the system has only its own.
    pub engine: Option<StorageEngine>,
    /// The server's executable; looked for in the usual places where there is none.
    pub program: Option<PathBuf>,
    /// How it is compiled, where it is compiled for the run.
    #[serde(default)]
    pub build: Option<Build>,
    /// What a commit promises.
    pub durability: Durability,
    /// Settings over those that dbdyno chooses: the server's own names and values.
    pub configuration: Vec<(String, String)>,
    /// How statements go to it.
    pub statements: StatementMode,
    /// How often in a session a server that died may be started again.
    pub restarts_after_death: u32,
}

/// A server that runs already.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExistingServer {
    /// The program.
    pub system: ServerSystem,
    /// The storage engine for the tables; the server's default where there is none.
    pub engine: Option<StorageEngine>,
    /// Where it listens and who asks. The database in it is the one to connect to first; dbdyno
    /// works only in `schema`.
    pub target: Target,
    /// The schema that dbdyno makes for its tables.
    pub schema: String,
    /// How statements go to it.
    pub statements: StatementMode,
    /// The server's process on this machine, for its CPU time; unknown where there is none.
    pub pid: Option<u32>,
}

impl ExistingServer {
    /// The same server for the control, which has a schema of its own there.
    #[must_use]
    pub fn for_control(&self) -> Self {
        Self { schema: schema::of_control(&self.schema), ..self.clone() }
    }
}

/// How SQLite is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SqliteConfig {
    /// Bytes per page of the database file.
    pub page_size: Bytes,
    /// Memory for pages, per connection.
    pub cache_size: Bytes,
    /// How changes are made atomic.
    pub journal_mode: JournalMode,
    /// When changes are forced to storage.
    pub synchronous: Synchronous,
}

/// SQLite's `journal_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JournalMode {
    /// Write-ahead log.
    Wal,
    /// Rollback journal, deleted at commit.
    Delete,
    /// Rollback journal, truncated at commit.
    Truncate,
    /// Rollback journal, its header zeroed at commit.
    Persist,
}

/// SQLite's `synchronous`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Synchronous {
    /// Never.
    Off,
    /// At checkpoints in WAL mode.
    Normal,
    /// At every commit.
    Full,
}
