//! Estimates with their uncertainty: paired ratios, group summaries, the noise floor, change
//! points.
//!
//! Pure computation without input or output. Results that cannot be computed are `None`.

mod between_runs;
mod change_points;
mod estimate;
mod noise;
mod ratios;
mod response_times;
mod restarts;
mod summary;
mod time_to_resolve;
mod verdict;

pub use between_runs::{Difference, Quotient, RunValue, largest_difference, quotient};
pub use change_points::{
    ChangePoint, ChangePoints, ChangeSearch, Level, LogValue, MIN_VALUES, false_discovery_level,
};
pub use estimate::{Estimate, MIN_BLOCKS, median, median_with_interval, middle_half};
pub use noise::{ControlRow, NoiseFloor};
pub use ratios::{Point, Weight, contrast, main_effect, paired_ratios, unpaired_ratio};
pub use response_times::{
    BlockTimes, LatencySummary, Pairing, RESOLUTION, ResponseTimes, TimeCounts, percentile,
    percentile_ratios,
};
pub use restarts::{
    MIN_RESTARTS, interval_of_repeats, mean_with_half_width, restart_medians,
    restarts_with_interval,
};
pub use summary::{Summary, geometric_mean};
pub use time_to_resolve::time_to_resolve;
pub use verdict::{
    Direction, LARGEST_NOISE, Side, Verdict, differ_by_far, exceeds_chance, is_too_noisy,
    possible_difference,
};

/// A description of how intervals are computed, for reports.
pub const METHOD: &str = "Median of the per-block ratios. The 95% interval is taken over restarts \
     of the instances (Student's t on the logarithms of the restarts' medians). Without restarts: order statistics \
     of the blocks, widened for the correlation of neighbours (effective sample size from the \
     lag-1 autocorrelation of the signs around the median).";
