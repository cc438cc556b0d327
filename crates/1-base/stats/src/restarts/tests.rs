use proptest::prelude::*;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use crate::estimate::tests::autoregressive;

const TRIALS: u64 = 1_000;

/// For mean widths, which need fewer than coverages.
const TRIALS_OF_WIDTHS: u64 = 200;

/// The standard deviation of a block.
const WITHIN: f64 = 0.01;

/// Standard deviations between starts: none to several percent.
const BETWEEN: [f64; 4] = [0.0, 0.003, 0.01, 0.03];

/// How blocks of a start vary.
#[derive(Clone, Copy, Debug)]
enum Noise {
    Normal,
    /// Every tenth block varies five times as much.
    HeavyTails,
    /// Neighbours are correlated by 0.3.
    Correlated,
}

const NOISES: [Noise; 3] = [Noise::Normal, Noise::HeavyTails, Noise::Correlated];

/// A measured series: starts of these lengths, whose levels have the standard deviation `between`.
fn series(seed: u64, lengths: &[usize], between: f64, noise: Noise) -> Vec<Vec<f64>> {
    let levels = autoregressive(seed * 1_000, 0.0, lengths.len());
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    (1..)
        .zip(lengths.iter().zip(levels))
        .map(|(start, (length, level))| {
            let correlation = if matches!(noise, Noise::Correlated) { 0.3 } else { 0.0 };
            let blocks = autoregressive(seed * 1_000 + start, correlation, *length);
            let mut factor = || match noise {
                Noise::HeavyTails if below(&mut random, 10) == 0 => 5.0,
                _ => 1.0,
            };
            let block = |block: f64| 1.0 + between * level + WITHIN * factor() * block;
            blocks.into_iter().map(block).collect()
        })
        .collect()
}

fn below(random: &mut impl Rng, limit: usize) -> usize {
    (random.next_u64() % limit as u64) as usize
}

/// The lengths of planned starts, and those of starts that interruptions ended.
fn planned_starts(seed: u64, starts: usize, blocks: usize, interruptions: usize) -> Vec<usize> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut lengths = vec![blocks; starts];
    for _ in 0..interruptions {
        let at = below(&mut random, lengths.len() + 1);
        lengths.insert(at, 1 + below(&mut random, blocks - 1));
    }
    lengths
}

/// The lengths of the parts of one start that is interrupted.
fn parts(seed: u64, blocks: usize, interruptions: usize) -> Vec<usize> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut ends: Vec<usize> =
        (0..interruptions).map(|_| 1 + below(&mut random, blocks - 1)).collect();
    ends.extend([0, blocks]);
    ends.sort_unstable();
    ends.dedup();
    ends.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// The share of intervals that contain the true value, and their mean half-width.
fn simulate(
    lengths: impl Fn(u64) -> Vec<usize>,
    between: f64,
    noise: Noise,
    planned: Option<u32>,
    trials: u64,
) -> (f64, f64) {
    let (mut covered, mut width) = (0, 0.0);
    for seed in 0..trials {
        let series = series(seed, &lengths(seed), between, noise);
        let estimate = restarts_with_interval(&series, planned).unwrap();
        covered += u32::from(estimate.contains_one());
        width += estimate.half_width().as_fraction();
    }
    (f64::from(covered) / trials as f64, width / trials as f64)
}

/// The least and greatest coverage over all kinds of noise and these spreads between starts, and
/// the mean width relative to that of another design.
fn coverages(
    betweens: &[f64],
    planned: Option<u32>,
    lengths: impl Fn(u64) -> Vec<usize>,
    uninterrupted: &[usize],
) -> (f64, f64, f64) {
    let (mut least, mut greatest, mut width) = (1.0_f64, 0.0_f64, 0.0);
    for between in betweens {
        for noise in NOISES {
            let (share, half) = simulate(&lengths, *between, noise, planned, TRIALS);
            let (_, reference) =
                simulate(|_| uninterrupted.to_vec(), *between, noise, planned, TRIALS_OF_WIDTHS);
            (least, greatest) = (least.min(share), greatest.max(share));
            width += half / reference / (betweens.len() * NOISES.len()) as f64;
        }
    }
    (least, greatest, width)
}

#[test]
fn interval_over_planned_starts_has_nominal_coverage_with_and_without_interruptions() {
    for (starts, blocks) in [(3, 20), (6, 5), (6, 20), (12, 10)] {
        for interruptions in 0..=3 {
            let (least, greatest, width) = coverages(
                &BETWEEN,
                Some(starts as u32),
                |seed| planned_starts(seed, starts, blocks, interruptions),
                &vec![blocks; starts],
            );
            println!(
                "{starts} starts of {blocks} blocks, {interruptions} interruptions: coverage \
                 {least:.3} to {greatest:.3}, width {width:.2}"
            );
            assert!(least >= 0.92 && greatest <= 0.98, "{least} to {greatest}");
            assert!(width < 1.05, "{width}");
        }
    }
}

#[test]
fn interval_over_many_starts_has_nominal_coverage() {
    for (starts, blocks) in [(13, 10), (24, 5), (48, 3)] {
        let (least, greatest, _) =
            coverages(&BETWEEN, Some(starts), |_| vec![blocks; starts as usize], &[blocks; 3]);
        println!("{starts} starts of {blocks} blocks: coverage {least:.3} to {greatest:.3}");
        assert!(least >= 0.93 && greatest <= 0.97, "{least} to {greatest}");
    }
}

#[test]
fn interval_of_starts_that_differ_by_a_factor_is_positive_with_nominal_coverage() {
    const TRUE: f64 = 0.18;
    for (starts, blocks) in [(3, 20), (6, 5), (12, 10)] {
        for (interruptions, between) in [(0, 0.3), (0, 0.8), (1, 0.3), (3, 0.8)] {
            let covered = (0..TRIALS).filter(|seed| {
                let lengths = planned_starts(*seed, starts, blocks, interruptions);
                let levels = autoregressive(*seed, 0.0, lengths.len());
                let series: Vec<Vec<f64>> = series(*seed, &lengths, 0.0, Noise::Normal)
                    .into_iter()
                    .zip(levels)
                    .map(|(start, level)| {
                        let factor = TRUE * (between * level).exp();
                        start.into_iter().map(|block| factor * block).collect()
                    })
                    .collect();
                let estimate = restarts_with_interval(&series, Some(starts as u32)).unwrap();
                assert!(estimate.low.get() > 0.0, "{estimate:?}");
                (estimate.low.get()..=estimate.high.get()).contains(&TRUE)
            });
            let share = covered.count() as f64 / TRIALS as f64;
            println!(
                "{starts} starts of {blocks} blocks, {interruptions} interruptions, by e^{between}: \
                 coverage {share:.3}"
            );
            // The median over all blocks of many starts is less precise than their mean.
            assert!((0.91..=0.97).contains(&share), "{share}");
        }
    }
}

#[test]
fn inverse_ratios_have_inverse_intervals() {
    let series = series(4, &[20; 6], 0.3, Noise::Normal);
    let inverse: Vec<Vec<f64>> =
        series.iter().map(|start| start.iter().map(|block| block.recip()).collect()).collect();
    let own = restarts_with_interval(&series, None).unwrap();
    let inverse = restarts_with_interval(&inverse, None).unwrap();
    // The median of an even number is not exactly inverse.
    assert!((own.low.get() * inverse.high.get() - 1.0).abs() < 1e-3);
    assert!((own.high.get() * inverse.low.get() - 1.0).abs() < 1e-3);
}

#[test]
fn start_without_a_positive_median_has_no_interval() {
    let mut starts = vec![vec![1.0; 9]; 4];
    starts[2] = vec![0.0; 9];
    assert_eq!(restarts_with_interval(&starts, Some(4)), None);
}

#[test]
fn interval_over_starts_of_any_length_has_nominal_coverage() {
    for starts in [3, 4, 6, 9, 12] {
        let lengths = |seed| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            (0..starts).map(|_| 2 + below(&mut random, 29)).collect()
        };
        let (least, greatest, width) = coverages(&BETWEEN, Some(3), lengths, &vec![16; starts]);
        println!(
            "{starts} starts of 2 to 30 blocks: coverage {least:.3} to {greatest:.3}, width {width:.2}"
        );
        assert!(least >= 0.92 && greatest <= 0.98, "{least} to {greatest}");
    }
}

#[test]
fn interrupted_single_start_keeps_coverage_and_width() {
    for blocks in [15, 30, 100] {
        for interruptions in 0..=3 {
            let lengths = |seed| parts(seed, blocks, interruptions);
            let (least, greatest, width) = coverages(&[0.0], Some(1), lengths, &[blocks]);
            let (differing, ..) = coverages(&BETWEEN[1..], Some(1), lengths, &[blocks]);
            println!(
                "1 start of {blocks} blocks, {interruptions} interruptions: coverage {least:.3} to \
                 {greatest:.3}, width {width:.2}; if starts differ, coverage from {differing:.3}"
            );
            // Order statistics of few blocks with heavy tails cover more than nominal.
            assert!(least >= 0.92 && greatest <= 0.99, "{least} to {greatest}");
            assert!(width < 1.4, "{width}");
            assert!(interruptions < 2 || differing > 0.8 || blocks == 100, "{differing}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

    /// Over 60 series each, because the width of a single one varies.
    #[test]
    fn interrupted_and_resumed_series_is_about_as_narrow(
        planned in prop::sample::select(vec![1_usize, 3, 6]),
        blocks in 15_usize..40,
        interruptions in 1_usize..=3,
        seed in 0_u64..1_000,
    ) {
        let lengths = if planned == 1 {
            parts(seed, blocks, interruptions)
        } else {
            planned_starts(seed, planned, blocks, interruptions)
        };
        let width = |lengths: &[usize]| {
            let estimate = |seed| {
                let series = series(seed, lengths, 0.0, Noise::Normal);
                restarts_with_interval(&series, Some(planned as u32)).unwrap()
            };
            (0..60).map(|seed| estimate(seed).half_width().as_fraction()).sum::<f64>()
        };
        let uninterrupted = if planned == 1 { vec![blocks] } else { vec![blocks; planned] };
        let relative = width(&lengths) / width(&uninterrupted);
        prop_assert!(relative < 1.5, "{relative} with {lengths:?}");
    }
}

#[test]
fn interval_over_blocks_alone_has_too_little_coverage_if_starts_differ() {
    let covered = (0..TRIALS).filter(|seed| {
        let series = series(*seed, &[20; 6], 0.01, Noise::Normal);
        median_with_interval(&series.concat()).unwrap().contains_one()
    });
    let share = covered.count() as f64 / TRIALS as f64;
    assert!(share < 0.8, "{share}");
}

#[test]
fn stopping_at_a_narrow_interval_keeps_most_of_the_coverage() {
    // From 6 restarts on, check after each one; stop at ±0.5%, or after 12 restarts.
    let sequential = |all: &[Vec<f64>]| {
        (6..=12).map(|count| restarts_with_interval(&all[..count], Some(6)).unwrap()).find(
            |estimate| estimate.half_width().as_fraction() <= 0.005 || estimate.blocks == 12 * 20,
        )
    };
    for between in [0.002, 0.005, 0.01] {
        let covered = (0..TRIALS).filter(|seed| {
            let series = series(*seed, &[20; 12], between, Noise::Normal);
            sequential(&series).unwrap().contains_one()
        });
        let share = covered.count() as f64 / TRIALS as f64;
        assert!((0.915..=0.98).contains(&share), "{share} with {between}");
    }
}

#[test]
fn starts_of_similar_length_have_equal_weights() {
    let series = series(3, &[20, 19, 8, 21, 20, 18], 0.01, Noise::Normal);
    let estimate = restarts_with_interval(&series, Some(6)).unwrap();
    assert_eq!(Some(estimate.median.get()), median(&series.concat()));
    let logs: Vec<f64> = restart_medians(&series).into_iter().map(f64::ln).collect();
    let mean = logs.iter().sum::<f64>() / 6.0;
    let s = (logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / 5.0).sqrt();
    let [low, median, high] =
        [estimate.low, estimate.median, estimate.high].map(|at| at.get().ln());
    for half in [high - median, median - low] {
        assert!((half - 2.571 * s / 6_f64.sqrt()).abs() < 1e-12);
    }
    assert_eq!(estimate.starts, Some(6));
    assert_eq!(restarts_with_interval(&series, None), Some(estimate));
}

#[test]
fn short_start_far_from_the_others_barely_moves_the_estimate() {
    let mut starts = series(5, &[13, 13, 13], 0.0, Noise::Normal);
    let before = restarts_with_interval(&starts, Some(1)).unwrap();
    starts.insert(1, vec![1.012, 1.021]);
    for planned in [1, 3] {
        let after = restarts_with_interval(&starts, Some(planned)).unwrap();
        assert!((after.median.get() - before.median.get()).abs() < 0.002);
        let (narrow, wide) = (before.half_width().as_fraction(), after.half_width().as_fraction());
        assert!(wide < 1.6 * narrow, "{wide} instead of {narrow}, with {planned} planned");
    }
}

#[test]
fn parts_of_a_start_that_differ_widen_the_interval() {
    let series = series(7, &[13, 4, 13], 0.05, Noise::Normal);
    let estimate = restarts_with_interval(&series, Some(1)).unwrap();
    let over_blocks = median_with_interval(&series.concat()).unwrap();
    assert!(estimate.half_width() > over_blocks.half_width());
    assert_eq!(estimate.starts, Some(3));
}

#[test]
fn equal_blocks_have_an_interval() {
    let same = vec![vec![1.0; 9], vec![1.0; 2], vec![1.0; 9], vec![1.0; 9]];
    for planned in [None, Some(1), Some(3)] {
        let estimate = restarts_with_interval(&same, planned).unwrap();
        assert_eq!((estimate.low.get(), estimate.high.get()), (1.0, 1.0));
    }
}

#[test]
fn single_restart_gives_the_estimate_over_blocks() {
    let blocks = series(3, &[20], 0.0, Noise::Normal);
    for planned in [None, Some(1), Some(6)] {
        assert_eq!(restarts_with_interval(&blocks, planned), median_with_interval(&blocks[0]));
        assert_eq!(restarts_with_interval(&[], planned), None);
    }
}

#[test]
fn restart_medians_skip_empty_restarts() {
    assert_eq!(restart_medians(&[vec![1.0, 3.0], vec![], vec![5.0]]), [2.0, 5.0]);
}

#[test]
fn repeats_have_an_interval_that_widens_with_their_spread() {
    let ends =
        |ratios: &[f64]| interval_of_repeats(ratios).map(|(low, high)| (low.get(), high.get()));
    assert_eq!(ends(&[1.6]), None);
    assert_eq!(ends(&[1.6, 0.0]), None);
    let (low, high) = ends(&[1.60, 1.62]).unwrap();
    assert!((1.48..1.53).contains(&low) && (1.70..1.75).contains(&high), "{low} {high}");
    let (low, high) = ends(&[1.1, 1.3, 1.2]).unwrap();
    assert!((0.95..1.0).contains(&low) && (1.4..1.5).contains(&high), "{low} {high}");
}
