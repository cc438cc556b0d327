//! One run of an experiment: which stage follows which, and what survives an interruption.
//!
//! The stages are builds, data, instances, then the microbenchmarks in running order. How each is
//! done is known to the crates below; here is only the order, what is stored when, and where a
//! run that was interrupted goes on.

mod answer_check;
mod auditing;
mod build_only;
mod candidates;
mod clean;
mod config_diff;
mod cpus;
mod data;
mod data_location;
mod error;
mod error_share;
mod instances;
mod live_optimize;
mod live_training;
mod microbenchmark;
mod pgo_training;
mod plan;
mod progress;
mod sampling;
mod session;
mod settings;
mod stopping_rule;

pub use auditing::{audit_of, expected_of, expected_of_variant};
pub use build_only::{CandidateBuild, build_candidates};
pub use clean::clean_run;
pub use error::RunError;
pub use instances::WorkerProgram;
pub use plan::RunPlan;
pub use progress::{InsertPlace, InterimEstimate, Outcome, Progress, RunEvent};
pub use session::{Options, continue_run, start_run};
