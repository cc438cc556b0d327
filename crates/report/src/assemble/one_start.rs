//! Instances that were started once, and differ for that.

use dbdyno_stats::NoiseFloor;

use super::Measured;
use crate::model::Warning;

/// Fewer microbenchmarks show nothing.
const LEAST: usize = 4;

/// Of equal instances 95 in 100 intervals contain 1, and with this share something else is at work.
const EXPECTED: f64 = 0.75;

/// What to say where the control is beyond its intervals and nothing was started anew: each start
/// draws anew where data and code lie in memory, and one draw stays in every ratio.
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
        advice: "Each start is another draw of places in memory, and there was one: with \
                 restarts = 4 in [schedule] the draws average out."
            .to_owned(),
    })
}
