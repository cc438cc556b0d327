//! The number of blocks of a microbenchmark, and their duration.

use dbdyno_spec::experiment::{Pace, Schedule};
use dbdyno_units::Nanos;
use dbdyno_worker::protocol::lead_in_time;
use dbdyno_worker::schedule;
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
    if schedule.restarts == 1 {
        let most = slices_in(schedule.budget.as_nanos(), slice).max(schedule.min_blocks);
        return (schedule.min_blocks, most);
    }
    let (fewest, most) = start_range(schedule, slice);
    let blocks = blocks_of_start(schedule, slice);
    (fewest.saturating_mul(blocks), most.saturating_mul(blocks))
}

/// Minimum and maximum number of starts of the instances for a microbenchmark. The maximum is reached
/// if no interval becomes narrow.
pub(crate) fn start_range(schedule: &Schedule, slice: Nanos) -> (u32, u32) {
    let restarts = schedule.restarts;
    if restarts == 1 {
        return (1, 1);
    }
    let time = slice.times(u64::from(blocks_of_start(schedule, slice)));
    (restarts, slices_in(schedule.budget.as_nanos(), time).max(restarts))
}

/// The number of counted blocks of a start, if there are several starts: it has its share of the
/// minimum number of blocks, and of half of the budget.
fn blocks_of_start(schedule: &Schedule, slice: Nanos) -> u32 {
    let share = schedule.budget.as_nanos() / u64::from(2 * schedule.restarts);
    slices_in(share, slice).max(schedule.min_blocks.div_ceil(schedule.restarts))
}

/// The number of slices that take this time.
fn slices_in(time: u64, slice: Nanos) -> u32 {
    u32::try_from(time.div_ceil(slice.as_nanos().max(1))).unwrap_or(u32::MAX)
}

/// The time of this number of blocks on all instances, with the warm-up after each start and the
/// lead-in of each slice, without the time to start the instances.
pub(crate) fn block_time(schedule: &Schedule, slice: Nanos, blocks: u32, instances: u64) -> Nanos {
    let starts = match schedule.restarts {
        1 => 1,
        _ => blocks.div_ceil(blocks_of_start(schedule, slice)),
    };
    let with_warmup = u64::from(blocks) + u64::from(schedule.warmup_blocks) * u64::from(starts);
    (slice + lead_in_time(slice)).times(with_warmup * instances)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stopping_rule::tests::SCHEDULE;

    #[test]
    fn starts_share_half_the_budget_and_the_minimum_number_of_blocks() {
        let schedule = Schedule { restarts: 4, ..SCHEDULE };
        // 2 s / (2 × 4) = 250 ms: five slices.
        let slice = Nanos::from_millis(50);
        assert_eq!(start_range(&schedule, slice), (4, 8));
        assert_eq!(block_range(&schedule, slice), (20, 40));
        // At least 20 / 4 = 5 blocks of a start, which take 1 s: four starts exceed the budget.
        let slice = Nanos::from_millis(200);
        assert_eq!(start_range(&schedule, slice), (4, 4));
        assert_eq!(block_range(&schedule, slice), (20, 20));
        // 20 blocks and 4 × 2 of warm-up, with a lead-in of an eighth, on 3 instances.
        assert_eq!(block_time(&schedule, slice, 20, 3), Nanos::from_millis(225 * 28 * 3));
        assert_eq!(start_range(&SCHEDULE, slice), (1, 1));
        assert_eq!(block_range(&SCHEDULE, slice), (20, 20));
    }
}
