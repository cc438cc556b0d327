//! One run of an experiment: the order of its stages, and how an interrupted run continues.
//!
//! The stages are builds, data, instances, then the microbenchmarks in running order or the insert
//! benchmark. This crate determines their order and what is stored; lower-level crates implement
//! them.

mod bisect;
mod candidates;
mod error;
mod instance;
mod measure;
mod plan;
mod record;
mod session;
mod training;

pub use bisect::{
    BisectEnd, BisectError, BisectRecord, BisectRequest, BisectResult, CommitRecord, FigureRecord,
    FoundRecord, RatioRecord, RequestRecord, StepRecord, StepVerdict, bisect,
};
pub use candidates::auditing::{audit_of, expected_of, expected_of_variant};
pub use candidates::building::{CandidateBuild, CandidateRelease, make_candidates};
pub use error::{RunError, SamplingError, StatementProblem};
pub use instance::context::WorkerProgram;
pub use plan::{PassPlan, RunPlan};
pub use session::clean::StoredData;
pub use session::clean::{Cleaned, clean_run};
pub use session::progress::{InsertPlace, InterimEstimate, Outcome, Progress, RunEvent};
pub use session::readiness::Readiness;
pub use session::{Options, continue_run, extend_run, start_run};
