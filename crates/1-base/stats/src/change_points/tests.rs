use super::*;
use crate::estimate::tests::autoregressive;

/// Series of this many runs with independent normal noise of 1%: 0.6% within a run, which its interval
/// shows, and 0.8% between runs, which only the series shows.
fn series(seed: u64, runs: usize, level: impl Fn(usize) -> f64) -> Vec<Option<LogValue>> {
    let noise = autoregressive(seed, 0.0, runs);
    let value =
        |(run, noise): (usize, &f64)| LogValue { log: level(run) + 0.01 * noise, error: 0.006 };
    noise.iter().enumerate().map(value).map(Some).collect()
}

fn found(series: &[Option<LogValue>]) -> ChangePoints {
    ChangeSearch::new(series).map_or_else(ChangePoints::default, |search| search.changes(0.05, 0.0))
}

/// The number of series of which this is so.
fn count(series: u64, is_so: impl Fn(u64) -> bool) -> usize {
    (0..series).filter(|seed| is_so(*seed)).count()
}

/// The first run after the step of a series: all positions from 5 to 25 of 30 in turn.
const fn step(seed: u64) -> usize {
    5 + (seed % 21) as usize
}

/// Of steps of this size, those that are found within two runs of their position.
fn steps_found(series_of: u64, size: f64) -> usize {
    count(series_of, |seed| {
        let changes = found(&series(seed, 30, |run| if run >= step(seed) { size } else { 0.0 }));
        changes.points.iter().any(|point| point.after.abs_diff(step(seed)) <= 2)
    })
}

/// A step of two standard deviations is at the limit of what 30 runs can show: see
/// [`best_possible_method_misses_one_step_of_two_standard_deviations_in_twenty`]. One of 2.5 standard
/// deviations is found and placed.
#[test]
fn steps_are_found_within_two_runs_of_their_position() {
    let [small, large] = [0.02, 0.025].map(|size| steps_found(1_000, size));
    assert!(small >= 900, "{small} of 1,000 of two standard deviations");
    assert!(large >= 970, "{large} of 1,000 of 2.5 standard deviations");
    let hundred = steps_found(100, 0.025);
    assert!(hundred >= 95, "{hundred} of 100");
}

/// A method that knew the noise, the size of the step and the range of its positions, with 5% false
/// alarms: it alarms if the likelihood ratio of a step within two runs of one position is large
/// (Neyman and Pearson).
#[test]
fn best_possible_method_misses_one_step_of_two_standard_deviations_in_twenty() {
    const SIZE: f64 = 2.0;
    // The largest likelihood ratio of a step within two runs of a position, and the position.
    let best = |values: &[f64]| -> (f64, usize) {
        let runs = values.len() as f64;
        let mean = values.iter().sum::<f64>() / runs;
        let likelihood = |at: usize| {
            let below: f64 = values[..at].iter().map(|value| value - mean).sum();
            let spread = at as f64 * (runs - at as f64) / runs;
            (SIZE * below).cosh() * (-SIZE * SIZE * spread / 2.0).exp()
        };
        let all: Vec<f64> = (5..=25).map(likelihood).collect();
        let near = |at: usize| all[at.saturating_sub(2)..(at + 3).min(all.len())].iter().sum();
        let likeliest = (0..all.len()).map(|at| (near(at), at + 5));
        likeliest.max_by(|a, b| f64::total_cmp(&a.0, &b.0)).unwrap()
    };
    let of = |seed, at: usize| {
        let noise = autoregressive(seed, 0.0, 30).into_iter().enumerate();
        let values = noise.map(|(run, noise)| noise + if run >= at { SIZE } else { 0.0 });
        best(&values.collect::<Vec<_>>())
    };
    let mut without: Vec<f64> = (10_000..14_000).map(|seed| of(seed, 30).0).collect();
    without.sort_unstable_by(f64::total_cmp);
    let alarm = without[without.len() * 95 / 100];
    let found = count(4_000, |seed| {
        let (ratio, at) = of(seed, step(seed));
        ratio > alarm && at.abs_diff(step(seed)) <= 2
    });
    assert!((3_720..=3_840).contains(&found), "{found} of 4,000");
}

#[test]
fn series_without_a_step_rarely_have_an_alarm() {
    let alarms = |of: u64, runs: usize| {
        count(of, |seed| !found(&series(100_000 + seed, runs, |_| 0.0)).points.is_empty())
    };
    let hundred = alarms(100, 30);
    assert!(hundred <= 5, "{hundred} of 100");
    for runs in [5, 6, 8, 10, 20, 30] {
        let thousand = alarms(1_000, runs);
        assert!(thousand <= 60, "{thousand} of 1,000 with {runs} runs");
    }
}

#[test]
fn noise_between_runs_is_estimated_where_intervals_do_not_show_it() {
    for error in [0.0, 0.001, 0.01] {
        let alarms = count(1_000, |seed| {
            let mut series = series(200_000 + seed, 20, |_| 0.0);
            series.iter_mut().flatten().for_each(|value| value.error = error);
            !found(&series).points.is_empty()
        });
        assert!(alarms <= 65, "{alarms} of 1,000 with intervals of {error}");
    }
}

#[test]
fn size_and_position_have_intervals_with_coverage() {
    let (mut size, mut position, mut all) = (0, 0, 0);
    for seed in 0..1_000 {
        let changes = found(&series(seed, 30, |run| if run >= step(seed) { 0.03 } else { 0.0 }));
        let [point] = changes.points[..] else { continue };
        let Quotient { low, high, .. } = point.ratio;
        all += 1;
        size += usize::from((low.get()..=high.get()).contains(&0.03_f64.exp()));
        position += usize::from(point.earliest < step(seed) && step(seed) <= point.latest);
        assert!(point.earliest <= point.before && point.after <= point.latest, "{point:?}");
    }
    assert!(all >= 930, "{all} of 1,000 with one change");
    assert!(size * 100 >= 92 * all, "{size} of {all}");
    assert!(position * 100 >= 95 * all, "{position} of {all}");
}

#[test]
fn short_series_show_large_steps_only() {
    let steps = |runs: usize, size: f64| {
        count(200, |seed| {
            let series = series(seed, runs, |run| if run >= runs / 2 { size } else { 0.0 });
            let changes = found(&series);
            changes.points.iter().any(|point| point.after.abs_diff(runs / 2) <= 1)
        })
    };
    // Of 200: five runs have three degrees of freedom for their noise.
    let shown = [(5, 0.02), (5, 0.1), (10, 0.02), (10, 0.04)].map(|(runs, size)| steps(runs, size));
    assert!(shown[0] < 60 && shown[1] > 190, "{shown:?}");
    assert!((40..160).contains(&shown[2]) && shown[3] > 190, "{shown:?}");
    assert!(ChangeSearch::new(&series(1, 4, |_| 0.0)).is_none());
}

#[test]
fn single_outlier_is_no_change() {
    for runs in [5, 10, 30] {
        for at in [0, 1, runs / 2, runs - 2, runs - 1] {
            let alarms = count(200, |seed| {
                let outlier = |run| if run == at { 0.2 } else { 0.0 };
                let changes = found(&series(300_000 + seed, runs, outlier));
                !changes.points.is_empty()
            });
            assert!(alarms <= 14, "{alarms} of 200 with the outlier at {at} of {runs}");
        }
    }
    let changes = found(&series(1, 30, |run| if run == 7 { -0.2 } else { 0.0 }));
    assert_eq!(changes.outliers, [7]);
    assert_eq!(changes.levels.len(), 1);
}

#[test]
fn moderate_outlier_raises_alarms_only_at_the_ends() {
    let alarms = |at: usize| {
        count(1_000, |seed| {
            let outlier = |run| if run == at { 0.05 } else { 0.0 };
            !found(&series(300_000 + seed, 30, outlier)).points.is_empty()
        })
    };
    let (inside, end) = (alarms(15), alarms(29));
    assert!(inside <= 60 && end <= 160, "{inside} inside, {end} at the end, of 1,000");
}

#[test]
fn two_steps_and_a_step_back_are_two_changes() {
    let up = |run: usize| 0.03 * (run / 10) as f64;
    let back = |run: usize| if (10..20).contains(&run) { 0.03 } else { 0.0 };
    let short = |run: usize| if (13..17).contains(&run) { 0.05 } else { 0.0 };
    let both = |level: &dyn Fn(usize) -> f64, places: [usize; 2]| {
        count(200, |seed| {
            let points = found(&series(seed, 30, level)).points;
            let near = |point: &ChangePoint, place: usize| point.after.abs_diff(place) <= 2;
            points.len() == 2 && points.iter().zip(places).all(|(point, place)| near(point, place))
        })
    };
    for (shape, found) in
        [both(&up, [10, 20]), both(&back, [10, 20]), both(&short, [13, 17])].iter().enumerate()
    {
        assert!(*found >= 180, "{found} of 200 of shape {shape}");
    }
}

#[test]
fn drift_is_reported_as_steps_of_its_direction() {
    let mut total = 0;
    for seed in 0..100 {
        let points = found(&series(seed, 30, |run| 0.002 * run as f64)).points;
        assert!(points.iter().all(|point| point.ratio.ratio.get() > 1.0), "{points:?}");
        total += points.len();
    }
    assert!((150..300).contains(&total), "{total} steps of 100 drifts of six standard deviations");
}

#[test]
fn missing_and_imprecise_runs_are_skipped_and_weighted() {
    let mut series = series(4, 20, |run| if run >= 10 { 0.05 } else { 0.0 });
    series[3] = None;
    series[9] = None;
    series[15].as_mut().unwrap().error = 0.5;
    series[15].as_mut().unwrap().log = 0.0;
    let changes = found(&series);
    assert_eq!(changes.points.len(), 1, "{changes:?}");
    assert_eq!((changes.points[0].before, changes.points[0].after), (8, 10));
    assert_eq!((changes.levels[0].first, changes.levels[1].last), (0, 19));
}

#[test]
fn change_below_the_least_size_is_none() {
    let series = series(1, 30, |run| if run >= 15 { 0.03 } else { 0.0 });
    let changes = |least| ChangeSearch::new(&series).unwrap().changes(0.05, least);
    assert_eq!(changes(0.02).points.len(), 1);
    assert!(changes(0.04).points.is_empty());
}

#[test]
fn constant_series_has_no_change_and_an_exact_step_is_certain() {
    let exact = |level: &dyn Fn(usize) -> f64| -> Vec<Option<LogValue>> {
        (0..10).map(|run| Some(LogValue { log: level(run), error: 0.0 })).collect()
    };
    assert!(found(&exact(&|_| 0.3)).points.is_empty());
    let changes = found(&exact(&|run| if run >= 4 { 0.1 } else { 0.3 }));
    assert_eq!(changes.points.len(), 1, "{changes:?}");
    assert_eq!((changes.points[0].earliest, changes.points[0].latest), (3, 4));
}

#[test]
fn of_many_series_few_changes_are_false() {
    // 40 series, 10 of them with a step.
    let (mut wrong, mut right, mut all) = (0, 0, 0);
    for trial in 0..30 {
        let searches: Vec<ChangeSearch> = (0..40)
            .map(|number| {
                let level = |run| if number < 10 && run >= 15 { 0.025 } else { 0.0 };
                ChangeSearch::new(&series(400_000 + trial * 100 + number, 30, level)).unwrap()
            })
            .collect();
        let p_values: Vec<f64> = searches.iter().map(ChangeSearch::p_value).collect();
        let level = false_discovery_level(&p_values, 0.05);
        for (number, search) in searches.iter().enumerate() {
            if !search.changes(level, 0.0).points.is_empty() {
                all += 1;
                *(if number < 10 { &mut right } else { &mut wrong }) += 1;
            }
        }
    }
    assert!(right >= 280, "{right} of 300 are found");
    assert!(wrong * 100 <= 6 * all, "{wrong} of {all} are false");
}

#[test]
fn level_of_false_discoveries_is_that_of_benjamini_and_hochberg() {
    // The example of the paper, table 1: four of 15 are significant.
    let p_values = [
        0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262,
        0.5719, 0.6528, 0.7590, 1.0,
    ];
    assert!((false_discovery_level(&p_values, 0.05) - 0.05 * 4.0 / 15.0).abs() < 1e-12);
    assert!((false_discovery_level(&[0.04], 0.05) - 0.05).abs() < 1e-12);
    assert!((false_discovery_level(&[0.9, 0.8], 0.05) - 0.025).abs() < 1e-12);
}
