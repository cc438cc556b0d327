//! The run directory: every slice, committed as it ends; resume and export.
//!
//! A run directory holds `run.sqlite`, which is the truth, and beside it what can be made again:
//! data of the instances, logs of the workers, reports. Whoever writes holds a lock on it; anyone
//! may read.

mod directory;
mod error;
mod inserts;
mod older_formats;
mod optimizations;
mod reader;
mod records;
mod schema;
mod slices;
mod writer;

pub use directory::RunDirectory;
pub use error::ResultsError;
pub use optimizations::{NewLayout, OptimizationRecord};
pub use reader::RunReader;
pub use records::{
    AuditRecord, BuildRecord, CandidateRecord, CommandLineDifference, CommandLinesRecord,
    FailureKind, FailureRecord, InsertPlanRecord, InsertStepRecord, InsertStepRow,
    MicrobenchmarkRecord, NamedCount, NewRun, OriginRecord, Role, SessionRecord, SliceRow,
    StartedFrom, StateSnapshotRecord, Warning,
};
pub use writer::RunWriter;
