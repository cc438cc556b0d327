//! One run of an experiment: the order of its stages, and how an interrupted run continues.
//!
//! The stages are builds, data, instances, then the microbenchmarks in running order or the insert
//! benchmark. This crate determines their order and what is stored; lower-level crates implement
//! them.

mod access;
mod answer_check;
mod auditing;
mod bisect;
mod build_only;
mod candidate_record;
mod candidates;
mod cases;
mod clean;
mod client_wait;
mod config_diff;
mod context;
mod cpus;
mod data;
mod data_location;
mod disk_space;
mod error;
mod error_share;
mod extension;
mod figures;
mod host_programs;
mod hosts;
mod instance;
mod live_plan;
mod live_training;
mod microbenchmark;
mod pgo_training;
mod plan;
mod progress;
mod readiness;
mod recorder;
mod releases;
mod replacement;
mod reported;
mod resolved_candidate;
mod run_registry;
mod sampling;
mod server_plan;
mod server_process;
mod session;
mod settings;
mod slice_history;
mod statement_check;
mod stopping_rule;
mod stored_data;
mod stored_run;
mod timing;

pub use auditing::{audit_of, expected_of, expected_of_variant};
pub use bisect::{
    BisectEnd, BisectError, BisectRecord, BisectRequest, BisectResult, CommitRecord, FigureRecord,
    FoundRecord, RatioRecord, RequestRecord, StepRecord, StepVerdict, bisect,
};
pub use build_only::{CandidateBuild, CandidateRelease, make_candidates};
pub use clean::{Cleaned, clean_run};
pub use context::WorkerProgram;
pub use error::{RunError, SamplingError, StatementProblem};
pub use plan::{PassPlan, RunPlan};
pub use progress::{InsertPlace, InterimEstimate, Outcome, Progress, RunEvent};
pub use readiness::Readiness;
pub use session::{Options, continue_run, extend_run, start_run};
pub use stored_data::StoredData;
