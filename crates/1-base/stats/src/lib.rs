//! Estimates with their uncertainty: paired ratios, group summaries, the noise floor, change
//! points.
//!
//! Pure computation without input or output. Results that cannot be computed are `None`.

mod autocorrelation;
mod between_runs;
mod change_points;
mod contrast;
mod estimate;
mod latency;
mod noise;
mod pairing;
mod response_times;
mod restarts;
mod starts;
mod student;
mod summary;
mod time_to_resolve;
mod unpaired;
mod verdict;

pub use between_runs::{Difference, Quotient, RunValue, largest_difference, quotient};
pub use change_points::{
    ChangePoint, ChangePoints, ChangeSearch, Level, LogValue, MIN_VALUES, false_discovery_level,
};
pub use contrast::{Weight, contrast, main_effect};
pub use estimate::{Estimate, MIN_BLOCKS, median, median_with_interval, middle_half};
pub use latency::LatencySummary;
pub use noise::{ControlRow, NoiseFloor};
pub use pairing::{Point, paired_ratios};
pub use response_times::{BlockTimes, Pairing, RESOLUTION, percentile_interval, percentile_ratios};
pub use restarts::{restart_medians, restarts_with_interval};
pub use summary::Summary;
pub use time_to_resolve::time_to_resolve;
pub use unpaired::unpaired_ratio;
pub use verdict::{Direction, Side, Verdict};

/// A description of how intervals are computed, for reports.
pub const METHOD: &str = "Median of the per-block ratios. The 95% interval is taken over restarts \
     of the instances (Student's t on the logarithms of the restarts' medians). Without restarts: order statistics \
     of the blocks, widened for the correlation of neighbours (effective sample size from the \
     lag-1 autocorrelation of the signs around the median).";
