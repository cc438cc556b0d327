//! The number of blocks of a microbenchmark, and their duration.

use dbdyno_bench::schedule;
use dbdyno_bench::slice::Quota;
use dbdyno_spec::experiment::{Pace, Schedule};
use dbdyno_units::Nanos;
use dbdyno_workloads::definition::Microbenchmark;

/// The length of a slice.
pub(crate) fn slice_length(schedule: &Schedule, microbenchmark: &Microbenchmark) -> Nanos {
    if microbenchmark.writes() { schedule.write_slice } else { schedule.slice }
}

/// What ends a slice.
pub(crate) const fn pace(schedule: &Schedule) -> schedule::Pace {
    match schedule.pace {
        Pace::Events => schedule::Pace::Events,
        Pace::Time => schedule::Pace::Time,
    }
}

/// Minimum and maximum number of counted blocks. The maximum is what fits in the budget; with
/// restarts, at least half of the budget is used.
pub(crate) fn block_range(schedule: &Schedule, slice: Nanos) -> (u32, u32) {
    let slices_in = |time: u64| {
        let slices = time.div_ceil(slice.as_nanos().max(1));
        u32::try_from(slices).unwrap_or(u32::MAX)
    };
    let most = slices_in(schedule.budget.as_nanos()).max(schedule.min_blocks);
    let fewest = match schedule.restarts {
        1 => schedule.min_blocks,
        _ => slices_in(schedule.budget.as_nanos() / 2).max(schedule.min_blocks),
    };
    (fewest, most)
}

/// The time of this number of blocks on all instances, with the warm-up after each start and the
/// lead-in of each slice, without the time to start the instances.
pub(crate) fn block_time(schedule: &Schedule, slice: Nanos, blocks: u32, instances: u64) -> Nanos {
    let (_, most) = block_range(schedule, slice);
    // Half of the budget is for the required restarts, the rest for as many additional ones.
    let starts = match schedule.restarts {
        1 => 1,
        restarts if blocks < most => restarts,
        restarts => 2 * restarts,
    };
    let with_warmup = u64::from(blocks) + u64::from(schedule.warmup_blocks * starts);
    let with_lead_in = match Quota::Time(slice).lead_in() {
        Some(Quota::Time(time)) => slice + time,
        _ => slice,
    };
    with_lead_in.times(with_warmup * instances)
}
