//! An experiment with all defaults filled in.

use std::path::PathBuf;

pub use dbdyno_types::Pace;
use dbdyno_types::build::{
    BoltProfileMethod, ConfigureTool, SourceOrigin, UnknownVariant, Variant, VariantOverrides,
};
use dbdyno_types::server::{
    Durability, ServerSystem, SettingDefaults, StatementMode, StorageEngine, Target,
};
use dbdyno_types::{ClientWait, FlagCheck, MatrixCell, ReleaseOrigin};
use dbdyno_units::{Bytes, Nanos, Share};
use dbdyno_workloads::definition::{Microbenchmark, Script};
use dbdyno_workloads::insert::Plan;
use dbdyno_workloads::setup::{SetupScript, use_sbtest_tables};
use serde::{Deserialize, Serialize};

use crate::option_file::OptionFile;
use crate::{existing, names};

/// A complete, valid experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// Its name; the name of the run directory starts with it.
    #[serde(deserialize_with = "names::stored_of_experiment")]
    pub name: String,
    /// The name of the candidate that the others are divided by.
    pub baseline: String,
    /// Whether a second instance of the baseline is measured too.
    pub control: bool,
    pub seed: u64,
    /// The data and the microbenchmarks; for an insert benchmark only what determines the size of
    /// caches and limits.
    pub workload: Workload,
    /// The insert benchmark; `None` for an experiment with microbenchmarks.
    pub insert_benchmark: Option<InsertBenchmark>,
    /// The duration of the measurement and its slices.
    pub schedule: Schedule,
    /// How stacks are sampled; `None` if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profiling>,
    /// The CPUs of the systems under test and of dbdyno.
    pub cpus: Cpus,
    pub checks: Checks,
    /// Other machines that servers run on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<Host>,
    /// The candidates, including the baseline.
    pub candidates: Vec<Candidate>,
    /// The machines that `dbdyno fleet` runs it on; `None` if the experiment names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<Fleet>,
}

/// The machines of a fleet run, and its jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fleet {
    /// The partition of Slurm; `None` for its default.
    pub partition: Option<String>,
    pub nodes: Option<u32>,
    /// The names of the nodes, such as `node[1-3]`.
    pub nodelist: Option<String>,
    /// Features that the nodes must have, such as `epyc&nvme`.
    pub constraint: Option<String>,
    /// The account that jobs are charged to.
    pub account: Option<String>,
    pub time: Option<Nanos>,
    /// Whether the microbenchmarks are divided among the nodes.
    pub shard: bool,
    /// A directory on a local disk of each node.
    pub scratch: Option<String>,
}

impl Experiment {
    /// The candidate that is the baseline.
    ///
    /// # Panics
    /// Never for a parsed experiment: its baseline was checked.
    pub fn baseline_candidate(&self) -> &Candidate {
        self.candidates
            .iter()
            .find(|candidate| candidate.name == self.baseline)
            .expect("a valid experiment names one of its candidates as the baseline")
    }
}

/// Another machine that servers run on, reached with ssh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name in the experiment.
    #[serde(deserialize_with = "names::stored_of_experiment")]
    pub name: String,
    /// The destination for ssh, as in `~/.ssh/config`.
    pub ssh: String,
    /// IP address or name that the load generator connects to.
    pub address: String,
    /// The CPUs of its servers, such as `2-3`; `None` for all.
    pub cpus: Option<String>,
    /// The directory for data there; by default `/var/tmp`.
    pub directory: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InsertBenchmark {
    pub plan: Plan,
    /// How often all steps are repeated, each time from an empty database.
    pub repeats: u32,
    /// Whether the data is copied after each step, so that an interrupted run can resume there.
    pub copies: bool,
    /// A second with less than this share of its step's median throughput is a write stall.
    pub stall: Share,
}

/// The schema of dbdyno's tables on a private server.
const PRIVATE_SCHEMA: &str = "dbdyno";

/// The schema of the data of scripts on a private server: sysbench's default, which scripts may write.
const SCHEMA_OF_SCRIPTS: &str = "sbtest";

/// The data and the microbenchmarks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    pub tables: u32,
    pub rows: u64,
    /// Numbers of concurrent clients, each with its own connection. Every microbenchmark is
    /// measured with each number, in this order; never empty.
    pub clients: Vec<u32>,
    /// The microbenchmarks, in the order in which they run.
    pub microbenchmarks: Vec<Microbenchmark>,
    /// Scripts that create and fill the user's own tables, in this order.
    #[serde(default)]
    pub setup: Vec<SetupScript>,
}

impl Workload {
    /// Whether dbdyno's tables are used, and therefore loaded.
    pub fn uses_sbtest_tables(&self) -> bool {
        use_sbtest_tables(&self.setup, &self.microbenchmarks)
    }

    /// The scripts of the microbenchmarks, whose `prepare` makes their data.
    pub fn scripts(&self) -> impl Iterator<Item = &Script> {
        self.microbenchmarks.iter().filter_map(|one| one.script.as_ref())
    }

    /// The scripts that make data, one for each number.
    pub fn data_scripts(&self) -> impl Iterator<Item = &Script> {
        self.scripts().filter(|script| !script.shares_data)
    }

    /// The schemas on a private server, by the number of their data; at least one.
    pub fn private_schemas(&self) -> Vec<String> {
        let named = |number| {
            let mut scripts = self.scripts().filter(|script| script.data == number);
            scripts.find_map(|script| script.schema.clone())
        };
        let all_named: Vec<Option<String>> = self.data_numbers().map(named).collect();
        let has_scripts = self.scripts().next().is_some();
        let base = if has_scripts { SCHEMA_OF_SCRIPTS } else { PRIVATE_SCHEMA };
        let mut unnamed = (0..)
            .map(|number| existing::schema_of_data(base, number))
            .filter(|name| !all_named.contains(&Some(name.clone())));
        let schema = |named: &Option<String>| named.clone().or_else(|| unnamed.next());
        all_named.iter().filter_map(schema).collect()
    }

    /// The schemas of a candidate on an existing server, by the number of their data.
    pub fn existing_schemas(&self, first: &str) -> Vec<String> {
        self.data_numbers().map(|number| existing::schema_of_data(first, number)).collect()
    }

    fn data_numbers(&self) -> std::ops::RangeInclusive<u32> {
        0..=self.scripts().map(|script| script.data).max().unwrap_or(0)
    }

    /// Whether there are tables that dbdyno did not define: of `setup`, or of scripts.
    pub fn has_own_tables(&self) -> bool {
        !self.setup.is_empty() || self.scripts().next().is_some()
    }

    /// The number of dbdyno's tables that are loaded.
    pub fn loaded_tables(&self) -> u32 {
        if self.uses_sbtest_tables() { self.tables } else { 0 }
    }

    /// The maximum number of concurrent clients.
    pub fn most_clients(&self) -> u32 {
        self.clients.iter().copied().max().unwrap_or(1)
    }
}

/// The duration of the measurement and its slices.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// Length of a slice of a microbenchmark that only reads.
    pub slice: Nanos,
    /// Length of a slice of a microbenchmark that writes.
    pub write_slice: Nanos,
    /// What ends a slice.
    pub pace: Pace,
    /// Minimum number of blocks that are run first after each start and not counted.
    pub warmup_blocks: u32,
    /// Minimum time of the baseline's slices and their lead-in in these blocks; 0 in runs that earlier versions stored.
    #[serde(default)]
    pub warmup_time: Nanos,
    pub min_blocks: u32,
    /// Half-width of the 95% interval at which a microbenchmark is done.
    pub target: Share,
    /// Maximum measuring time per candidate and microbenchmark, without warm-up.
    pub budget: Nanos,
    /// Minimum number of times that the instances are started for each microbenchmark. Each start
    /// changes their memory layout; the interval is computed over the starts. With 1, instances run
    /// until the run ends.
    pub restarts: u32,
    /// Whether CPU and kernel counters are read for the systems under test in each slice.
    #[serde(default = "yes")]
    pub counters: bool,
}

/// Sampling of stacks in slices after those that are measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profiling {
    /// CPU time that is sampled of each candidate and microbenchmark, over all starts.
    pub time: Nanos,
    /// Whether the instructions that functions execute are counted after that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub instructions: bool,
    /// The names of the microbenchmarks; `None` for all of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub microbenchmarks: Option<Vec<String>>,
    /// Samples per second and CPU.
    #[serde(default = "sample_frequency")]
    pub frequency: u32,
    /// The user's rules for layers, before the built-in ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<LayerRules>,
    /// Whether it is also recorded where threads wait, in other slices for the same time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
}

impl Default for Profiling {
    fn default() -> Self {
        Self {
            time: Nanos::from_secs(4),
            instructions: false,
            waits: false,
            microbenchmarks: None,
            frequency: sample_frequency(),
            layers: None,
        }
    }
}

impl Profiling {
    pub fn includes(&self, microbenchmark: &str) -> bool {
        let named = self.microbenchmarks.as_ref();
        named.is_none_or(|names| names.iter().any(|name| name == microbenchmark))
    }
}

/// No divisor of the frequencies of the kernel's tick.
const fn sample_frequency() -> u32 {
    997
}

/// A file with rules for layers, in the format of dbdyno's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerRules {
    pub file: String,
    pub rules: String,
}

/// The CPUs of the systems under test and of dbdyno; `None`: chosen by the machine's layout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpus {
    /// CPUs of the systems under test, as a list such as `1` or `2-3,6`.
    pub system: Option<String>,
    /// CPUs of dbdyno itself.
    pub dbdyno: Option<String>,
    /// Whether these CPUs are kept from idling; by default if wake-ups are expensive.
    pub prevent_idle: Option<bool>,
    /// How the clients of servers wait for answers; by default they poll on CPUs of their own.
    pub wait: Option<ClientWait>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checks {
    /// The maximum share of a microbenchmark's statements that may fail or return a wrong answer.
    pub max_error_share: Share,
}

/// A system to compare.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its name in results, and in the paths of its data and logs.
    #[serde(deserialize_with = "names::stored_of_candidate")]
    pub name: String,
    pub system: System,
    /// Work added to slices, as a share of their time, to verify that dbdyno measures it.
    pub injected_delay: Option<Share>,
    /// Options of the live optimizer; `None` if its server is not optimized.
    pub live: Option<Live>,
    /// Its place in a matrix of settings, if it comes from one.
    pub matrix: Option<MatrixCell>,
    /// The series that it is a member of: reports show its members in their order in the experiment.
    pub series: Option<String>,
}

/// Options of the live optimizer for a candidate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Live {
    /// How long the server is sampled under load.
    pub profile: Nanos,
    pub frequency: u32,
    /// The candidate whose build was sampled for BOLT, if those samples are used and the server
    /// itself is not sampled.
    pub samples_of: Option<String>,
    /// The microbenchmarks that it is trained with.
    pub train: Train,
    /// Source of the executions of blocks of code.
    #[serde(default = "sampled")]
    pub counts: Counts,
    /// Number of clients while it is sampled, one of the workload's; by default the number that is
    /// measured.
    pub clients: Option<u32>,
    /// Maximum time for which its threads may be stopped.
    pub max_pause: Nanos,
    /// Whether functions are copied in their original order, to measure the effect of reordering.
    pub keep_order: bool,
    /// Whether the server is optimized even with too few samples.
    #[serde(default)]
    pub force: bool,
}

dbdyno_types::words! {
    /// Source of the executions of blocks of code.
    Counts {
        /// Counted in short bursts after the sampling.
        Exact = "exact",
        /// Estimated from samples.
        Sampled = "sampled",
    }
}

/// That of experiments that were stored before executions were counted.
const fn sampled() -> Counts {
    Counts::Sampled
}

dbdyno_types::words! {
    /// The microbenchmarks that the live optimizer is trained with.
    Train {
        /// Each microbenchmark, before it is measured.
        Each = "each",
        /// The first microbenchmark; the resulting layout is kept.
        Once = "once",
    }
}

/// A database program and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// SQLite, compiled for the run and loaded into the worker.
    Sqlite { build: Build, config: SqliteConfig },
    /// A server that dbdyno starts for the run, with its own data.
    Private(PrivateServer),
    /// A server that dbdyno did not start and that others may use too.
    Existing(ExistingServer),
}

impl System {
    /// The name in the vocabulary.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Sqlite { .. } => "sqlite",
            Self::Private(server) => server.system.name(),
            Self::Existing(server) => server.system.name(),
        }
    }

    /// How it is compiled; `None` if it is not compiled for the run.
    pub const fn build(&self) -> Option<&Build> {
        match self {
            Self::Sqlite { build, .. } => Some(build),
            Self::Private(server) => server.build.as_ref(),
            Self::Existing(_) => None,
        }
    }

    /// [`build`](Self::build), to change it.
    pub const fn build_mut(&mut self) -> Option<&mut Build> {
        match self {
            Self::Sqlite { build, .. } => Some(build),
            Self::Private(server) => server.build.as_mut(),
            Self::Existing(_) => None,
        }
    }

    /// The release whose program is used; `None` if another program is.
    pub const fn release(&self) -> Option<&ReleaseOrigin> {
        match self {
            Self::Private(server) => server.release.as_ref(),
            Self::Existing(_) | Self::Sqlite { .. } => None,
        }
    }

    /// The name of the host that a server runs on; `None` for this machine, and for an existing server
    /// whose usage is not read.
    pub fn host(&self) -> Option<&str> {
        match self {
            Self::Private(server) => server.host.as_deref(),
            Self::Existing(server) => server.host.as_deref(),
            Self::Sqlite { .. } => None,
        }
    }

    /// Whether it runs in the worker's process.
    pub const fn is_embedded(&self) -> bool {
        matches!(self, Self::Sqlite { .. })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Build {
    #[serde(default)]
    pub source: SourceOrigin,
    /// The name of the variant: a preset, or one that the experiment defines.
    pub variant: String,
    /// The settings of the variant, unless it is a preset.
    pub settings: Option<VariantOverrides>,
    /// The C compiler: `gcc`, `clang` or a versioned name or path.
    pub compiler: String,
    /// Compiler flags after the variant's.
    pub flags: Vec<String>,
    /// The tool that configures the source, if there is a choice.
    pub configure_with: Option<ConfigureTool>,
    /// Additional arguments for that tool.
    #[serde(default)]
    pub configure: Vec<String>,
    /// The training workload, if the variant uses profiles.
    pub training: Option<Training>,
    /// For a variant with BOLT: whether BOLT is run. Otherwise the build is only linked for BOLT.
    #[serde(default = "yes")]
    pub bolt: bool,
    /// Checks of the flag audit whose violations are notes only.
    #[serde(default)]
    pub audit_ignore: Vec<FlagCheck>,
}

impl Build {
    /// The compiler settings.
    ///
    /// # Errors
    /// The preset is unknown; impossible for a parsed experiment.
    pub fn resolved_variant(&self) -> Result<Variant, UnknownVariant> {
        match &self.settings {
            Some(settings) => settings.resolve(&self.variant),
            None => Variant::by_name(&self.variant),
        }
    }

    /// Whether the result depends on the CPU it is compiled on, by flags such as `-march=native`.
    pub fn depends_on_cpu(&self) -> bool {
        const NATIVE: &str = "native";
        let variant = self.resolved_variant().ok();
        let settings = variant.iter().flat_map(|variant| [&variant.march, &variant.mtune]);
        let extra = variant.iter().flat_map(|variant| &variant.extra_flags);
        let mut flags = self.flags.iter().chain(extra).filter_map(|flag| flag.strip_suffix(NATIVE));
        settings.flatten().any(|value| value == NATIVE)
            || flags.any(|flag| ["-march=", "-mtune=", "-mcpu="].contains(&flag))
    }
}

/// Stored runs may predate the key.
const fn yes() -> bool {
    true
}

/// The workload that an instrumented build runs to collect a profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Training {
    /// The selection as written in the experiment, for display.
    pub words: Vec<String>,
    pub microbenchmarks: Vec<Microbenchmark>,
    pub time: Nanos,
    /// How BOLT's profile is collected, if BOLT uses one.
    pub bolt_profile: BoltProfileMethod,
}

/// A server that dbdyno starts for the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrivateServer {
    pub system: ServerSystem,
    /// The storage engine; `None` if the system has only one.
    pub engine: Option<StorageEngine>,
    /// The server's executable; `None`: searched for in the usual directories.
    pub program: Option<PathBuf>,
    /// The compiled release whose program is used, instead of `program`.
    pub release: Option<ReleaseOrigin>,
    /// How it is compiled; `None` if it is not compiled for the run.
    pub build: Option<Build>,
    /// The name of the host it runs on; `None` for this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Whether connections to its host are encrypted, with a certificate that is verified.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tls: bool,
    /// Whose values its other settings have.
    #[serde(default)]
    pub defaults: SettingDefaults,
    pub durability: Durability,
    /// The option files that some of `configuration` is from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<OptionFile>,
    /// Settings that override these: the server's own names and values.
    pub configuration: Vec<(String, String)>,
    pub statements: StatementMode,
    /// Maximum number of restarts per session after it died.
    pub restarts_after_death: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExistingServer {
    pub system: ServerSystem,
    /// The storage engine for the tables; `None`: the server's default.
    pub engine: Option<StorageEngine>,
    /// Its address and the user. The URL's database is only used to connect; dbdyno works only in
    /// `schema`.
    pub target: Target,
    /// The schema that dbdyno creates for its tables.
    pub schema: String,
    pub statements: StatementMode,
    /// The server's process, to measure its CPU time; `None` if unknown.
    pub pid: Option<u32>,
    /// The name of the host it runs on, where its usage is read; `None` for this machine, or if its usage
    /// is not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

impl ExistingServer {
    /// The same server with a separate schema for the control.
    pub fn for_control(&self) -> Self {
        Self { schema: existing::schema_of_control(&self.schema), ..self.clone() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SqliteConfig {
    /// Bytes per page of the database file.
    pub page_size: Bytes,
    /// Memory for the page cache, per connection.
    pub cache_size: Bytes,
    /// The journal that makes changes atomic.
    pub journal_mode: JournalMode,
    /// When changes are forced to storage.
    pub synchronous: Synchronous,
}

dbdyno_types::words! {
    JournalMode {
        /// Write-ahead log.
        Wal = "wal",
        /// Rollback journal, deleted at commit.
        Delete = "delete",
        /// Rollback journal, truncated at commit.
        Truncate = "truncate",
        /// Rollback journal, its header zeroed at commit.
        Persist = "persist",
    }
}

dbdyno_types::words! {
    Synchronous {
        /// Never.
        Off = "off",
        /// At checkpoints in WAL mode.
        Normal = "normal",
        /// At every commit.
        Full = "full",
    }
}
