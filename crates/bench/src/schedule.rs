//! Who runs when, and how much.

use dbdyno_record::SliceMeasured;
use dbdyno_units::Nanos;
use dbdyno_workloads::keys::below;
use dbdyno_workloads::seeds::{Purpose, rng_for};

use crate::slice::{Quota, SliceRequest};

/// The order of `candidates` candidates in a block: a random permutation of their numbers, drawn
/// from the run's seed and nothing else.
#[must_use]
pub fn order(seed: u64, microbenchmark: u32, block: u32, candidates: usize) -> Vec<usize> {
    permutation(seed, Purpose::Order { microbenchmark, block }, candidates)
}

/// The order of `candidates` candidates in a repeat of the insert benchmark, where each runs alone
/// from its first step to its last.
///
/// Who comes first is drawn from the run's seed; from repeat to repeat the others come first in
/// turn, so that after as many repeats as there are candidates each was at every place once.
#[must_use]
pub fn repeat_order(seed: u64, repeat: u32, candidates: usize) -> Vec<usize> {
    let in_round = u32::try_from(candidates.max(1)).unwrap_or(u32::MAX);
    let round = repeat / in_round;
    let mut order = permutation(seed, Purpose::Repeats { round }, candidates);
    order.rotate_left((repeat % in_round) as usize % candidates.max(1));
    order
}

/// The order in which so many instances are started, drawn from the run's seed: for a microbenchmark
/// that has had so many restarts, or at the start of a session.
///
/// Which memory an instance gets depends on who was there before, and how fast it is on the memory.
#[must_use]
pub fn start_order(
    seed: u64,
    microbenchmark: Option<u32>,
    restart: u32,
    instances: usize,
) -> Vec<usize> {
    permutation(seed, Purpose::Starts { microbenchmark, restart }, instances)
}

fn permutation(seed: u64, purpose: Purpose, count: usize) -> Vec<usize> {
    let mut rng = rng_for(seed, purpose);
    let mut order: Vec<usize> = (0..count).collect();
    // Fisher and Yates.
    for last in (1..count).rev() {
        order.swap(last, below(&mut rng, last as u64 + 1) as usize);
    }
    order
}

/// What ends the slices of a microbenchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Every candidate does the same events in a block: as many as take the baseline one slice.
    ///
    /// The baseline finds the number in the warm-up blocks, in which it runs first and by time.
    /// From then on the number is fixed, so that every candidate meets the same keys and, for
    /// writes, goes through the same states.
    Events,
    /// Every candidate works for one slice's time.
    Time,
}

/// The quota of each slice, as the blocks go by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pacing {
    pace: Pace,
    slice: Nanos,
    /// The number of events that was found for the present block or for all that follow.
    events: Option<u64>,
    /// The number that the warm-up block before found.
    found_before: Option<u64>,
}

impl Pacing {
    pub const fn new(pace: Pace, slice: Nanos) -> Self {
        Self { pace, slice, events: None, found_before: None }
    }

    /// The order of a block's slices and their quotas; a warm-up block finds the number of events
    /// anew.
    pub fn arrange(&mut self, mut order: Vec<usize>, baseline: usize, warmup: bool) -> Vec<usize> {
        if self.pace == Pace::Events && warmup {
            self.found_before = self.events.take();
            order.retain(|candidate| *candidate != baseline);
            order.insert(0, baseline);
        }
        order
    }

    /// The next slice.
    pub fn next(&self, block: u32, warmup: bool) -> SliceRequest {
        let quota = match self.events {
            Some(events) => Quota::Events(events),
            None => Quota::Time(self.slice),
        };
        let lead_in = match (self.pace, warmup) {
            // While the baseline finds the number, its lead-in must be the others', too: by the
            // number that was found before, and none in the first block.
            (Pace::Events, true) => self.found_before.and_then(|n| Quota::Events(n).lead_in()),
            _ => quota.lead_in(),
        };
        SliceRequest { block, lead_in, quota }
    }

    /// Takes note of what a slice did.
    pub fn note(&mut self, measured: &SliceMeasured) {
        if self.pace == Pace::Events && self.events.is_none() {
            self.events = Some(measured.events.max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_candidate_has_one_slice_in_every_block() {
        for block in 0..100 {
            let mut order = order(1, 2, block, 5);
            order.sort_unstable();
            assert_eq!(order, [0, 1, 2, 3, 4]);
        }
    }

    #[test]
    fn every_candidate_comes_at_every_place_about_equally_often() {
        let mut counts = [[0; 4]; 4];
        for block in 0..4_000 {
            for (place, candidate) in order(7, 0, block, 4).into_iter().enumerate() {
                counts[place][candidate] += 1;
            }
        }
        assert!(counts.iter().flatten().all(|count| (880..1120).contains(count)), "{counts:?}");
    }

    #[test]
    fn in_the_repeats_of_a_round_every_candidate_is_at_every_place_once() {
        for (seed, candidates) in [(1, 1), (1, 2), (2, 3), (3, 5)] {
            for round in 0..20 {
                let mut places = vec![vec![0; candidates]; candidates];
                for repeat in 0..candidates as u32 {
                    let order = repeat_order(seed, round * candidates as u32 + repeat, candidates);
                    for (place, candidate) in order.into_iter().enumerate() {
                        places[place][candidate] += 1;
                    }
                }
                assert!(places.iter().flatten().all(|count| *count == 1), "{places:?}");
            }
        }
    }

    #[test]
    fn who_comes_first_in_a_round_is_drawn() {
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
    fn instances_start_in_another_order_each_time() {
        let starts: Vec<_> = (0..50).map(|restart| start_order(1, Some(3), restart, 3)).collect();
        for first in 0..3 {
            let times = starts.iter().filter(|order| order[0] == first).count();
            assert!((8..26).contains(&times), "{first} is the first {times} times of 50");
        }
        assert_eq!(start_order(1, Some(3), 0, 3), starts[0]);
        assert_ne!(start_order(1, None, 0, 9), start_order(1, Some(0), 0, 9));
    }

    #[test]
    fn the_order_depends_on_the_seed_alone() {
        let orders = |seed| (0..20).map(|block| order(seed, 3, block, 4)).collect::<Vec<_>>();
        assert_eq!(orders(1), orders(1));
        assert_ne!(orders(1), orders(2));
    }
}
