//! A chart of one group or microbenchmark over the runs.

use dbdyno_stats::{ChangePoint, Level};
use maud::{Markup, html};

use super::sections::{interval, level_text, mark, size, with_interval, with_p};
use super::{FigureHistory, History};
use crate::figures::ratio;
use crate::html::charts::{Plot, Scale, coordinate};
use crate::html::document::{colour, shape};

/// As wide as a narrow window, so that text has its size there; several fit side by side in a wide one.
const PLOT: Plot =
    Plot { width: 360.0, height: 220.0, left: 46.0, right: 352.0, top: 10.0, bottom: 196.0 };

/// Units between the markers of candidates in the same run, where there is space.
const APART: f64 = 3.0;

/// The markers of a run take up at most this share of the distance between runs, so that they are not
/// taken for those of the next one.
const SPREAD: f64 = 0.6;

/// Units between the ends of the axis and the first and the last run.
const MARGIN: f64 = 10.0;

/// Units that a date needs.
const DATE: f64 = 64.0;

/// The chart with a line per candidate.
pub(super) fn draw(history: &History, title: &str, lines: &[&FigureHistory]) -> Markup {
    let chart = Chart { history, lines, scale: scale(lines) };
    let content = html! {
        @for (value, label) in chart.scale.ticks() {
            (PLOT.horizontal(chart.scale.line_class(value), chart.y(value), &label))
        }
        (chart.dates())
        @for (number, line) in lines.iter().enumerate() {
            g.{ (colour(mark(history, &line.figure.candidate))) } {
                (chart.levels(number, line))
                @for run in 0..line.values.len() { (chart.value(number, line, run)) }
                @for point in &line.points { (chart.change(line, point)) }
            }
        }
    };
    PLOT.figure(title, &chart.describe(title), content)
}

/// An axis that covers the values except those that were left out; these and intervals may be cut off.
fn scale(lines: &[&FigureHistory]) -> Scale {
    let used = |line: &&FigureHistory| -> Vec<f64> {
        let values = line.values.iter().enumerate();
        values
            .filter(|(run, _)| !line.outliers.contains(run))
            .filter_map(|(_, value)| Some((*value)?.ratio.get()))
            .collect()
    };
    Scale::covering(lines.iter().flat_map(used))
}

/// Units between two runs.
fn distance(runs: usize) -> f64 {
    (PLOT.right - PLOT.left - 2.0 * MARGIN) / runs.saturating_sub(1).max(1) as f64
}

/// Units between the markers of `lines` candidates in the same run.
fn apart(lines: usize, runs: usize) -> f64 {
    let spread = (SPREAD * distance(runs)).min(2.0 * MARGIN);
    APART.min(spread / lines.saturating_sub(1).max(1) as f64)
}

struct Chart<'a> {
    history: &'a History,
    lines: &'a [&'a FigureHistory],
    scale: Scale,
}

impl Chart<'_> {
    fn y(&self, value: f64) -> f64 {
        PLOT.y(self.scale.clamped(value) / 100.0)
    }

    /// The horizontal coordinate of a run: all have the same distance.
    fn x(&self, run: f64) -> f64 {
        PLOT.left + MARGIN + run * distance(self.history.runs.len())
    }

    /// The same for the marker of a line.
    fn x_of(&self, line: usize, run: usize) -> f64 {
        let middle = (self.lines.len() - 1) as f64 / 2.0;
        let apart = apart(self.lines.len(), self.history.runs.len());
        self.x(run as f64) + apart * (line as f64 - middle)
    }

    /// The dates of the changes, and of the first and the last run, where there is space.
    fn dates(&self) -> Markup {
        let changes = self.lines.iter().flat_map(|line| &line.points).map(|point| point.after);
        let ends = [0, self.history.runs.len() - 1];
        let mut shown: Vec<(usize, f64)> = Vec::new();
        for run in changes.chain(ends) {
            let x = self.x(run as f64).clamp(PLOT.left + DATE / 2.0, PLOT.right - DATE / 2.0);
            if shown.iter().all(|(_, other)| (x - other).abs() >= DATE) {
                shown.push((run, x));
            }
        }
        html! {
            @for (run, x) in shown { (PLOT.label_below(x, 15.0, self.history.runs[run].date())) }
        }
    }

    fn levels(&self, number: usize, line: &FigureHistory) -> Markup {
        let ends = |level: &Level| {
            [self.x_of(number, level.first), self.x_of(number, level.last)].map(coordinate)
        };
        html! {
            @for level in &line.levels {
                @let ([from, to], y) = (ends(level), coordinate(self.y(level.ratio.ratio.get())));
                line.level x1=(from) x2=(to) y1=(y) y2=(y) {
                    title { (line.figure.candidate) ": " (level_text(level)) }
                }
            }
        }
    }

    fn value(&self, number: usize, line: &FigureHistory, run: usize) -> Markup {
        let Some(value) = line.values[run] else { return Markup::default() };
        let x = coordinate(self.x_of(number, run));
        let y = |ratio: dbdyno_units::Ratio| coordinate(self.y(ratio.get()));
        let left_out = line.outliers.contains(&run);
        let at = &self.history.runs[run];
        html! {
            g class=[left_out.then_some("bound")] {
                title {
                    (line.figure.candidate) ", " (at.label) ", " (at.date()) ": "
                    (with_interval(value.ratio, value.interval))
                    @if left_out { ", left out" }
                }
                @if let Some((low, high)) = value.interval {
                    line.whisker x1=(x) x2=(x) y1=(y(low)) y2=(y(high)) {}
                }
                use href=(shape(mark(self.history, &line.figure.candidate)))
                    transform={ "translate(" (x) " " (y(value.ratio)) ") scale(.6)" } {}
            }
        }
    }

    fn change(&self, line: &FigureHistory, point: &ChangePoint) -> Markup {
        let x = coordinate(self.x((point.before + point.after) as f64 / 2.0));
        let [from, to] = [point.before, point.after].map(|run| &self.history.runs[run].label);
        html! {
            line.change x1=(x) x2=(x) y1=(PLOT.top) y2=(PLOT.bottom) {
                title {
                    (line.figure.candidate) " between " (from) " and " (to) ": "
                    (size(point)) " (" (interval(point)) "), "
                    (with_p(point.p_value))
                }
            }
        }
    }

    /// The chart in words: where each line ends, and its changes.
    fn describe(&self, title: &str) -> String {
        let line = |line: &&FigureHistory| {
            let last = line.values.iter().flatten().last()?;
            let changes: Vec<String> = line
                .points
                .iter()
                .map(|point| {
                    let date = self.history.runs[point.after].date();
                    format!(", {} on {date}", size(point))
                })
                .collect();
            let end = ratio(last.ratio);
            Some(format!("{} {end} at the end{}", line.figure.candidate, changes.concat()))
        };
        let lines: Vec<String> = self.lines.iter().filter_map(line).collect();
        format!("{title}: {}", lines.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_of_many_candidates_stay_at_their_run_and_in_the_plot() {
        for lines in [1, 2, 8, 30] {
            for runs in [2, 5, 12, 100] {
                let spread = apart(lines, runs) * (lines - 1) as f64;
                assert!(spread < distance(runs), "{lines} lines, {runs} runs");
                assert!(spread / 2.0 <= MARGIN, "{lines} lines, {runs} runs");
            }
        }
        assert_eq!(apart(3, 12), APART);
    }
}
