//! The insert benchmark's part of a report: model and output.

mod assemble;
mod csv;
mod figures;
mod html;
mod metrics;
mod model;
mod terminal;

pub(crate) use assemble::assemble;
#[cfg(any(test, feature = "sample"))]
pub(crate) use assemble::{candidate_step, step_report, step_run};
pub use csv::{SERIES_HEADER, series, steps, steps_header};
pub(crate) use html::render as html;
pub use metrics::{Better, Figures, METRICS, Metric};
pub use model::{BUCKETS, CandidateStep, InsertReport, Responses, StepReport, StepRun};
pub(crate) use terminal::render as terminal;

#[cfg(test)]
mod tests;
