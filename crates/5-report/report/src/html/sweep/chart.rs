//! One chart: lines over the number of clients.

use maud::{Markup, html};

use super::super::marker::Marker;
use super::super::plot::{Plot, coordinate, polyline};
use super::super::scale::Scale;
use crate::metric::clients;

const PLOT: Plot =
    Plot { width: 360.0, height: 220.0, left: 46.0, right: 348.0, top: 10.0, bottom: 190.0 };

pub(super) struct Chart<'a, W> {
    pub(super) title: String,
    /// The numbers of clients, in ascending order.
    pub(super) clients: &'a [u32],
    pub(super) scale: Scale,
    pub(super) series: Vec<Series>,
    /// Formats a value in tooltips and for screen readers.
    pub(super) write: W,
}

/// A candidate's line.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) marker: Marker,
    pub(super) points: Vec<Point>,
}

pub(super) struct Point {
    pub(super) clients: u32,
    pub(super) value: f64,
    pub(super) whisker: Option<(f64, f64)>,
    pub(super) client_bound: bool,
}

impl<W: Fn(f64) -> String> Chart<'_, W> {
    /// Draws the chart; nothing without a point.
    pub(super) fn draw(&self) -> Markup {
        if self.series.is_empty() {
            return Markup::default();
        }
        let content = html! {
            @for (value, label) in self.scale.ticks() {
                @let label = self.scale.label(value, label);
                (PLOT.horizontal(self.scale.line_class(value), self.y(value), &label))
            }
            @for count in self.clients {
                (PLOT.vertical(self.x(*count)))
                (PLOT.label_below(self.x(*count), 15.0, &count.to_string()))
            }
            (PLOT.label_below(PLOT.left.midpoint(PLOT.right), 28.0, "clients"))
            @for series in &self.series { (self.line(series)) }
        };
        PLOT.figure(&self.title, &self.describe(), content)
    }

    fn line(&self, series: &Series) -> Markup {
        let path = series.points.iter().map(|one| (self.x(one.clients), self.y(one.value)));
        html! {
            g.{ (series.marker.class()) } {
                (polyline(path))
                @for point in &series.points { (self.point(series, point)) }
            }
        }
    }

    fn point(&self, series: &Series, point: &Point) -> Markup {
        let x = coordinate(self.x(point.clients));
        let y = |value| coordinate(self.y(value));
        html! {
            g class=[point.client_bound.then_some("bound")] {
                title { (self.tooltip(series, point)) }
                @if let Some((low, high)) = point.whisker {
                    line.whisker x1=(x) x2=(x) y1=(y(low)) y2=(y(high)) {}
                }
                use href=(series.marker.shape()) x=(x) y=(y(point.value)) {}
            }
        }
    }

    fn tooltip(&self, series: &Series, point: &Point) -> String {
        let write = &self.write;
        let whisker = point.whisker.map_or_else(String::new, |(low, high)| {
            format!(" ({} to {})", write(low), write(high))
        });
        let bound = if point.client_bound { ", client-bound" } else { "" };
        let value = write(point.value);
        format!("{}, {}: {value}{whisker}{bound}", series.name, clients(point.clients))
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
        let log = |clients: Option<&u32>| f64::from(*clients.unwrap_or(&1).max(&1)).log2();
        let (first, last) = (log(self.clients.first()), log(self.clients.last()));
        let share = if last > first { (log(Some(&clients)) - first) / (last - first) } else { 0.5 };
        // A marker at an end would stick out of the plot.
        PLOT.left + 8.0 + share * (PLOT.right - PLOT.left - 16.0)
    }

    fn y(&self, value: f64) -> f64 {
        PLOT.y(self.scale.clamped(value) / 100.0)
    }
}
