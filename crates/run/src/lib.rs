//! One run of an experiment: which stage follows which, and what survives an interruption.
//!
//! The stages are builds, data, instances, then the microbenchmarks in running order. How each is
//! done is known to the crates below; here is only the order, what is stored when, and where a
//! run that was interrupted goes on.

mod agreement;
mod auditing;
mod candidates;
mod cleaning;
mod cpus;
mod data;
mod error;
mod error_share;
mod homes;
mod instances;
mod live;
mod live_optimize;
mod making;
mod microbenchmark;
mod parity;
mod plan;
mod progress;
mod sampling;
mod session;
mod settings;
mod training;
mod tuning;

pub use auditing::{audit_of, intent_of, intent_of_variant};
pub use cleaning::clean_run;
pub use error::RunError;
pub use instances::WorkerProgram;
pub use making::{Made, make_builds};
pub use plan::Plan;
pub use progress::{Event, InsertPlace, LiveEstimate, Outcome, Progress};
pub use session::{Options, continue_run, start_run};
