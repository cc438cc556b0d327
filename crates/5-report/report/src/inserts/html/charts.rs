//! Charts of a step over time: throughput, and the worst response time of each second.

use dbdyno_types::insert::Second;
use dbdyno_units::Nanos;
use maud::{Markup, html};

use crate::figures::compact;
use crate::html::marker::Marker;
use crate::html::plot::{Plot, coordinate, polyline};
use crate::html::scale::{Scale, axis_label};
use crate::inserts::figures::SHORTEST;
use crate::model::{StepReport, StepRun};

const PLOT: Plot =
    Plot { width: 560.0, height: 190.0, left: 50.0, right: 538.0, top: 14.0, bottom: 160.0 };

/// More points make no line clearer.
const MAX_POINTS: usize = 500;

/// Steps of fewer seconds have no charts.
const MIN_SECONDS: usize = 3;

/// Draws all charts of a step.
pub(super) fn render(step: &StepReport) -> Markup {
    let runs = step.candidates.iter().flat_map(|one| &one.repeats);
    if runs.map(|run| run.seconds.len()).max().is_none_or(|longest| longest < MIN_SECONDS) {
        return Markup::default();
    }
    let per_second = |amount: f64, second: &Second| amount / second.elapsed.as_secs_f64().max(1e-9);
    let millis = |time: Option<Nanos>| time.map(Nanos::as_millis_f64);
    let chart = |title, logarithmic, stalls, value: &dyn Fn(&Second) -> Option<f64>| {
        Chart { step, title, logarithmic, stalls, value }.draw()
    };
    html! {
        div.charts.overtime {
            @if step.queries {
                (chart("queries/s", false, false, &|s| Some(per_second(s.queries as f64, s))))
                (chart("worst query, ms", true, false, &|s| millis(s.query_worst)))
            }
            @if step.inserts {
                (chart("rows inserted/s", false, true, &|s| {
                    Some(per_second(s.inserts as f64, s))
                }))
                (chart("worst insert, ms, from the scheduled time", true, true, &|s| {
                    millis(s.insert_worst)
                }))
            }
            (chart("CPU of the system under test, %", false, false, &|s| {
                Some(100.0 * per_second(s.system?.cpu.as_secs_f64(), s))
            }))
            (chart("written to the device, MB/s", false, false, &|s| {
                Some(per_second(s.device?.written.as_bytes() as f64 / 1e6, s))
            }))
        }
    }
}

struct Chart<'a> {
    step: &'a StepReport,
    title: &'static str,
    logarithmic: bool,
    /// Whether write stalls are marked in it.
    stalls: bool,
    value: &'a dyn Fn(&Second) -> Option<f64>,
}

/// A candidate's repeat as points: seconds and values.
struct Line<'a> {
    marker: Marker,
    name: &'a str,
    run: &'a StepRun,
    points: Vec<(f64, f64)>,
}

impl Chart<'_> {
    fn lines(&self) -> Vec<Line<'_>> {
        let mut lines = Vec::new();
        for candidate in &self.step.candidates {
            for run in &candidate.repeats {
                let points: Vec<(f64, f64)> = run
                    .seconds
                    .iter()
                    // A second that was cut off would end every line with a drop.
                    .filter(|second| second.elapsed >= SHORTEST)
                    .filter_map(|s| Some((f64::from(s.number) + 0.5, (self.value)(s)?)))
                    .collect();
                if !points.is_empty() {
                    let marker = Marker::new(candidate.index, candidate.role);
                    lines.push(Line { marker, name: &candidate.candidate, run, points });
                }
            }
        }
        lines
    }

    /// Draws the chart; nothing if all values are 0.
    fn draw(&self) -> Markup {
        let lines = self.lines();
        let values = || lines.iter().flat_map(|line| line.points.iter().map(|(_, value)| *value));
        if values().all(|value| value <= 0.0) {
            return Markup::default();
        }
        let seconds = lines.iter().flat_map(|line| line.points.iter().map(|(second, _)| *second));
        let end = seconds.map(|second| second + 0.5).fold(1.0, f64::max);
        let axis = match self.logarithmic {
            true => VerticalAxis::logarithmic(values()),
            false => VerticalAxis::Linear(Scale::from_zero(values())),
        };
        let x = |second: f64| PLOT.left + second / end * (PLOT.right - PLOT.left);
        let y = |value: f64| PLOT.y(axis.position(value));
        let content = html! {
            @for value in axis.ticks() { (PLOT.horizontal("tick", y(value), &axis_label(value))) }
            @for second in time_ticks(end) {
                (PLOT.label_below(x(second), 15.0, &format!("{second:.0} s")))
            }
            @for line in &lines {
                g.{ (line.marker.class()) } {
                    title { (line.name) ", repeat " (line.run.repeat) }
                    (polyline(thinned(&line.points).into_iter().map(|(s, v)| (x(s), y(v)))))
                }
            }
            @if self.stalls {
                @for line in &lines {
                    @for second in &line.run.stalls {
                        (stall(line.name, *second, x(f64::from(*second) + 0.5)))
                    }
                }
            }
        };
        PLOT.figure(self.title, &self.describe(&lines), content)
    }

    /// The chart in words.
    fn describe(&self, lines: &[Line<'_>]) -> String {
        let words: Vec<String> = lines
            .iter()
            .map(|line| {
                let least = line.points.iter().map(|(_, v)| *v).fold(f64::INFINITY, f64::min);
                let most = line.points.iter().map(|(_, v)| *v).fold(0.0, f64::max);
                format!("{} between {} and {}", line.name, compact(least), compact(most))
            })
            .collect();
        format!("{} in {}: {}", self.title, self.step.name, words.join("; "))
    }
}

/// A write stall: a line over the height of the plot, and a triangle above it.
fn stall(name: &str, second: u32, x: f64) -> Markup {
    let x = coordinate(x);
    html! {
        g.stall {
            title { (name) ": write stall in second " (second) }
            line x1=(x) x2=(x) y1=(PLOT.top) y2=(PLOT.bottom) {}
            path d={ "M" (x) " " (coordinate(PLOT.top - 1.0)) "l-4 -7h8z" } {}
        }
    }
}

/// The vertical axis.
enum VerticalAxis {
    Linear(Scale),
    /// The exponents of the powers of ten at the ends.
    Logarithmic(f64, f64),
}

impl VerticalAxis {
    fn logarithmic(values: impl Iterator<Item = f64>) -> Self {
        let positive = values.filter(|value| *value > 0.0).map(f64::log10);
        let (low, high) =
            positive.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        let (low, high) = (low.floor(), high.ceil());
        Self::Logarithmic(low, if high > low { high } else { low + 1.0 })
    }

    /// The position of a value, from 0 at the bottom to 1.
    fn position(&self, value: f64) -> f64 {
        match self {
            Self::Linear(scale) => scale.clamped(value) / 100.0,
            Self::Logarithmic(low, high) if value > 0.0 => {
                ((value.log10() - low) / (high - low)).clamp(0.0, 1.0)
            }
            Self::Logarithmic(..) => 0.0,
        }
    }

    fn ticks(&self) -> Vec<f64> {
        match self {
            Self::Linear(scale) => scale.ticks().into_iter().map(|(value, _)| value).collect(),
            Self::Logarithmic(low, high) => {
                (*low as i32..=*high as i32).map(|power| 10_f64.powi(power)).collect()
            }
        }
    }
}

/// Round seconds on the time axis.
fn time_ticks(end: f64) -> Vec<f64> {
    const STEPS: [f64; 12] =
        [1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0];
    let step = STEPS.into_iter().find(|step| end / step <= 8.0).unwrap_or(end / 6.0);
    (0..=(end / step) as u32).map(|n| f64::from(n) * step).collect()
}

/// At most [`MAX_POINTS`] points. The least and the greatest of neighbouring seconds are kept, so that
/// no stall is lost.
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

    #[test]
    fn logarithmic_axis_covers_its_values() {
        let axis = VerticalAxis::logarithmic([0.3, 2_000.0].into_iter());
        assert_eq!(axis.position(0.1), 0.0);
        assert_eq!(axis.position(10_000.0), 1.0);
        let labels: Vec<String> = axis.ticks().into_iter().map(axis_label).collect();
        assert_eq!(labels, ["0.1", "1", "10", "100", "1k", "10k"]);
        assert_eq!(VerticalAxis::logarithmic([5.0].into_iter()).position(5.0), 5.0_f64.log10());
    }
}
