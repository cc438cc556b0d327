//! A race of layouts inside one process, by successive halving.
//!
//! In each round all remaining layouts and the original code are measured in blocks, in random order within
//! each block. Then the slower half is dropped. Measurements of earlier rounds count in later ones. The
//! winner has been selected for its measurements, so these say too much good of it: it has to be compared
//! with the original code again.

use dbdyno_stats::{median, median_with_interval};
use serde::Serialize;

/// What is active while a slice is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The original code.
    Original,
    /// The layout with this index.
    Layout(usize),
}

/// Measurements of a layout in a race.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RacedLayout {
    /// Number of rounds in which it took part.
    pub rounds: u32,
    /// Number of blocks in which it and the original code were measured.
    pub blocks: usize,
    /// Median cost relative to the original code; `None` without blocks.
    pub ratio: Option<f64>,
    /// 95% interval of the ratio; `None` with too few blocks.
    pub interval: Option<(f64, f64)>,
}

/// The result of a race.
#[derive(Clone, Debug, PartialEq)]
pub struct RaceResult {
    /// Index of the best layout; `None` if the race was stopped in the first round, or no work was done.
    pub winner: Option<usize>,
    /// Measurements of each layout.
    pub layouts: Vec<RacedLayout>,
}

/// Number of slices per round, about: with fewer layouts left, each gets more.
const SLICES_PER_ROUND: usize = 20;
/// Minimum number of blocks per round.
const MIN_BLOCKS: usize = 4;

/// The costs in one block: of the original code, and of each layout that took part and did work.
struct Block {
    original: Option<f64>,
    layouts: Vec<Option<f64>>,
}

/// Races layouts against each other. `measure` activates a side and measures its cost, such as CPU time per
/// query; `None` if no work was done. Stops early if `stop` returns true.
///
/// # Errors
/// Those of `measure`.
pub fn race<E>(
    layouts: usize,
    seed: u64,
    mut measure: impl FnMut(Side) -> Result<Option<f64>, E>,
    stop: impl Fn() -> bool,
) -> Result<RaceResult, E> {
    let mut random = SplitMix(seed);
    let mut field: Vec<usize> = (0..layouts).collect();
    let mut rounds = vec![0; layouts];
    let mut blocks: Vec<Block> = Vec::new();
    let mut winner = None;
    'rounds: while field.len() > 1 {
        for _ in 0..blocks_of_round(field.len()) {
            let mut sides: Vec<Side> = field.iter().map(|&index| Side::Layout(index)).collect();
            sides.push(Side::Original);
            random.shuffle(&mut sides);
            let mut block = Block { original: None, layouts: vec![None; layouts] };
            for side in sides {
                if stop() {
                    break 'rounds;
                }
                let cost = measure(side)?;
                match side {
                    Side::Original => block.original = cost,
                    Side::Layout(index) => block.layouts[index] = cost,
                }
            }
            blocks.push(block);
        }
        for &index in &field {
            rounds[index] += 1;
        }
        let mut scored: Vec<(f64, usize)> = field
            .iter()
            .filter_map(|&index| Some((score(&blocks, index, &field)?, index)))
            .collect();
        scored.sort_by(|a, b| a.0.total_cmp(&b.0));
        let Some(&(_, best)) = scored.first() else { break };
        winner = Some(best);
        field = scored.iter().take(field.len() / 2).map(|&(_, index)| index).collect();
    }
    let raced = |index: usize| {
        let pairs = ratios(&blocks, index);
        let estimate = median_with_interval(&pairs);
        RacedLayout {
            rounds: rounds[index],
            blocks: pairs.len(),
            ratio: median(&pairs),
            interval: estimate.map(|it| (it.low.get(), it.high.get())),
        }
    };
    Ok(RaceResult { winner, layouts: (0..layouts).map(raced).collect() })
}

/// Number of slices of a race.
#[must_use]
pub fn race_slices(layouts: usize) -> usize {
    let mut field = layouts;
    let mut slices = 0;
    while field > 1 {
        slices += blocks_of_round(field) * (field + 1);
        field /= 2;
    }
    slices
}

fn blocks_of_round(field: usize) -> usize {
    (SLICES_PER_ROUND / (field + 1)).max(MIN_BLOCKS)
}

/// The cost of a layout relative to the original code in each block.
fn ratios(blocks: &[Block], index: usize) -> Vec<f64> {
    blocks.iter().filter_map(|block| Some(block.layouts[index]? / block.original?)).collect()
}

/// The median cost of a layout relative to the mean of the field in the same block, which varies less than
/// that of the original code alone. `None`: no work was done.
fn score(blocks: &[Block], index: usize, field: &[usize]) -> Option<f64> {
    let relative = |block: &Block| {
        let costs = field.iter().filter_map(|&other| block.layouts[other]).chain(block.original);
        let (count, sum) = costs.fold((0_u32, 0.0), |(count, sum), it| (count + 1, sum + it));
        Some(block.layouts[index]? * f64::from(count) / sum)
    };
    median(&blocks.iter().filter_map(relative).collect::<Vec<f64>>())
}

/// A random order needs no better generator (Steele, Lea, Flood 2014).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, (self.next() % (last as u64 + 1)) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// Costs of the layouts relative to the original code, with normal noise and a drift of the machine.
    struct Simulation {
        costs: Vec<f64>,
        noise: f64,
        random: SplitMix,
        slices: u32,
    }

    impl Simulation {
        fn new(costs: &[f64], noise: f64, seed: u64) -> Self {
            Self { costs: costs.to_vec(), noise, random: SplitMix(!seed), slices: 0 }
        }

        fn measure(&mut self, side: Side) -> Option<f64> {
            self.slices += 1;
            let mut uniform = || (self.random.next() >> 11) as f64 / (1_u64 << 53) as f64;
            // Sum of 12 uniform numbers: variance 1.
            let normal = (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
            let cost = match side {
                Side::Original => 1.0,
                Side::Layout(index) => self.costs[index],
            };
            let drift = 1.0 + 0.1 * (f64::from(self.slices) / 40.0).sin();
            Some(cost * drift * (1.0 + self.noise * normal))
        }

        fn race(&mut self, seed: u64) -> RaceResult {
            let layouts = self.costs.len();
            let measure = |side| Ok::<_, Infallible>(self.measure(side));
            race(layouts, seed, measure, || false).unwrap()
        }
    }

    const TRIALS: u64 = 400;
    const COSTS: [f64; 8] = [0.98, 0.99, 0.97, 1.0, 0.955, 0.985, 0.99, 1.02];

    #[test]
    fn best_of_several_layouts_wins() {
        let (mut best, mut loss) = (0, 0.0);
        for seed in 0..TRIALS {
            let result = Simulation::new(&COSTS, 0.01, seed).race(seed);
            let winner = result.winner.unwrap();
            best += u64::from(winner == 4);
            loss += COSTS[winner] - COSTS[4];
            let ratio = result.layouts[winner].ratio.unwrap();
            assert!((ratio - COSTS[winner]).abs() < 0.02, "{ratio} of {}", COSTS[winner]);
        }
        assert!(best * 100 >= TRIALS * 93, "{best} of {TRIALS}");
        assert!(loss / (TRIALS as f64) < 0.001, "{loss}");
    }

    #[test]
    fn equal_layouts_win_equally_often() {
        let mut wins = [0_u64; 8];
        for seed in 0..TRIALS {
            wins[Simulation::new(&[0.98; 8], 0.01, seed).race(seed).winner.unwrap()] += 1;
        }
        assert!(wins.iter().all(|wins| (25..80).contains(wins)), "{wins:?}");
    }

    #[test]
    fn winner_of_layouts_equal_to_the_original_code_is_not_proven_better_by_its_race_but_afresh() {
        let (mut raced, mut proven) = (0, 0);
        for seed in 0..TRIALS {
            let mut simulation = Simulation::new(&[1.0; 8], 0.01, seed);
            let result = simulation.race(seed);
            let winner = result.winner.unwrap();
            raced += u64::from(result.layouts[winner].interval.unwrap().1 < 1.0);
            let mut cost = |side| simulation.measure(side).unwrap();
            let pairs: Vec<f64> =
                (0..20).map(|_| cost(Side::Layout(winner)) / cost(Side::Original)).collect();
            proven += u64::from(median_with_interval(&pairs).unwrap().high.get() < 1.0);
        }
        // A 95% interval is below 1 in 2.5% of cases.
        assert!(proven * 100 <= TRIALS * 5, "{proven} of {TRIALS}");
        assert!(raced > proven, "the selection bias that the fresh data avoids: {raced}");
    }

    #[test]
    fn half_of_the_layouts_is_dropped_in_each_round_with_the_slices_announced() {
        for layouts in 1..=8 {
            let mut simulation = Simulation::new(&COSTS[..layouts], 0.01, 1);
            let result = simulation.race(1);
            assert_eq!(simulation.slices as usize, race_slices(layouts));
            let mut rounds: Vec<u32> = result.layouts.iter().map(|it| it.rounds).collect();
            rounds.sort_unstable();
            assert_eq!(result.winner.is_some(), layouts > 1);
            if layouts == 8 {
                assert_eq!(rounds, [1, 1, 1, 1, 2, 2, 3, 3]);
            }
        }
        // 8 layouts in slices of 250 ms: less than 20 s, without switches and work commands.
        assert!(race_slices(8) < 80, "{}", race_slices(8));
    }

    #[test]
    fn layout_without_work_never_wins_and_a_race_without_work_has_no_winner() {
        let mut simulation = Simulation::new(&[0.5, 0.99, 0.98], 0.001, 1);
        let measure = |side| {
            let cost = simulation.measure(side);
            Ok::<_, Infallible>(cost.filter(|_| side != Side::Layout(0)))
        };
        let result = race(3, 1, measure, || false).unwrap();
        assert_eq!(result.winner, Some(2));
        assert_eq!(result.layouts[0].ratio, None);
        let nothing = race(3, 1, |_| Ok::<_, Infallible>(None), || false).unwrap();
        assert_eq!(nothing.winner, None);
    }

    #[test]
    fn stopped_race_has_the_winner_of_the_last_complete_round() {
        let mut slices = 0;
        let mut simulation = Simulation::new(&COSTS, 0.001, 1);
        let counted = std::cell::Cell::new(0);
        let measure = |side| {
            slices += 1;
            counted.set(slices);
            Ok::<_, Infallible>(simulation.measure(side))
        };
        let result = race(8, 1, measure, || counted.get() >= 40).unwrap();
        assert_eq!(result.winner, Some(4));
        let none = race(8, 1, |_| Ok::<_, Infallible>(Some(1.0)), || true).unwrap();
        assert_eq!(none.winner, None);
    }
}
