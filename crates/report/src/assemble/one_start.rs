//! Warning about systematic differences between instances that were started only once.

use dbdyno_stats::NoiseFloor;

use super::Measured;
use crate::model::Warning;

/// With fewer microbenchmarks, there is no conclusion.
const LEAST: usize = 4;

/// About 95% of the intervals of equal instances contain 1; a share below this has another cause.
const EXPECTED: f64 = 0.75;

/// A warning if too many of the control's intervals exclude 1 and the instances were never
/// restarted. The memory layout of data and code changes with each start; with a single start its
/// effect is in every ratio.
pub(super) fn warning(measured: &[Measured], floor: Option<&NoiseFloor>) -> Option<Warning> {
    let NoiseFloor { contains_one, count, typical, .. } = floor?;
    let once =
        |one: &Measured| one.slices.windows(2).all(|slices| slices[0].restart == slices[1].restart);
    let is_off = *count >= LEAST && (*contains_one as f64) < EXPECTED * *count as f64;
    (is_off && measured.iter().all(once)).then(|| Warning {
        what: format!(
            "two equal instances, the baseline and the control, differ by {typical} typically, \
             beyond their intervals in {} of {count} microbenchmarks",
            count - contains_one
        ),
        advice: "The instances were started once, and their memory layouts differ. With \
                 restarts = 4 in [schedule] the results average over several layouts."
            .to_owned(),
    })
}
