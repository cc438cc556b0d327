//! One run of an experiment: the order of its stages, and how an interrupted run continues.
//!
//! The stages are builds, data, instances, then the microbenchmarks in running order or the insert
//! benchmark. This crate determines their order and what is stored; lower-level crates implement
//! them.

mod bisect;
mod building;
mod candidates;
mod error;
mod instance;
mod measure;
mod options;
mod plan;
mod record;
mod session;
mod training;

pub use bisect::{
    BisectEnd, BisectError, BisectRecord, BisectRequest, BisectResult, CommitRecord, FigureRecord,
    FoundRecord, RatioRecord, RequestRecord, StepRecord, StepVerdict, bisect,
};
pub use building::{CandidateBuild, CandidateRelease, make_candidates};
pub use candidates::auditing::{audit_of, expected_of, expected_of_variant};
pub use error::{RunError, SamplingError, StatementProblem};
pub use options::{Options, WorkerProgram};
pub use plan::elapsed::{TimeEstimate, TimeRange};
pub use plan::inserts::InsertTimes;
pub use plan::{PassPlan, RunPlan};
pub use session::progress::{InsertPlace, InterimEstimate, Outcome, Progress, RunEvent};
pub use session::readiness::Readiness;
pub use session::stored_run::{
    Cleaned, StoredData, clean_run, is_registered, not_registered, register,
};
pub use session::{continue_run, extend_run, start_run};
