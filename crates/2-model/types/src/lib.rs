//! Measured data and settings as plain types, shared by measurement, storage and reports: slices,
//! response times, state snapshots, servers, releases, compiler settings, checksums, the identity of a
//! run.

/// Defines an enum whose values have names: in experiments, files and reports.
#[macro_export]
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $value:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$doc])* #[serde(rename = $word)] $value,)+
        }

        impl $name {
            /// All values with their names.
            pub const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$value),)+];

            /// All values.
            pub const ALL: [Self; Self::WORDS.len()] = [$(Self::$value,)+];

            /// The name of this value.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$value => $word,)+ }
            }

            /// The value of a name; `None` if it is unknown.
            pub fn by_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

pub mod build;
mod counters;
pub mod executed;
mod flag_check;
pub mod insert;
mod new_layout;
pub mod profile;
mod registry;
mod release;
mod run_identity;
pub mod server;
pub mod settings;
mod sha256;
mod slice;
mod work;

/// Labels of the facts about a host that reports look up or tell apart.
pub mod host_fact {
    pub const CPU: &str = "CPU";
    pub const CPUS_ONLINE: &str = "CPUs online";
    pub const MEMORY: &str = "memory";
    pub const SWAP: &str = "swap in use";
    pub const LOAD: &str = "load average (1 min)";
    pub const USED_BY_OTHERS: &str = "CPU used by others";
    pub const STOLEN: &str = "CPU time stolen";
    pub const DISK: &str = "disk";
}

pub use counters::{Count, Counted, Counter, Counting, Counts, Missing};
pub use flag_check::FlagCheck;
pub use new_layout::{BlockCounts, NewLayout};
pub use registry::{MavenArtifact, NpmPackage, PACKAGINGS, PublishedRelease};
pub use release::{ReleaseFile, ReleaseOrigin, SUITES, suites};
pub use run_identity::{NotARunId, RunId, RunIdentity};
pub use sha256::{CertificateFingerprint, InvalidFingerprint, NotASha256, Sha256};
pub use slice::{
    EngineCounts, Latencies, LatencyCounts, ServerUsage, SliceMeasured, StateSnapshot,
    StatementPlan, StatementTimes,
};
pub use work::{ClientWait, MatrixCell, MatrixLevel, Metric, Pace, Work};
