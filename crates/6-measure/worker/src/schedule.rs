//! The order of slices and their length.

use std::collections::VecDeque;

use dbdyno_types::{Pace, SliceMeasured};
use dbdyno_units::Nanos;
use dbdyno_workloads::keys::below;
use dbdyno_workloads::seeds::{Purpose, rng_for};

use crate::protocol::{Quota, SliceRequest, lead_in_time};

/// The baseline's number among the candidates.
pub const BASELINE: usize = 0;

/// The order of `candidates` candidates in a block: a random permutation of their numbers that
/// depends only on the arguments.
pub fn order(seed: u64, microbenchmark: u32, block: u32, candidates: usize) -> Vec<usize> {
    permutation(seed, Purpose::Order { microbenchmark, block }, candidates)
}

/// The order of `numbers` numbers of clients in a round: in each round, every number has one block.
pub fn clients_order(seed: u64, microbenchmark: u32, round: u32, numbers: usize) -> Vec<usize> {
    permutation(seed, Purpose::Clients { microbenchmark, round }, numbers)
}

/// The order of `candidates` candidates in a repeat of the insert benchmark.
///
/// A round has as many repeats as there are candidates. Its first order is random; each further
/// repeat rotates it, so that every candidate is in every position once per round.
pub fn repeat_order(seed: u64, repeat: u32, candidates: usize) -> Vec<usize> {
    let in_round = u32::try_from(candidates.max(1)).unwrap_or(u32::MAX);
    let round = repeat / in_round;
    let mut order = permutation(seed, Purpose::Repeats { round }, candidates);
    order.rotate_left((repeat % in_round) as usize % candidates.max(1));
    order
}

/// The order in which instances are started: at the start of a session (`microbenchmark` is
/// `None`), or for one restart of a microbenchmark.
///
/// Random, because the start order affects which memory an instance gets, and thus its speed.
pub fn start_order(
    seed: u64,
    microbenchmark: Option<u32>,
    restart: u32,
    instances: usize,
) -> Vec<usize> {
    permutation(seed, Purpose::Starts { microbenchmark, restart }, instances)
}

/// Fisher-Yates shuffle.
fn permutation(seed: u64, purpose: Purpose, count: usize) -> Vec<usize> {
    let mut rng = rng_for(seed, purpose);
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, below(&mut rng, last as u64 + 1) as usize);
    }
    order
}

/// The blocks of one microbenchmark.
#[derive(Clone, Copy, Debug)]
pub struct BlockPlan {
    pub seed: u64,
    /// The microbenchmark's position in the running order.
    pub microbenchmark: u32,
    /// Number of the first block.
    pub first_block: u32,
    /// Minimum number of warm-up blocks, starting with the first block.
    pub warmup_blocks: u32,
    /// Minimum time of the baseline's slices and their lead-in in warm-up blocks.
    pub warmup_time: Nanos,
    /// Number of blocks after them in which the engines' own counters are read.
    pub counted_blocks: u32,
    pub clients: u32,
    pub slice: Nanos,
    /// The condition that ends a slice.
    pub pace: Pace,
}

/// One slice to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledSlice {
    pub block: u32,
    /// Position in the block, from 0.
    pub position: u32,
    /// Whether it is warm-up, which is not evaluated.
    pub warmup: bool,
    pub candidate: usize,
    pub request: SliceRequest,
}

/// What the baseline completed in one slice time.
#[derive(Clone, Copy, Debug)]
struct MeasuredQuota {
    events: u64,
    wall: Nanos,
}

/// Iterator over the slices of one microbenchmark. It ends only if the baseline is inactive; the
/// caller stops when it has enough blocks.
///
/// It does no I/O. The caller must pass the measurements of each slice to [`Self::calibrate`], and
/// failed candidates to [`Self::remove`].
#[derive(Clone, Debug)]
pub struct Schedule {
    plan: BlockPlan,
    /// Whether each candidate is active.
    active: Vec<bool>,
    block: u32,
    next_block: u32,
    /// Time of the baseline's slices in warm-up blocks.
    warm: Nanos,
    /// The first block after warm-up, once it has started.
    first_counted: Option<u32>,
    /// The candidate of the last slice that was returned.
    current: usize,
    /// Position and candidate of the remaining slices of the block.
    left: VecDeque<(u32, usize)>,
    /// Quota of a slice, once measured: until the highest is known, of this block.
    measured: Option<MeasuredQuota>,
    /// The quota that the baseline measured last.
    last: Option<MeasuredQuota>,
    /// The highest quota that the baseline measured.
    highest: Option<MeasuredQuota>,
    /// Quota of the lead-ins of the current block. It is fixed when the block starts, so that all
    /// candidates get the same events.
    lead_in: Option<Quota>,
}

impl Schedule {
    /// A schedule for the candidates whose flag in `active` is set.
    pub fn new(plan: BlockPlan, active: Vec<bool>) -> Self {
        Self {
            active,
            block: plan.first_block,
            next_block: plan.first_block,
            warm: Nanos::ZERO,
            first_counted: None,
            current: BASELINE,
            left: VecDeque::new(),
            measured: None,
            last: None,
            highest: None,
            lead_in: None,
            plan,
        }
    }

    /// Adds the last slice to the time of warm-up, and sets the number of events per slice from its measurements, if it is
    /// not known yet: for later blocks if the slice is the baseline's, else for the rest of the block.
    pub fn calibrate(&mut self, measured: &SliceMeasured) {
        if self.is_warmup() && self.current == BASELINE {
            let lead_in = self.lead_in.map_or(Nanos::ZERO, |_| lead_in_time(measured.wall));
            self.warm += measured.wall + lead_in;
        }
        if self.plan.pace == Pace::Events && self.measured.is_none() {
            let SliceMeasured { events, wall, .. } = *measured;
            let quota = MeasuredQuota { events: events.max(1), wall };
            self.measured = Some(quota);
            if self.current == BASELINE {
                self.last = Some(quota);
                let highest = self.highest.filter(|highest| highest.events >= quota.events);
                self.highest = highest.or(self.last);
            }
        }
    }

    /// Removes a candidate from this and all later blocks.
    pub fn remove(&mut self, candidate: usize) {
        self.active[candidate] = false;
        self.left.retain(|(_, left)| *left != candidate);
    }

    /// The candidate of the next slice, if it is in the current block.
    pub fn upcoming(&self) -> Option<usize> {
        self.left.front().map(|(_, candidate)| *candidate)
    }

    /// Whether all slices of the current block were returned.
    pub fn is_block_complete(&self) -> bool {
        self.left.is_empty()
    }

    const fn is_warmup(&self) -> bool {
        self.first_counted.is_none()
    }

    fn start_block(&mut self) {
        self.block = self.next_block;
        self.next_block += 1;
        let BlockPlan { seed, microbenchmark, pace, slice, warmup_blocks, warmup_time, .. } =
            self.plan;
        let is_warm =
            self.block - self.plan.first_block >= warmup_blocks && self.warm >= warmup_time;
        if self.is_warmup() && is_warm {
            self.first_counted = Some(self.block);
        }
        let (of_lead_in, measured) =
            if self.is_warmup() { (self.last, None) } else { (self.highest, self.highest) };
        self.measured = measured;
        self.lead_in = match pace {
            Pace::Events => of_lead_in.and_then(|one| Quota::Events(one.events).lead_in(one.wall)),
            Pace::Time => Quota::Time(slice).lead_in(slice),
        };
        let mut order = order(seed, microbenchmark, self.block, self.active.len());
        if pace == Pace::Events && measured.is_none() {
            order.retain(|candidate| *candidate != BASELINE);
            order.insert(0, BASELINE);
        }
        self.left = (0..).zip(order).filter(|(_, candidate)| self.active[*candidate]).collect();
    }

    fn request(&self, block: u32) -> SliceRequest {
        let quota = match self.measured {
            Some(measured) => Quota::Events(measured.events),
            None => Quota::Time(self.plan.slice),
        };
        let counters =
            self.first_counted.is_some_and(|first| block - first < self.plan.counted_blocks);
        let clients = Some(self.plan.clients);
        SliceRequest { block, clients, lead_in: self.lead_in, quota, counters, profile: false }
    }
}

impl Iterator for Schedule {
    type Item = ScheduledSlice;

    fn next(&mut self) -> Option<ScheduledSlice> {
        if !self.active.get(BASELINE).copied().unwrap_or_default() {
            return None;
        }
        if self.left.is_empty() {
            self.start_block();
        }
        let (position, candidate) = self.left.pop_front()?;
        self.current = candidate;
        let (block, warmup) = (self.block, self.is_warmup());
        Some(ScheduledSlice { block, position, warmup, candidate, request: self.request(block) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: BlockPlan = BlockPlan {
        seed: 6,
        microbenchmark: 0,
        first_block: 0,
        warmup_blocks: 2,
        warmup_time: Nanos::ZERO,
        counted_blocks: 3,
        clients: 1,
        slice: Nanos::from_millis(10),
        pace: Pace::Events,
    };

    #[test]
    fn counters_are_read_in_the_first_blocks_after_warm_up() {
        let mut schedule = Schedule::new(BlockPlan { pace: Pace::Time, ..PLAN }, vec![true; 2]);
        let slices: Vec<ScheduledSlice> = schedule.by_ref().take(16).collect();
        let counted = slices.iter().filter(|slice| slice.request.counters);
        let blocks: Vec<u32> = counted.map(|slice| slice.block).collect();
        assert_eq!(blocks, [2, 2, 3, 3, 4, 4]);
    }

    #[test]
    fn warm_up_ends_when_the_baseline_ran_for_its_time_and_blocks() {
        let first_counted = |slice: u64, pace| {
            let plan = BlockPlan { warmup_time: Nanos::from_millis(100), pace, ..PLAN };
            let mut schedule = Schedule::new(plan, vec![true; 2]);
            for _ in 0..100 {
                let next = schedule.next().unwrap();
                if !next.warmup {
                    assert!(next.request.counters && next.position == 0);
                    return next.block;
                }
                // The other one is slow, which does not shorten the warm-up of the baseline.
                let wall = Nanos::from_millis(slice * (1 + 9 * next.candidate as u64));
                schedule.calibrate(&SliceMeasured {
                    wall,
                    events: 1000,
                    ..SliceMeasured::default()
                });
            }
            panic!("warm-up does not end");
        };
        // The first block has no lead-in if slices end by events, whose rate is not known yet.
        for (pace, expected) in [(Pace::Events, [11, 5, 3, 2, 2]), (Pace::Time, [10, 4, 3, 2, 2])] {
            let blocks = [5, 20, 30, 50, 3_000].map(|slice| first_counted(slice, pace));
            assert_eq!(blocks, expected);
        }
    }

    #[test]
    fn every_candidate_has_one_slice_in_every_block() {
        for block in 0..100 {
            let mut order = order(1, 2, block, 5);
            order.sort_unstable();
            assert_eq!(order, [0, 1, 2, 3, 4]);
        }
    }

    #[test]
    fn candidates_are_in_all_positions_equally_often() {
        let mut counts = [[0; 4]; 4];
        for block in 0..4_000 {
            for (position, candidate) in order(7, 0, block, 4).into_iter().enumerate() {
                counts[position][candidate] += 1;
            }
        }
        assert!(counts.iter().flatten().all(|count| (880..1120).contains(count)), "{counts:?}");
    }

    #[test]
    fn round_of_repeats_has_every_candidate_in_every_position_once() {
        for (seed, candidates) in [(1, 1), (1, 2), (2, 3), (3, 5)] {
            for round in 0..20 {
                let mut positions = vec![vec![0; candidates]; candidates];
                for repeat in 0..candidates as u32 {
                    let order = repeat_order(seed, round * candidates as u32 + repeat, candidates);
                    for (position, candidate) in order.into_iter().enumerate() {
                        positions[position][candidate] += 1;
                    }
                }
                assert!(positions.iter().flatten().all(|count| *count == 1), "{positions:?}");
            }
        }
    }

    #[test]
    fn first_candidate_of_a_round_is_random() {
        let mut first = [0; 4];
        for seed in 0..4_000 {
            first[repeat_order(seed, 0, 4)[0]] += 1;
        }
        assert!(first.iter().all(|count| (880..1120).contains(count)), "{first:?}");
        let orders = |seed| (0..30).map(|repeat| repeat_order(seed, repeat, 3)).collect::<Vec<_>>();
        assert_eq!(orders(5), orders(5));
        assert_ne!(orders(5), orders(6));
        assert!(repeat_order(1, 7, 0).is_empty());
    }

    #[test]
    fn start_order_differs_between_restarts() {
        let starts: Vec<_> = (0..50).map(|restart| start_order(1, Some(3), restart, 3)).collect();
        for first in 0..3 {
            let times = starts.iter().filter(|order| order[0] == first).count();
            assert!((8..26).contains(&times), "{first} is the first {times} times of 50");
        }
        assert_eq!(start_order(1, Some(3), 0, 3), starts[0]);
        assert_ne!(start_order(1, None, 0, 9), start_order(1, Some(0), 0, 9));
    }

    #[test]
    fn numbers_of_clients_are_in_all_positions_of_a_round() {
        let mut counts = [[0; 3]; 3];
        for round in 0..3_000 {
            for (position, number) in clients_order(7, 2, round, 3).into_iter().enumerate() {
                counts[position][number] += 1;
            }
        }
        assert!(counts.iter().flatten().all(|count| (880..1120).contains(count)), "{counts:?}");
        assert_eq!(clients_order(7, 2, 5, 3), clients_order(7, 2, 5, 3));
    }

    #[test]
    fn order_depends_on_the_seed_only() {
        let orders = |seed| (0..20).map(|block| order(seed, 3, block, 4)).collect::<Vec<_>>();
        assert_eq!(orders(1), orders(1));
        assert_ne!(orders(1), orders(2));
    }

    /// A failure of a slice in [`run`].
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Fate {
        Failed,
        Lost,
    }

    /// Runs 5 blocks, 2 of them warm-up, and returns the run as a line of text and the events of
    /// each slice: one letter per slice, the baseline `b`, candidates from `c` on; upper case for
    /// warm-up; then `t` or `e` for a slice that ends by time or after events, `!` for a failure,
    /// `?` for a lost slice; `|` between blocks.
    fn run(pace: Pace, fates: &[(char, u32, Fate)]) -> (String, Vec<u64>) {
        const BLOCKS: u32 = 5;
        let plan = BlockPlan { pace, ..PLAN };
        let mut schedule = Schedule::new(plan, vec![true; 3]);
        let (mut script, mut all_events) = (String::new(), Vec::new());
        while let Some(slice) = schedule.next() {
            let ScheduledSlice { block, candidate, request, warmup, .. } = slice;
            assert_eq!((request.block, warmup), (block, block < 2));
            let (name, events_per_time) = [('b', 100), ('c', 200), ('d', 50)][candidate];
            script.push(if warmup { name.to_ascii_uppercase() } else { name });
            let fate = fates.iter().find(|fate| (fate.0, fate.1) == (name, block));
            match fate.map(|fate| fate.2) {
                Some(Fate::Failed) => {
                    script.push('!');
                    schedule.remove(candidate);
                }
                Some(Fate::Lost) => script.push('?'),
                None => {
                    let (letter, events) = match request.quota {
                        Quota::Time(_) => ('t', events_per_time),
                        Quota::Events(events) => ('e', events),
                    };
                    script.push(letter);
                    schedule.calibrate(&SliceMeasured { events, ..SliceMeasured::default() });
                    all_events.push(events);
                }
            }
            if schedule.is_block_complete() {
                if block + 1 == BLOCKS {
                    break;
                }
                script.push('|');
            }
        }
        (script, all_events)
    }

    #[test]
    fn pace_by_events_uses_the_count_of_the_baseline_in_warm_up() {
        let (script, events) = run(Pace::Events, &[]);
        assert_eq!(script, "BtDeCe|BtCeDe|decebe|becede|bedece");
        assert!(events.iter().all(|events| *events == 100), "{events:?}");
    }

    #[test]
    fn stall_of_the_baseline_in_a_warm_up_block_does_not_shorten_all_slices() {
        let plan = BlockPlan { warmup_blocks: 3, ..PLAN };
        for stalled in 0..3 {
            let mut schedule = Schedule::new(plan, vec![true; 2]);
            let mut last = None;
            for _ in 0..10 {
                let slice = schedule.next().unwrap();
                let events = match slice.request.quota {
                    Quota::Time(_) if slice.block == stalled => 1,
                    Quota::Time(_) => 100,
                    Quota::Events(events) => events,
                };
                schedule.calibrate(&SliceMeasured { events, ..SliceMeasured::default() });
                last = Some(slice.request.quota);
            }
            assert_eq!(last, Some(Quota::Events(100)), "stalled in block {stalled}");
        }
    }

    #[test]
    fn all_candidates_of_a_block_have_the_same_lead_in() {
        let plan = BlockPlan { warmup_blocks: 3, ..PLAN };
        let mut schedule = Schedule::new(plan, vec![true; 3]);
        let mut lead_ins = vec![Vec::new(); 6];
        for number in 0..18 {
            let slice = schedule.next().unwrap();
            lead_ins[slice.block as usize].push(slice.request.lead_in);
            // The baseline becomes faster with each block.
            let events = match slice.request.quota {
                Quota::Time(_) => 100 + number,
                Quota::Events(events) => events,
            };
            let wall = Nanos::from_millis(10 + 7 * slice.candidate as u64);
            schedule.calibrate(&SliceMeasured { events, wall, ..SliceMeasured::default() });
        }
        // Half of the events of the block before; the warm-up blocks measure 100, 103 and 106.
        let expected = [None, Some(50), Some(52), Some(53), Some(53), Some(53)]
            .map(|events| vec![events.map(Quota::Events); 3]);
        assert_eq!(lead_ins, expected);
    }

    #[test]
    fn pace_by_time_keeps_the_order_and_ends_all_slices_by_time() {
        let (script, _) = run(Pace::Time, &[]);
        let (by_events, _) = run(Pace::Events, &[]);
        let counted = |script: &str| script.split('|').skip(2).collect::<String>();
        assert_eq!(counted(&script).replace('t', "e"), counted(&by_events));
        assert!(!script.contains('e'), "{script}");
    }

    #[test]
    fn failed_candidate_is_removed_and_others_continue() {
        let (script, _) = run(Pace::Events, &[('c', 3, Fate::Failed)]);
        assert_eq!(script, "BtDeCe|BtCeDe|decebe|bec!de|bede");
    }

    #[test]
    fn failed_baseline_ends_the_schedule() {
        let (script, _) = run(Pace::Events, &[('b', 3, Fate::Failed)]);
        assert_eq!(script, "BtDeCe|BtCeDe|decebe|b!");
    }

    #[test]
    fn candidate_with_a_lost_slice_continues_in_the_next_block() {
        let (script, _) = run(Pace::Events, &[('c', 3, Fate::Lost), ('b', 4, Fate::Lost)]);
        assert_eq!(script, "BtDeCe|BtCeDe|decebe|bec?de|b?dece");
    }

    #[test]
    fn lost_warm_up_slice_of_the_baseline_lets_no_other_candidate_set_the_quota() {
        let (script, events) = run(Pace::Events, &[('b', 0, Fate::Lost)]);
        assert_eq!(script, "B?DtCe|BtCeDe|decebe|becede|bedece");
        // The second block measures the baseline.
        assert_eq!((&events[..2], &events[2..]), (&[50, 50][..], &[100; 12][..]));
        // Without it, a counted block does.
        let (script, events) =
            run(Pace::Events, &[('b', 0, Fate::Lost), ('b', 1, Fate::Lost), ('b', 2, Fate::Lost)]);
        assert_eq!(script, "B?DtCe|B?CtDe|b?dtce|btcede|bedece");
        assert_eq!((&events[..6], &events[6..]), (&[50, 50, 200, 200, 50, 50][..], &[100; 6][..]));
    }

    #[test]
    fn inactive_candidate_leaves_its_position_free() {
        let plan = BlockPlan { first_block: 2, warmup_blocks: 0, pace: Pace::Time, ..PLAN };
        let schedule = Schedule::new(plan, vec![true, false, true]);
        let positions: Vec<_> =
            schedule.take(4).map(|s| (s.block, s.position, s.candidate)).collect();
        // The full order of block 2 is d, c, b, that of block 3 b, c, d.
        assert_eq!(positions, [(2, 0, 2), (2, 2, 0), (3, 0, 0), (3, 2, 2)]);
        assert_eq!(Schedule::new(plan, vec![false, true]).next(), None);
    }
}
