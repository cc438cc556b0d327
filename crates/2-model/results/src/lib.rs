//! Run directories: slices are committed as they end; readers for reports and to resume.
//!
//! A run directory contains `run.sqlite`, the only authoritative file, and files that can be
//! recreated: data of the instances, logs of the workers, reports. The writer holds a lock on it;
//! any process may read.

mod checksum;
mod directory;
mod error;
mod identity;
mod inserts;
mod reader;
mod records;
mod schema;
mod slices;
mod starts;
mod untrusted;
mod writer;

pub use checksum::remove_checksums;
pub use dbdyno_types::{BlockCounts, NewLayout};
pub use directory::{NotOwn, RunDirectory, snapshot};
pub use error::ResultsError;
pub use identity::new_run_id;
pub use reader::RunReader;
pub use records::{
    AdjustedSetting, AuditRecord, BuildRecord, CandidateRecord, CommandLineDifference,
    CommandLinesRecord, DataSize, EngineCountsRecord, ExtensionRecord, FailureKind, FailureRecord,
    InForceRecord, InsertPlanRecord, InsertStepPlan, InsertStepRecord, MicrobenchmarkRecord,
    NamedCount, NewRun, OptimizationRecord, OriginRecord, ProfileRecord, ReleaseRecord, Role,
    SessionRecord, SliceRecord, StartedFrom, StateSnapshotRecord, StatementRecord,
    StoredExperiment, StoredLayers, StoredProfiling, StoredSchedule, Warning, setting,
};
pub use schema::FIGURES_VIEW;
pub use starts::WaitsRecord;
pub use writer::RunWriter;
