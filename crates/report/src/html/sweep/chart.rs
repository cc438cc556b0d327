//! One chart: lines over the number of clients.

use std::fmt::Write;

use super::super::escape::esc;
use super::super::scale::Scale;
use crate::figures::compact;
use crate::metric::clients;

/// The drawing's size, about that of the page's columns: text keeps its size.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 220.0;

/// The plot within it: left, right, top, bottom.
const PLOT: (f64, f64, f64, f64) = (46.0, 348.0, 10.0, 190.0);

pub(super) struct Chart<'a, W> {
    pub(super) title: String,
    /// The numbers of clients, in ascending order.
    pub(super) axis: &'a [u32],
    pub(super) scale: Scale,
    pub(super) series: Vec<Series>,
    /// How a value is written.
    pub(super) write: W,
}

/// A candidate's line.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) class: String,
    pub(super) shape: String,
    pub(super) points: Vec<Point>,
}

pub(super) struct Point {
    pub(super) clients: u32,
    pub(super) value: f64,
    pub(super) spread: Option<(f64, f64)>,
    /// Whether the load generator was the limit here.
    pub(super) bound: bool,
}

/// An amount on an axis: without zeros behind the point, which say nothing about a round number.
fn short(value: f64) -> String {
    let text = compact(value);
    let (digits, letter) = match text.find(|c: char| c.is_ascii_alphabetic()) {
        Some(at) => text.split_at(at),
        None => (text.as_str(), ""),
    };
    let digits = match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    };
    format!("{digits}{letter}")
}

impl<W: Fn(f64) -> String> Chart<'_, W> {
    /// Draws the chart; nothing without a point.
    pub(super) fn draw(&self) -> String {
        if self.series.is_empty() {
            return String::new();
        }
        let (left, right, top, bottom) = PLOT;
        let title = esc(&self.title);
        let mut out = format!(
            "<figure>\n<figcaption>{title}</figcaption>\n<svg class=\"over\" role=\"img\" \
             viewBox=\"0 0 {WIDTH} {HEIGHT}\" aria-label=\"{}\">",
            esc(&self.describe())
        );
        for (value, label) in self.scale.ticks() {
            let y = self.y(value);
            let one = self.scale.is_of_ratios() && (value - 1.0).abs() < 1e-9;
            let class = if one { "one" } else { "tick" };
            let label = if self.scale.is_of_ratios() { label } else { short(value) };
            let _ = write!(
                out,
                "<line class=\"{class}\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                left - 6.0,
                y + 3.5
            );
        }
        for count in self.axis {
            let x = self.x(*count);
            let _ = write!(
                out,
                "<line class=\"tick\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{count}</text>",
                bottom + 15.0
            );
        }
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">clients</text>",
            left.midpoint(right),
            bottom + 28.0
        );
        for series in &self.series {
            out.push_str(&self.line(series));
        }
        out.push_str("</svg>\n</figure>\n");
        out
    }

    fn line(&self, series: &Series) -> String {
        let place = |point: &Point| (self.x(point.clients), self.y(point.value));
        let path: Vec<String> = series
            .points
            .iter()
            .map(|point| {
                let (x, y) = place(point);
                format!("{x:.1},{y:.1}")
            })
            .collect();
        let mut out =
            format!("<g class=\"{}\"><polyline points=\"{}\"/>", series.class, path.join(" "));
        for point in &series.points {
            let (x, y) = place(point);
            let bound = if point.bound { " class=\"bound\"" } else { "" };
            let _ = write!(out, "<g{bound}><title>{}</title>", esc(&self.words(series, point)));
            if let Some((low, high)) = point.spread {
                let (low, high) = (self.y(low), self.y(high));
                let _ = write!(
                    out,
                    "<line class=\"whisker\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{low:.1}\" \
                     y2=\"{high:.1}\"/>"
                );
            }
            let _ = write!(out, "<use href=\"#{}\" x=\"{x:.1}\" y=\"{y:.1}\"/></g>", series.shape);
        }
        out.push_str("</g>");
        out
    }

    fn words(&self, series: &Series, point: &Point) -> String {
        let write = &self.write;
        let spread = point.spread.map_or_else(String::new, |(low, high)| {
            format!(" ({} to {})", write(low), write(high))
        });
        let bound = if point.bound { ", client-bound" } else { "" };
        let value = write(point.value);
        format!("{}, {}: {value}{spread}{bound}", series.name, clients(point.clients))
    }

    /// The chart in words: where each line starts and ends.
    fn describe(&self) -> String {
        let lines: Vec<String> = self
            .series
            .iter()
            .filter_map(|series| {
                let (first, last) = (series.points.first()?, series.points.last()?);
                let (from, to) = ((self.write)(first.value), (self.write)(last.value));
                let (a, b) = (clients(first.clients), clients(last.clients));
                Some(format!("{} {from} at {a}, {to} at {b}", series.name))
            })
            .collect();
        format!("{}: {}", self.title, lines.join("; "))
    }

    fn x(&self, clients: u32) -> f64 {
        let (left, right, ..) = PLOT;
        let log = |clients: u32| f64::from(clients.max(1)).log2();
        let (first, last) = (self.axis.first().copied(), self.axis.last().copied());
        let (first, last) = (log(first.unwrap_or(1)), log(last.unwrap_or(1)));
        let share = if last > first { (log(clients) - first) / (last - first) } else { 0.5 };
        // A mark at an end would stick out of the plot.
        left + 8.0 + share * (right - left - 16.0)
    }

    fn y(&self, value: f64) -> f64 {
        let (.., top, bottom) = PLOT;
        bottom - self.scale.clamped(value) / 100.0 * (bottom - top)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_amounts_are_short() {
        let shown = [0.0, 0.25, 50.0, 120.0, 2_500.0, 40_000.0, 1e6].map(short);
        assert_eq!(shown, ["0", "0.25", "50", "120", "2.5k", "40k", "1M"]);
    }
}
