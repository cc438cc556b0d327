//! Charts of a step over time.

use dbdyno_types::insert::Second;
use dbdyno_units::Nanos;

use super::{mark, runs};
use crate::assemble::inserts::SHORTEST;
use crate::charts::{Axis, LabelStyle, Line, LineChart, Plot, Point, Scale};
use crate::figures::compact;
use crate::model::StepReport;
use crate::words::joined;

const PLOT: Plot =
    Plot { width: 560.0, height: 190.0, left: 50.0, right: 538.0, top: 14.0, bottom: 160.0 };

/// Maximum number of points of a line.
const MAX_POINTS: usize = 500;

/// Steps with fewer seconds have no charts.
const MIN_SECONDS: usize = 3;

/// Throughput, the worst response time of each second, and what it costs, over time.
pub(super) fn charts(step: &StepReport) -> Vec<LineChart> {
    if runs(step).all(|(_, run)| run.seconds.len() < MIN_SECONDS) {
        return Vec::new();
    }
    let per_second = |amount: f64, second: &Second| amount / second.elapsed.as_secs_f64().max(1e-9);
    let millis = |time: Option<Nanos>| time.map(Nanos::as_millis_f64);
    let mut charts = Vec::new();
    let mut add = |title, logarithmic, stalls, value: &dyn Fn(&Second) -> Option<f64>| {
        charts.extend(chart(step, title, (logarithmic, stalls), value));
    };
    if step.queries {
        add("queries/s", false, false, &|s| Some(per_second(s.queries as f64, s)));
        add("worst query, ms", true, false, &|s| millis(s.query_worst));
    }
    if step.inserts {
        add("rows inserted/s", false, true, &|s| Some(per_second(s.inserts as f64, s)));
        let worst = "worst insert, ms, from the scheduled time";
        add(worst, true, true, &|s| millis(s.insert_worst));
    }
    add("CPU of the system under test, %", false, false, &|s| {
        Some(100.0 * per_second(s.system?.cpu.as_secs_f64(), s))
    });
    add("written to the device, MB/s", false, false, &|s| {
        Some(per_second(s.device?.written.as_bytes() as f64 / 1e6, s))
    });
    charts
}

/// `None` if all values are 0.
fn chart(
    step: &StepReport,
    title: &'static str,
    (logarithmic, with_stalls): (bool, bool),
    value: &dyn Fn(&Second) -> Option<f64>,
) -> Option<LineChart> {
    let runs = runs(step).map(|(candidate, run)| {
        // A second that was cut off would end every line with a drop.
        let seconds = run.seconds.iter().filter(|second| second.elapsed >= SHORTEST);
        let points = seconds.filter_map(|s| Some((f64::from(s.number) + 0.5, value(s)?)));
        (candidate, run, points.collect::<Vec<(f64, f64)>>())
    });
    let runs: Vec<_> = runs.filter(|(.., points)| !points.is_empty()).collect();
    let values = || runs.iter().flat_map(|(.., points)| points.iter().map(|(_, value)| *value));
    if values().all(|value| value <= 0.0) {
        return None;
    }
    let ends = runs.iter().flat_map(|(.., points)| points.iter().map(|(second, _)| *second + 0.5));
    let end = ends.fold(1.0, f64::max);
    let words = runs.iter().map(|(candidate, _, points)| {
        let least = points.iter().map(|(_, v)| *v).fold(f64::INFINITY, f64::min);
        let most = points.iter().map(|(_, v)| *v).fold(0.0, f64::max);
        format!("{} between {} and {}", candidate.candidate, compact(least), compact(most))
    });
    let words = joined(words, "; ").unwrap_or_default();
    let point = |(second, value): (f64, f64)| Point { at: second / end, value, ..Point::default() };
    let lines = runs.iter().map(|(candidate, run, points)| Line {
        mark: mark(candidate),
        title: format!("{}, repeat {}", candidate.candidate, run.repeat),
        points: thinned(points).into_iter().map(point).collect(),
    });
    let stalls = runs.iter().filter(|_| with_stalls).flat_map(|(candidate, run, _)| {
        run.stalls.iter().map(move |second| {
            let title = format!("{}: write stall in second {second}", candidate.candidate);
            ((f64::from(*second) + 0.5) / end, title)
        })
    });
    Some(LineChart {
        title: title.to_owned(),
        description: format!("{title} in {}: {words}", step.name),
        plot: PLOT,
        margins: (0.0, 0.0),
        axis: match logarithmic {
            true => Axis::logarithmic(values()),
            false => Axis::Linear(Scale::from_zero(values())),
        },
        labels: time_ticks(end).into_iter().map(|at| (at / end, format!("{at:.0} s"))).collect(),
        style: LabelStyle::Bare,
        below: "",
        noise: None,
        lines: lines.collect(),
        stalls: stalls.collect(),
    })
}

fn time_ticks(end: f64) -> Vec<f64> {
    const STEPS: [f64; 12] =
        [1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0];
    let step = STEPS.into_iter().find(|step| end / step <= 8.0).unwrap_or(end / 6.0);
    (0..=(end / step) as u32).map(|n| f64::from(n) * step).collect()
}

/// The extremes of equal parts of a line with too many points.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= MAX_POINTS {
        return points.to_vec();
    }
    let length = points.len().div_ceil(MAX_POINTS / 2);
    let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
    let mut thinned = Vec::new();
    for chunk in points.chunks(length) {
        let ends = chunk.iter().min_by(by_value).zip(chunk.iter().max_by(by_value));
        let Some((least, most)) = ends else { continue };
        let (first, second) = if least.0 <= most.0 { (least, most) } else { (most, least) };
        thinned.push(*first);
        if first != second {
            thinned.push(*second);
        }
    }
    thinned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinned_line_keeps_stall_of_one_second() {
        let points: Vec<(f64, f64)> = (0..3600)
            .map(|n| (f64::from(n), if n == 1_234 { 0.0 } else { 100.0 + f64::from(n % 7) }))
            .collect();
        let thinned = thinned(&points);
        assert!(thinned.len() <= MAX_POINTS, "{}", thinned.len());
        assert!(thinned.contains(&(1_234.0, 0.0)));
        assert!(thinned.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn time_ticks_are_round() {
        assert_eq!(time_ticks(7.0), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        assert_eq!(time_ticks(60.0), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
        assert!(time_ticks(100_000.0).len() <= 15);
    }
}
