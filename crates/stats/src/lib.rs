//! Estimates with their uncertainty: paired ratios, group summaries, the noise floor.
//!
//! Pure computation: numbers in, numbers out. What cannot be computed is `None`.

mod autocorrelation;
mod estimate;
mod latency;
mod noise;
mod pairing;
mod restarts;
mod summary;

pub use estimate::{Estimate, MIN_BLOCKS, median, median_with_interval};
pub use latency::LatencySummary;
pub use noise::{ControlRow, NoiseFloor, Verdict};
pub use pairing::{Point, paired_ratios};
pub use restarts::{restart_medians, restarts_with_interval};
pub use summary::Summary;

/// How the intervals are made, for reports.
pub const METHOD: &str = "Median of the per-block ratios; 95% interval from order statistics, \
     widened for the correlation of neighbouring blocks (effective sample size from the lag-1 \
     autocorrelation of the signs around the median). With restarts: hierarchical bootstrap, \
     over restarts first, then over blocks.";
