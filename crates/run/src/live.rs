//! The estimates while a microbenchmark is measured: they decide when it is done.

use dbdyno_bench::measure::Flow;
use dbdyno_record::SliceMeasured;
use dbdyno_results::SliceRow;
use dbdyno_spec::experiment::Schedule;
use dbdyno_stats::{Estimate, Point, median_with_interval, paired_ratios};
use dbdyno_units::Nanos;

/// The interval is looked at after every so many blocks. Looking after each would stop too often
/// at a moment when it is narrow by chance.
const BLOCKS_BETWEEN_LOOKS: u32 = 5;

/// What was measured of one microbenchmark since its instances were started.
#[derive(Debug, Default)]
pub(crate) struct Live {
    points: Vec<Point>,
    /// Blocks that count.
    blocks: u32,
    /// Time of the slices that count, over all candidates.
    time: Nanos,
}

/// When enough was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    /// The fewest blocks.
    pub min_blocks: u32,
    /// The most blocks by number; the budget is by time.
    pub budget: Nanos,
    /// The half-width of the interval at which it is enough; `None` where only the budget counts.
    pub target: Option<f64>,
}

impl Goal {
    /// The goal of each restart: one start aims for the target, several share the budget.
    pub fn of(schedule: &Schedule) -> Self {
        let restarts = schedule.restarts;
        Self {
            min_blocks: schedule.min_blocks.div_ceil(restarts),
            budget: Nanos::from_nanos(schedule.budget.as_nanos() / u64::from(restarts)),
            target: (restarts == 1).then(|| schedule.target.as_fraction()),
        }
    }
}

impl Live {
    /// Takes a slice that counts.
    pub fn add(&mut self, row: &SliceRow) {
        self.time += row.measured.wall;
        if let Some(value) = throughput(&row.measured) {
            let SliceRow { restart, block, candidate, .. } = *row;
            self.points.push(Point { restart, block, candidate, value });
        }
    }

    /// Takes note that a block that counts is over.
    pub fn block(&mut self) {
        self.blocks += 1;
    }

    /// Blocks that count.
    pub const fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The relative QPS of a candidate so far.
    pub fn estimate(&self, candidate: u32) -> Option<Estimate> {
        median_with_interval(&paired_ratios(&self.points, candidate, 0).concat())
    }

    /// Whether to go on, for these candidates.
    pub fn judge(&self, goal: &Goal, candidates: &[u32]) -> Flow {
        if self.blocks < goal.min_blocks {
            return Flow::Continue;
        }
        let per_candidate = self.time.as_nanos() / (candidates.len() as u64 + 1);
        if per_candidate >= goal.budget.as_nanos() {
            return Flow::Stop;
        }
        let Some(target) = goal.target else { return Flow::Continue };
        if !self.blocks.is_multiple_of(BLOCKS_BETWEEN_LOOKS) {
            return Flow::Continue;
        }
        let narrow = |candidate: &u32| {
            self.estimate(*candidate).is_some_and(|e| e.half_width().as_fraction() <= target)
        };
        if candidates.iter().all(narrow) { Flow::Stop } else { Flow::Continue }
    }
}

/// The throughput that ratios are made from.
fn throughput(measured: &SliceMeasured) -> Option<f64> {
    measured.throughput.map(dbdyno_units::Qps::per_second)
}

#[cfg(test)]
mod tests {
    use dbdyno_units::Qps;

    use super::*;

    /// Adds blocks in which candidate 1 has these ratios to the baseline.
    fn live(ratios: &[f64]) -> Live {
        let mut live = Live::default();
        for (block, ratio) in (0..).zip(ratios) {
            for (candidate, qps) in [(0, 1_000.0), (1, 1_000.0 * ratio)] {
                live.add(&SliceRow {
                    microbenchmark: 0,
                    restart: 0,
                    block,
                    place: 0,
                    candidate,
                    warmup: false,
                    measured: SliceMeasured {
                        wall: Nanos::from_millis(50),
                        throughput: Some(Qps::from_per_second(qps)),
                        ..SliceMeasured::default()
                    },
                });
            }
            live.block();
        }
        live
    }

    const GOAL: Goal = Goal { min_blocks: 20, budget: Nanos::from_secs(2), target: Some(0.005) };

    #[test]
    fn goes_on_to_the_least_number_of_blocks_even_when_the_interval_is_narrow() {
        assert_eq!(live(&[1.0; 19]).judge(&GOAL, &[1]), Flow::Continue);
        assert_eq!(live(&[1.0; 20]).judge(&GOAL, &[1]), Flow::Stop);
    }

    #[test]
    fn a_wide_interval_goes_on_until_the_budget_is_spent() {
        let noisy: Vec<f64> = (0..40).map(|i| if i % 2 == 0 { 0.9 } else { 1.1 }).collect();
        assert_eq!(live(&noisy[..39]).judge(&GOAL, &[1]), Flow::Continue);
        assert_eq!(live(&noisy).judge(&GOAL, &[1]), Flow::Stop);
    }

    #[test]
    fn with_restarts_only_the_share_of_the_budget_counts() {
        let goal = Goal { target: None, ..GOAL };
        assert_eq!(live(&[1.0; 39]).judge(&goal, &[1]), Flow::Continue);
        assert_eq!(live(&[1.0; 40]).judge(&goal, &[1]), Flow::Stop);
    }
}
