//! The estimates while a microbenchmark is measured: they decide when it is done.

use std::collections::BTreeSet;

use dbdyno_bench::measure::Flow;
use dbdyno_results::SliceRow;
use dbdyno_spec::experiment::Schedule;
use dbdyno_stats::{Estimate, Point, paired_ratios, restarts_with_interval};
use dbdyno_units::Nanos;

/// The interval is looked at after every so many blocks. Looking after each would stop too often
/// at a moment when it is narrow by chance.
const BLOCKS_BETWEEN_LOOKS: u32 = 5;

/// What was measured of one microbenchmark, in earlier sessions, too.
#[derive(Debug, Default)]
pub(crate) struct StoppingRule {
    points: Vec<Point>,
    /// Starts of the instances whose blocks are over.
    restarts: u32,
    /// Blocks that count.
    blocks: u32,
    /// Blocks that count since the instances were started last.
    blocks_of_restart: u32,
    /// Time of the slices that count, over all candidates.
    time: Nanos,
    /// The same since the instances were started last.
    time_of_restart: Nanos,
}

impl StoppingRule {
    /// With what earlier sessions measured; each of their starts is one start.
    pub fn of(before: &[SliceRow]) -> Self {
        let mut rule = Self::default();
        let counting = || before.iter().filter(|row| !row.warmup);
        counting().for_each(|row| rule.add(row));
        rule.blocks = counting().filter(|row| row.candidate == 0).count() as u32;
        rule.restarts = counting().map(|row| row.restart).collect::<BTreeSet<_>>().len() as u32;
        rule.time_of_restart = Nanos::ZERO;
        rule
    }

    /// Takes a slice that counts.
    pub fn add(&mut self, row: &SliceRow) {
        self.time += row.measured.wall;
        self.time_of_restart += row.measured.wall;
        if let Some(value) = row.measured.throughput {
            let SliceRow { restart, block, candidate, .. } = *row;
            self.points.push(Point { restart, block, candidate, value: value.per_second() });
        }
    }

    /// Takes note that a block that counts is over.
    pub const fn block(&mut self) {
        self.blocks += 1;
        self.blocks_of_restart += 1;
    }

    /// Takes note that the blocks since the last start are over.
    pub const fn restart(&mut self) {
        self.restarts += 1;
        self.blocks_of_restart = 0;
        self.time_of_restart = Nanos::ZERO;
    }

    /// Blocks that count.
    pub const fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The relative QPS of a candidate so far.
    pub fn estimate(&self, candidate: u32) -> Option<Estimate> {
        restarts_with_interval(&paired_ratios(&self.points, candidate, 0))
    }

    /// Whether another block follows, before the instances are started anew or all is done.
    ///
    /// Without restarts, blocks follow each other until the target is reached or the budget is
    /// spent. With restarts, each start gets an even share of half the budget, and the rest is
    /// there for more of them.
    pub fn after_block(&self, schedule: &Schedule, candidates: &[u32]) -> Flow {
        let restarts = schedule.restarts;
        if restarts > 1 {
            let share = schedule.budget.as_nanos() / u64::from(2 * restarts);
            let enough = self.blocks_of_restart >= schedule.min_blocks.div_ceil(restarts)
                && per_candidate(self.time_of_restart, candidates) >= share;
            return if enough { Flow::Stop } else { Flow::Continue };
        }
        let due = self.blocks.is_multiple_of(BLOCKS_BETWEEN_LOOKS);
        let enough = self.blocks >= schedule.min_blocks
            && (self.is_spent(schedule, candidates) || due && self.is_narrow(schedule, candidates));
        if enough { Flow::Stop } else { Flow::Continue }
    }

    /// Whether the instances are started anew for more blocks.
    pub fn after_restart(&self, schedule: &Schedule, candidates: &[u32]) -> Flow {
        if schedule.restarts == 1 {
            return Flow::Stop;
        }
        let enough = self.restarts >= schedule.restarts
            && self.blocks >= schedule.min_blocks
            && (self.is_spent(schedule, candidates) || self.is_narrow(schedule, candidates));
        if enough { Flow::Stop } else { Flow::Continue }
    }

    fn is_spent(&self, schedule: &Schedule, candidates: &[u32]) -> bool {
        per_candidate(self.time, candidates) >= schedule.budget.as_nanos()
    }

    fn is_narrow(&self, schedule: &Schedule, candidates: &[u32]) -> bool {
        let target = schedule.target.as_fraction();
        candidates.iter().all(|candidate| {
            self.estimate(*candidate).is_some_and(|e| e.half_width().as_fraction() <= target)
        })
    }
}

/// Nanoseconds for each of these candidates and the baseline.
const fn per_candidate(time: Nanos, candidates: &[u32]) -> u64 {
    time.as_nanos() / (candidates.len() as u64 + 1)
}

#[cfg(test)]
mod tests {
    use dbdyno_record::SliceMeasured;
    use dbdyno_spec::experiment::Pace;
    use dbdyno_units::{Qps, Share};

    use super::*;

    const SCHEDULE: Schedule = Schedule {
        slice: Nanos::from_millis(50),
        write_slice: Nanos::from_millis(50),
        pace: Pace::Events,
        warmup_blocks: 2,
        min_blocks: 20,
        target: Share::from_fraction(0.005),
        budget: Nanos::from_secs(2),
        restarts: 1,
        counters: true,
    };

    /// Adds blocks in which candidate 1 has these ratios to the baseline.
    fn add(rule: &mut StoppingRule, restart: u32, ratios: &[f64]) {
        for (block, ratio) in (0..).zip(ratios) {
            for (candidate, qps) in [(0, 1_000.0), (1, 1_000.0 * ratio)] {
                rule.add(&SliceRow {
                    microbenchmark: 0,
                    restart,
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
            rule.block();
        }
    }

    fn after_blocks(ratios: &[f64]) -> Flow {
        let mut rule = StoppingRule::default();
        add(&mut rule, 0, ratios);
        rule.after_block(&SCHEDULE, &[1])
    }

    #[test]
    fn goes_on_to_the_least_number_of_blocks_even_when_the_interval_is_narrow() {
        assert_eq!(after_blocks(&[1.0; 19]), Flow::Continue);
        assert_eq!(after_blocks(&[1.0; 20]), Flow::Stop);
    }

    #[test]
    fn a_wide_interval_goes_on_until_the_budget_is_spent() {
        let noisy: Vec<f64> = (0..40).map(|i| if i % 2 == 0 { 0.9 } else { 1.1 }).collect();
        assert_eq!(after_blocks(&noisy[..39]), Flow::Continue);
        assert_eq!(after_blocks(&noisy), Flow::Stop);
    }

    #[test]
    fn restarts_share_half_the_budget_evenly() {
        let schedule = Schedule { restarts: 4, ..SCHEDULE };
        let mut rule = StoppingRule::default();
        // 2 s / (2 × 4) = 250 ms, which is five slices.
        add(&mut rule, 0, &[1.0; 4]);
        assert_eq!(rule.after_block(&schedule, &[1]), Flow::Continue);
        add(&mut rule, 0, &[1.0]);
        assert_eq!(rule.after_block(&schedule, &[1]), Flow::Stop);
    }

    #[test]
    fn restarts_go_on_until_their_medians_agree_or_the_budget_is_spent() {
        let schedule = Schedule { restarts: 4, ..SCHEDULE };
        let restarts_until_stop = |levels: [f64; 2]| {
            let mut rule = StoppingRule::default();
            (0..)
                .find(|restart| {
                    add(&mut rule, *restart, &[levels[*restart as usize % 2]; 5]);
                    rule.restart();
                    rule.after_restart(&schedule, &[1]) == Flow::Stop
                })
                .map(|restart| restart + 1)
        };
        assert_eq!(restarts_until_stop([1.0, 1.001]), Some(4));
        assert_eq!(restarts_until_stop([0.95, 1.05]), Some(8));
    }
}
