//! Warning about systematic differences between instances that were started only once.

use dbdyno_results::{CandidateRecord, OriginRecord};
use dbdyno_stats::NoiseFloor;

use super::Measured;
use crate::model::Warning;

/// With fewer microbenchmarks, there is no conclusion.
const LEAST: usize = 4;

/// About 95% of the intervals of equal instances contain 1; a share below this has another cause.
const EXPECTED: f64 = 0.75;

/// A warning if too many of the control's intervals exclude 1 and the instances will not be restarted.
/// The memory layout of data and code changes with each start; with a single start its effect is in
/// every ratio.
pub(super) fn warning(
    measured: &[Measured],
    candidates: &[CandidateRecord],
    floor: Option<&NoiseFloor>,
) -> Option<Warning> {
    let NoiseFloor { contains_one, count, typical, .. } = floor?;
    let once = |one: &Measured| {
        let restarts = || one.slices.iter().map(|slice| slice.restart);
        one.planned_restarts.is_none_or(|planned| planned == 1)
            && restarts().min() == restarts().max()
    };
    let is_off = *count >= LEAST && (*contains_one as f64) < EXPECTED * *count as f64;
    let is_existing = matches!(candidates.first()?.origin, Some(OriginRecord::Server { .. }));
    let advice = match is_existing {
        true => {
            "Both are tables of the same server, and dbdyno does not restart it: the copies differ. \
             Another run, which loads them again, shows by how much."
        }
        false => {
            "The instances were started once, and their memory layouts differ. With restarts = 4 in \
             [schedule] the results average over several layouts."
        }
    };
    (is_off && measured.iter().all(once)).then(|| Warning {
        what: format!(
            "two equal instances, the baseline and the control, differ by {typical} typically, \
             beyond their intervals in {} of {count} microbenchmarks",
            count - contains_one
        ),
        advice: advice.to_owned(),
    })
}
