//! Charts of a step over time: throughput, and the worst response time of each second.

use std::fmt::Write;

use dbdyno_record::insert::Second;
use dbdyno_units::Nanos;

use crate::figures::compact;
use crate::html::escape::esc;
use crate::html::marks;
use crate::html::scale::Scale;
use crate::inserts::figures::SHORTEST;
use crate::inserts::model::{StepReport, StepRun};

/// The drawing's size, about that of the page's columns: text keeps its size.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 190.0;

/// The plot within it: left, right, top, bottom.
const PLOT: (f64, f64, f64, f64) = (50.0, 538.0, 14.0, 160.0);

/// More points than this make no line clearer.
const MOST_POINTS: usize = 500;

/// Fewer seconds than this make no chart.
const FEWEST: usize = 3;

/// All charts of a step.
pub(super) fn render(step: &StepReport) -> String {
    let longest =
        step.candidates.iter().flat_map(|one| &one.repeats).map(|run| run.seconds.len()).max();
    if longest.is_none_or(|longest| longest < FEWEST) {
        return String::new();
    }
    let rate =
        |count: u64, second: &Second| Some(count as f64 / second.elapsed.as_secs_f64().max(1e-9));
    let millis = |time: Option<Nanos>| time.map(Nanos::as_millis_f64);
    let mut charts = String::new();
    let mut add = |title, logarithmic, stalls, value: &dyn Fn(&Second) -> Option<f64>| {
        charts.push_str(&Chart { step, title, logarithmic, stalls, value }.draw());
    };
    if step.asks {
        add("queries/s", false, false, &|s| rate(s.queries, s));
        add("worst query, ms", true, false, &|s| millis(s.query_worst));
    }
    if step.inserts {
        add("rows inserted/s", false, true, &|s| rate(s.inserts, s));
        add("worst insert, ms, from when it was due", true, true, &|s| millis(s.insert_worst));
    }
    add("CPU of the system, %", false, false, &|s| {
        Some(100.0 * s.system?.cpu.as_secs_f64() / s.elapsed.as_secs_f64().max(1e-9))
    });
    add("written to the device, MB/s", false, false, &|s| {
        Some(s.device?.written.as_bytes() as f64 / 1e6 / s.elapsed.as_secs_f64().max(1e-9))
    });
    format!("<div class=\"charts overtime\">\n{charts}</div>\n")
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
    class: String,
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
                    let class = marks::class(candidate.place, candidate.role);
                    lines.push(Line { class, name: &candidate.candidate, run, points });
                }
            }
        }
        lines
    }

    fn draw(&self) -> String {
        let lines = self.lines();
        let values = || lines.iter().flat_map(|line| line.points.iter().map(|(_, value)| *value));
        if values().all(|value| value <= 0.0) {
            return String::new();
        }
        let end = lines
            .iter()
            .flat_map(|line| line.points.iter().map(|(second, _)| second + 0.5))
            .fold(1.0, f64::max);
        let vertical = if self.logarithmic {
            Vertical::logarithmic(values())
        } else {
            Vertical::Linear(Scale::from_zero(values()))
        };
        let (left, right, top, bottom) = PLOT;
        let x = |second: f64| left + second / end * (right - left);
        let y = |value: f64| bottom - vertical.place(value) * (bottom - top);
        let mut out = format!(
            "<figure>\n<figcaption>{}</figcaption>\n<svg class=\"over\" role=\"img\" \
             viewBox=\"0 0 {WIDTH} {HEIGHT}\" aria-label=\"{}\">",
            esc(self.title),
            esc(&self.describe(&lines))
        );
        for (value, label) in vertical.ticks() {
            let y = y(value);
            let _ = write!(
                out,
                "<line class=\"tick\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                left - 6.0,
                y + 3.5
            );
        }
        for second in marks_of_time(end) {
            let x = x(second);
            let _ = write!(
                out,
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{} s</text>",
                bottom + 15.0,
                compact_seconds(second)
            );
        }
        for line in &lines {
            let points: Vec<String> = thinned(&line.points)
                .into_iter()
                .map(|(second, value)| format!("{:.1},{:.1}", x(second), y(value)))
                .collect();
            let _ = write!(
                out,
                "<g class=\"{}\"><title>{}, repeat {}</title><polyline points=\"{}\"/></g>",
                line.class,
                esc(line.name),
                line.run.repeat,
                points.join(" ")
            );
        }
        if self.stalls {
            out.push_str(&self.stalls(&lines, x));
        }
        out.push_str("</svg>\n</figure>\n");
        out
    }

    /// A mark above the plot for each write stall.
    fn stalls(&self, lines: &[Line<'_>], x: impl Fn(f64) -> f64) -> String {
        let (_, _, top, bottom) = PLOT;
        let mut out = String::new();
        for line in lines {
            for second in &line.run.stalls {
                let x = x(f64::from(*second) + 0.5);
                let _ = write!(
                    out,
                    "<g class=\"stall\"><title>{}: write stall in second {second}</title><line \
                     x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/><path \
                     d=\"M{x:.1} {:.1}l-4 -7h8z\"/></g>",
                    esc(line.name),
                    top - 1.0
                );
            }
        }
        out
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

/// The vertical axis.
enum Vertical {
    Linear(Scale),
    /// Powers of ten, from and to.
    Logarithmic(f64, f64),
}

impl Vertical {
    fn logarithmic(values: impl Iterator<Item = f64>) -> Self {
        let positive = values.filter(|value| *value > 0.0).map(f64::log10);
        let (low, high) =
            positive.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        let (low, high) = (low.floor(), high.ceil());
        Self::Logarithmic(low, if high > low { high } else { low + 1.0 })
    }

    /// The place of a value, from 0 at the bottom to 1.
    fn place(&self, value: f64) -> f64 {
        match self {
            Self::Linear(scale) => scale.clamped(value) / 100.0,
            Self::Logarithmic(low, high) if value > 0.0 => {
                ((value.log10() - low) / (high - low)).clamp(0.0, 1.0)
            }
            Self::Logarithmic(..) => 0.0,
        }
    }

    fn ticks(&self) -> Vec<(f64, String)> {
        match self {
            Self::Linear(scale) => {
                scale.ticks().into_iter().map(|(value, _)| (value, short(value))).collect()
            }
            Self::Logarithmic(low, high) => (*low as i32..=*high as i32)
                .map(|power| 10_f64.powi(power))
                .map(|value| (value, short(value)))
                .collect(),
        }
    }
}

/// A round amount without zeros behind the point.
fn short(value: f64) -> String {
    if value > 0.0 && value < 0.01 {
        return format!("{value}");
    }
    let text = compact(value);
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (digits, letter) = text.split_at(at);
    let digits = match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    };
    format!("{digits}{letter}")
}

/// Round seconds on the axis of time.
fn marks_of_time(end: f64) -> Vec<f64> {
    const STEPS: [f64; 12] =
        [1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0];
    let step = STEPS.into_iter().find(|step| end / step <= 8.0).unwrap_or(end / 6.0);
    (0..=(end / step) as u32).map(|n| f64::from(n) * step).collect()
}

fn compact_seconds(second: f64) -> String {
    format!("{second:.0}")
}

/// At most so many points: of the seconds of each piece the least and the greatest stay, so that
/// no stall is lost.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= MOST_POINTS {
        return points.to_vec();
    }
    let piece = points.len().div_ceil(MOST_POINTS / 2);
    let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
    let mut thinned = Vec::new();
    for chunk in points.chunks(piece) {
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
    fn a_stall_of_one_second_in_an_hour_stays_in_the_line() {
        let points: Vec<(f64, f64)> = (0..3600)
            .map(|n| (f64::from(n), if n == 1_234 { 0.0 } else { 100.0 + f64::from(n % 7) }))
            .collect();
        let thinned = thinned(&points);
        assert!(thinned.len() <= MOST_POINTS, "{}", thinned.len());
        assert!(thinned.contains(&(1_234.0, 0.0)));
        assert!(thinned.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn times_on_the_axis_are_round() {
        assert_eq!(marks_of_time(7.0), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        assert_eq!(marks_of_time(60.0), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
        assert!(marks_of_time(100_000.0).len() <= 15);
    }

    #[test]
    fn a_logarithmic_axis_covers_its_values() {
        let axis = Vertical::logarithmic([0.3, 2_000.0].into_iter());
        assert_eq!(axis.place(0.1), 0.0);
        assert_eq!(axis.place(10_000.0), 1.0);
        let labels: Vec<String> = axis.ticks().into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["0.1", "1", "10", "100", "1k", "10k"]);
        assert_eq!(Vertical::logarithmic([5.0].into_iter()).place(5.0), 5.0_f64.log10());
    }
}
