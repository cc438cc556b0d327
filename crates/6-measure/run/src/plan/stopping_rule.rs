//! Decides when a microbenchmark has been measured enough.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use dbdyno_results::{CandidateRecord, Role, SliceRecord};
use dbdyno_spec::experiment::Schedule;
use dbdyno_stats::{
    ControlRow, Estimate, NoiseFloor, Point, Weight, contrast, paired_ratios,
    restarts_with_interval,
};
use dbdyno_types::{Metric, Work};
use dbdyno_units::{Nanos, Share};

use crate::plan::cases::MicrobenchmarkCase;

/// Number of blocks between checks of the interval. Checking after each block would too often stop
/// when the interval is narrow by chance.
const BLOCKS_BETWEEN_CHECKS: u32 = 5;

/// The least time that a slice counts for, as a part of its planned length. If others kept the
/// baseline from its CPU while the number of events was measured, all slices are far too short, and
/// their own time would never spend the budget.
const LEAST_PART_OF_SLICE: u64 = 8;

/// The measured slices of one microbenchmark, and the decision whether more are needed.
#[derive(Debug, Default)]
pub(crate) struct StoppingRule {
    points: Vec<Point>,
    /// CPU time per statement of servers.
    server_cpu: Vec<Point>,
    /// CPU time per statement of workers: that of the system under test if it is embedded.
    worker_cpu: Vec<Point>,
    /// Number of starts that the schedule requires.
    planned: u32,
    /// The least time that a slice counts for.
    least_of_slice: Nanos,
    /// Number of complete restarts; those that an interruption ended early do not count.
    restarts: u32,
    blocks: u32,
    /// Number of counted blocks since the last restart.
    blocks_of_restart: u32,
    /// Time of the counted slices, over all candidates.
    time: Nanos,
    /// Time of the counted slices after which an extended microbenchmark is done.
    goal: Option<Nanos>,
    /// Time of the counted slices since the last restart.
    time_of_restart: Nanos,
}

impl StoppingRule {
    /// The state after what earlier sessions measured in slices of this length.
    pub fn of(stored: &[SliceRecord], schedule: &Schedule, slice: Nanos) -> Self {
        let least_of_slice = Nanos::from_nanos(slice.as_nanos() / LEAST_PART_OF_SLICE);
        let mut rule = Self { planned: schedule.restarts, least_of_slice, ..Self::default() };
        let mut starts: BTreeMap<u32, StoredStart> = BTreeMap::new();
        for row in stored.iter().filter(|row| !row.warmup) {
            rule.add(row);
            let start = starts.entry(row.restart).or_default();
            start.blocks += u32::from(row.candidate == 0);
            start.time += rule.time_of_slice(row);
            start.candidates.insert(row.candidate);
        }
        rule.blocks = starts.values().map(|start| start.blocks).sum();
        rule.restarts = starts.values().filter(|start| start.is_complete(schedule)).count() as u32;
        rule.time_of_restart = Nanos::ZERO;
        rule
    }

    fn time_of_slice(&self, row: &SliceRecord) -> Nanos {
        row.measured.wall.max(self.least_of_slice)
    }

    pub fn add(&mut self, row: &SliceRecord) {
        let time = self.time_of_slice(row);
        self.time += time;
        self.time_of_restart += time;
        let SliceRecord { restart, block, candidate, ref measured, .. } = *row;
        let point = |value| Point { restart, block, candidate, value };
        if let Some(value) = measured.throughput {
            self.points.push(point(value.per_second()));
        }
        if measured.statements > 0 {
            let per_statement = |cpu: Nanos| cpu.as_micros_f64() / measured.statements as f64;
            self.worker_cpu.push(point(per_statement(measured.cpu)));
            let server = measured.server.map(|server| point(per_statement(server.cpu)));
            self.server_cpu.extend(server);
        }
    }

    pub const fn end_block(&mut self) {
        self.blocks += 1;
        self.blocks_of_restart += 1;
    }

    /// Ends the blocks of a restart.
    pub const fn end_restart(&mut self) {
        self.restarts += 1;
        self.blocks_of_restart = 0;
        self.time_of_restart = Nanos::ZERO;
    }

    pub const fn complete_starts(&self) -> u32 {
        self.restarts
    }

    pub const fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Time of the counted slices, over all candidates.
    pub const fn time(&self) -> Nanos {
        self.time
    }

    /// The mean time of the counted slices; `None` before the first.
    pub fn mean_slice(&self) -> Option<Nanos> {
        let slices = self.points.len() as u64;
        self.time.as_nanos().checked_div(slices).map(Nanos::from_nanos)
    }

    /// Extends the microbenchmark: it is done after this time of counted slices, over all
    /// candidates, whatever its intervals.
    pub const fn set_goal(&mut self, goal: Nanos) {
        self.goal = Some(goal);
    }

    /// The time of counted slices that is left of an extension; `None` without one.
    pub fn time_left_of_extension(&self) -> Option<Nanos> {
        Some(self.goal?.saturating_sub(self.time))
    }

    /// The relative QPS of a candidate so far; `None` with too few blocks.
    pub fn estimate(&self, candidate: u32) -> Option<Estimate> {
        self.interval(&paired_ratios(&self.points, candidate, 0))
    }

    fn interval(&self, ratios: &[Vec<f64>]) -> Option<Estimate> {
        restarts_with_interval(ratios, Some(self.planned))
    }

    /// Whether there are enough blocks, for this restart or for the microbenchmark.
    ///
    /// Without restarts, blocks continue until the target is reached or the budget is spent. With
    /// restarts, each restart gets an even share of half the budget; the rest is for more restarts.
    pub fn has_enough_blocks(&self, schedule: &Schedule, candidates: &[u32]) -> bool {
        if schedule.restarts > 1 {
            let time = per_candidate(self.time_of_restart, candidates);
            return is_complete_start(schedule, self.blocks_of_restart, time);
        }
        if let Some(left) = self.time_left_of_extension() {
            return left == Nanos::ZERO;
        }
        let check = self.blocks.is_multiple_of(BLOCKS_BETWEEN_CHECKS);
        self.blocks >= schedule.min_blocks
            && (self.is_spent(schedule, candidates)
                || check && self.is_narrow(schedule, candidates))
    }

    /// Whether there are enough restarts.
    pub fn has_enough_restarts(&self, schedule: &Schedule, candidates: &[u32]) -> bool {
        if let Some(left) = self.time_left_of_extension() {
            return left == Nanos::ZERO;
        }
        schedule.restarts == 1
            || self.restarts >= schedule.restarts
                && self.blocks >= schedule.min_blocks
                && (self.is_spent(schedule, candidates) || self.is_narrow(schedule, candidates))
    }

    fn is_spent(&self, schedule: &Schedule, candidates: &[u32]) -> bool {
        per_candidate(self.time, candidates) >= schedule.budget.as_nanos()
    }

    /// Whether all intervals are. With nothing to compare there is none, and the budget decides.
    fn is_narrow(&self, schedule: &Schedule, candidates: &[u32]) -> bool {
        let target = schedule.target.as_fraction();
        let is_narrow = |candidate: &u32| {
            self.estimate(*candidate).is_some_and(|e| e.half_width().as_fraction() <= target)
        };
        !candidates.is_empty() && candidates.iter().all(is_narrow)
    }
}

/// The counted slices of a start that earlier sessions stored.
#[derive(Default)]
struct StoredStart {
    /// Number of the baseline's slices.
    blocks: u32,
    /// Time of the slices, over all candidates.
    time: Nanos,
    candidates: BTreeSet<u32>,
}

impl StoredStart {
    /// Whether no interruption ended it early.
    fn is_complete(&self, schedule: &Schedule) -> bool {
        let candidates = self.candidates.len().max(1) as u64;
        is_complete_start(schedule, self.blocks, self.time.as_nanos() / candidates)
    }
}

/// Whether a start with this number of blocks, and this time in nanoseconds for each candidate, has its
/// share of the minimum number of blocks and, if there are several starts, of half the budget.
fn is_complete_start(schedule: &Schedule, blocks: u32, time: u64) -> bool {
    let restarts = schedule.restarts;
    let share = schedule.budget.as_nanos() / u64::from(2 * restarts);
    blocks >= schedule.min_blocks.div_ceil(restarts) && (restarts == 1 || time >= share)
}

/// Nanoseconds for each of these candidates and the baseline.
const fn per_candidate(time: Nanos, candidates: &[u32]) -> u64 {
    time.as_nanos() / (candidates.len() as u64 + 1)
}

/// The figures of a run.
pub(crate) struct Figures {
    pub cases: Vec<MicrobenchmarkCase>,
    /// By case.
    pub rules: Vec<StoppingRule>,
    /// Whether it is a server, by candidate.
    pub is_server: Vec<bool>,
    pub control: Option<u32>,
}

impl Figures {
    pub fn of(
        cases: Vec<MicrobenchmarkCase>,
        rules: Vec<StoppingRule>,
        candidates: &[CandidateRecord],
    ) -> Self {
        let is_server = candidates.iter().map(|one| !one.is_embedded()).collect();
        let control = candidates.iter().position(|one| one.role == Role::Control);
        Self { cases, rules, is_server, control: control.map(|number| number as u32) }
    }

    /// The ratio of a candidate to the baseline so far. CPU time is that per statement, without what
    /// servers do in the background between slices; `None` with too few blocks, or if it is unknown.
    pub fn estimate(&self, case: usize, metric: Metric, candidate: u32) -> Option<Estimate> {
        self.rules[case].interval(&paired_ratios(&self.points(case, metric), candidate, 0))
    }

    /// A contrast of candidates so far; `None` as with [`Self::estimate`].
    pub fn contrast(&self, case: usize, metric: Metric, weights: &[Weight]) -> Option<Estimate> {
        self.rules[case].interval(&contrast(&self.points(case, metric), weights))
    }

    fn points(&self, case: usize, metric: Metric) -> Cow<'_, [Point]> {
        let StoppingRule { points, server_cpu, worker_cpu, .. } = &self.rules[case];
        let is_server = |point: &&Point| self.is_on_server(point.candidate);
        match metric {
            Metric::Qps => Cow::Borrowed(points),
            Metric::Cpu => {
                let servers = server_cpu.iter().filter(is_server);
                let workers = worker_cpu.iter().filter(|point| !is_server(point));
                Cow::Owned(servers.chain(workers).copied().collect())
            }
        }
    }

    fn is_on_server(&self, candidate: u32) -> bool {
        self.is_server.get(candidate as usize) == Some(&true)
    }

    /// The ratio of the control to the baseline; `None` with too few blocks.
    pub fn control_estimate(&self, case: usize, metric: Metric) -> Option<Estimate> {
        self.estimate(case, metric, self.control?)
    }

    /// The metric to trust for a candidate.
    pub fn trusted_metric(&self, case: usize, candidate: u32) -> Metric {
        let on_server = self.is_on_server(0) || self.is_on_server(candidate);
        let cpu_is_known = || self.estimate(case, Metric::Cpu, candidate).is_some();
        let MicrobenchmarkCase { microbenchmark, clients } = &self.cases[case];
        let writes = microbenchmark.writes();
        // No throughput is known to be that of the load generator.
        let work = Work { writes, clients: *clients, on_server, client_bound: false };
        Metric::trusted(work, cpu_is_known)
    }

    /// The noise floor of the run; `None` without a control.
    pub fn noise_floor_of_run(&self, metric: Metric) -> Option<NoiseFloor> {
        let control = |(case, of): (usize, &MicrobenchmarkCase)| {
            let microbenchmark = of.microbenchmark.name.clone();
            Some(ControlRow { microbenchmark, estimate: self.control_estimate(case, metric)? })
        };
        let controls: Vec<ControlRow> = self.cases.iter().enumerate().filter_map(control).collect();
        NoiseFloor::of(&controls)
    }

    /// The noise floor of a microbenchmark; `None` with too few blocks of the control.
    pub fn noise_floor(&self, case: usize, metric: Metric) -> Option<Share> {
        let own = self.control_estimate(case, metric).map(|estimate| estimate.median);
        self.noise_floor_of_run(metric).map(|floor| floor.for_row(own))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use dbdyno_spec::experiment::Pace;
    use dbdyno_types::SliceMeasured;
    use dbdyno_units::{Qps, Share};

    use super::*;
    use crate::plan::elapsed::CaseLeft;

    pub(crate) const SCHEDULE: Schedule = Schedule {
        slice: Nanos::from_millis(50),
        write_slice: Nanos::from_millis(50),
        pace: Pace::Events,
        warmup_blocks: 2,
        warmup_time: Nanos::ZERO,
        min_blocks: 20,
        target: Share::from_fraction(0.005),
        budget: Nanos::from_secs(2),
        restarts: 1,
        counters: true,
    };

    /// A block in which candidate 1 has this ratio to the baseline.
    fn block(restart: u32, block: u32, ratio: f64) -> [SliceRecord; 2] {
        [(0, 1_000.0), (1, 1_000.0 * ratio)].map(|(candidate, qps)| SliceRecord {
            microbenchmark: 0,
            restart,
            block,
            position: 0,
            candidate,
            warmup: false,
            measured: SliceMeasured {
                wall: Nanos::from_millis(50),
                throughput: Some(Qps::from_per_second(qps)),
                ..SliceMeasured::default()
            },
        })
    }

    /// Adds blocks with these ratios.
    fn add(rule: &mut StoppingRule, restart: u32, ratios: &[f64]) {
        for (number, ratio) in (0..).zip(ratios) {
            block(restart, number, *ratio).iter().for_each(|row| rule.add(row));
            rule.end_block();
        }
    }

    fn is_enough(ratios: &[f64]) -> bool {
        let mut rule = StoppingRule::of(&[], &SCHEDULE, SCHEDULE.slice);
        add(&mut rule, 0, ratios);
        rule.has_enough_blocks(&SCHEDULE, &[1])
    }

    #[test]
    fn a_narrow_interval_stops_after_the_minimum_number_of_blocks() {
        assert!(!is_enough(&[1.0; 19]));
        assert!(is_enough(&[1.0; 20]));
    }

    #[test]
    fn a_wide_interval_continues_until_the_budget_is_spent() {
        let noisy: Vec<f64> = (0..40).map(|i| if i % 2 == 0 { 0.9 } else { 1.1 }).collect();
        assert!(!is_enough(&noisy[..39]));
        assert!(is_enough(&noisy));
    }

    #[test]
    fn candidate_without_others_is_measured_for_its_budget() {
        let mut rule = StoppingRule::of(&[], &SCHEDULE, SCHEDULE.slice);
        let blocks = (1..).find(|number| {
            rule.add(&block(0, *number, 1.0)[0]);
            rule.end_block();
            rule.has_enough_blocks(&SCHEDULE, &[])
        });
        assert_eq!(blocks, Some(40), "2 s of 50 ms");
    }

    #[test]
    fn slices_that_are_far_too_short_spend_the_budget_too() {
        let mut rule = StoppingRule::of(&[], &SCHEDULE, SCHEDULE.slice);
        let blocks_until_stop = (0..).find(|number| {
            for mut row in block(0, *number, if number % 2 == 0 { 0.9 } else { 1.1 }) {
                row.measured.wall = Nanos::from_nanos(3_000);
                rule.add(&row);
            }
            rule.end_block();
            rule.has_enough_blocks(&SCHEDULE, &[1])
        });
        // Eight times as many as fit in 2 s.
        assert_eq!(blocks_until_stop, Some(319));
    }

    #[test]
    fn restarts_share_half_the_budget_evenly() {
        let schedule = Schedule { restarts: 4, ..SCHEDULE };
        let mut rule = StoppingRule::of(&[], &schedule, SCHEDULE.slice);
        // 2 s / (2 × 4) = 250 ms, which is five slices.
        add(&mut rule, 0, &[1.0; 4]);
        assert!(!rule.has_enough_blocks(&schedule, &[1]));
        add(&mut rule, 0, &[1.0]);
        assert!(rule.has_enough_blocks(&schedule, &[1]));
    }

    #[test]
    fn restarts_continue_until_their_medians_agree_or_the_budget_is_spent() {
        let schedule = Schedule { restarts: 4, ..SCHEDULE };
        let restarts_until_stop = |levels: [f64; 2]| {
            let mut rule = StoppingRule::of(&[], &schedule, SCHEDULE.slice);
            (0..)
                .find(|restart| {
                    add(&mut rule, *restart, &[levels[*restart as usize % 2]; 5]);
                    rule.end_restart();
                    rule.has_enough_restarts(&schedule, &[1])
                })
                .map(|restart| restart + 1)
        };
        assert_eq!(restarts_until_stop([1.0, 1.001]), Some(4));
        assert_eq!(restarts_until_stop([0.95, 1.05]), Some(8));
    }

    #[test]
    fn start_that_was_interrupted_does_not_replace_a_planned_one() {
        let schedule = Schedule { restarts: 4, ..SCHEDULE };
        // Three complete starts, and one that ended after two of five blocks.
        let stored: Vec<SliceRecord> = [5, 5, 2, 5]
            .into_iter()
            .zip(0..)
            .flat_map(|(blocks, restart)| (0..blocks).flat_map(move |n| block(restart, n, 1.0)))
            .collect();
        let mut rule = StoppingRule::of(&stored, &schedule, SCHEDULE.slice);
        let estimate = rule.estimate(1).unwrap();
        assert!(estimate.contains_one());
        assert_eq!(rule.blocks(), 17);
        add(&mut rule, 4, &[1.0; 3]);
        assert!(!rule.has_enough_restarts(&schedule, &[1]), "three of four are complete");
        add(&mut rule, 4, &[1.0; 2]);
        rule.end_restart();
        assert!(rule.has_enough_restarts(&schedule, &[1]));
    }

    #[test]
    fn start_that_was_interrupted_before_its_share_of_the_budget_is_not_complete() {
        // 8 s / (2 × 4) = 1 s, which is 20 slices; at least 5 blocks.
        let schedule = Schedule { restarts: 4, budget: Nanos::from_secs(8), ..SCHEDULE };
        let complete_starts = |blocks: u32| {
            let stored: Vec<SliceRecord> = (0..blocks).flat_map(|n| block(0, n, 1.0)).collect();
            StoppingRule::of(&stored, &schedule, SCHEDULE.slice).complete_starts()
        };
        assert_eq!([5, 19, 20].map(complete_starts), [0, 0, 1]);
    }

    #[test]
    fn blocks_left_follow_from_the_time_of_slices() {
        let most_left_after_ten = |millis| {
            let mut rule = StoppingRule::of(&[], &SCHEDULE, SCHEDULE.slice);
            for number in 0..10 {
                for mut row in block(0, number, 1.0) {
                    row.measured.wall = Nanos::from_millis(millis);
                    rule.add(&row);
                }
                rule.end_block();
            }
            CaseLeft::of(&SCHEDULE, SCHEDULE.slice, &rule, 2).blocks.1
        };
        // 2 s are 80, 40 or 10 slices, and at least 20 are measured, after two blocks of warm-up.
        assert_eq!([25, 50, 200].map(most_left_after_ten), [72, 32, 12]);
    }

    #[test]
    fn short_slices_of_writes_count_as_an_eighth_of_a_slice_of_writes() {
        let mut row = block(0, 0, 1.0)[0].clone();
        row.measured.wall = Nanos::from_nanos(3_000);
        let rule = StoppingRule::of(&[row], &SCHEDULE, Nanos::from_millis(400));
        assert_eq!(rule.time(), Nanos::from_millis(50));
    }
}
