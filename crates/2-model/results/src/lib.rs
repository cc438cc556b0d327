//! Run directories: slices are committed as they end; readers for reports and to resume.
//!
//! A run directory contains `run.sqlite`, the only authoritative file, and files that can be
//! recreated: data of the instances, logs of the workers, reports. The writer holds a lock on it;
//! any process may read.

mod consistency;
mod directory;
mod error;
mod extension;
mod identity;
mod inserts;
mod latency_buckets;
mod lock;
mod optimizations;
mod own_directory;
mod reader;
mod records;
mod schema;
mod slices;
mod snapshot;
mod untrusted;
mod writer;

pub use dbdyno_types::{BlockCounts, NewLayout};
pub use directory::RunDirectory;
pub use error::ResultsError;
pub use extension::ExtensionRecord;
pub use identity::new_run_id;
pub use optimizations::OptimizationRecord;
pub use own_directory::NotOwn;
pub use reader::RunReader;
pub use records::{
    AuditRecord, BuildRecord, CandidateRecord, CommandLineDifference, CommandLinesRecord,
    FailureKind, FailureRecord, InsertPlanRecord, InsertStepPlan, InsertStepRecord,
    MicrobenchmarkRecord, NamedCount, NewRun, OriginRecord, ReleaseRecord, Role, SessionRecord,
    SliceRecord, StartedFrom, StateSnapshotRecord, Warning,
};
pub use snapshot::snapshot;
pub use writer::RunWriter;
