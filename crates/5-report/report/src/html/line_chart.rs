//! Line charts: lines with points over numbers of clients, releases or seconds.

use dbdyno_text::{Mark, cut};
use maud::{Markup, html};

use super::document::marker;
use super::plot::{Plot, coordinate, polyline};
use super::scale::{Scale, axis_label};

/// A chart as data; horizontal positions are shares of the plot's width.
#[derive(Clone, Debug)]
pub(crate) struct LineChart {
    pub(crate) title: String,
    /// The chart in words, for screen readers.
    pub(crate) description: String,
    pub(crate) plot: Plot,
    /// Distances of the first and the last position from the ends of the axis: markers and slanted names
    /// would stick out.
    pub(crate) margins: (f64, f64),
    pub(crate) axis: Axis,
    /// Labels below the horizontal axis.
    pub(crate) labels: Vec<(f64, String)>,
    pub(crate) style: LabelStyle,
    /// The title of the horizontal axis.
    pub(crate) below: &'static str,
    /// The noise floor as a band around 1.
    pub(crate) noise: Option<f64>,
    pub(crate) lines: Vec<Line>,
    /// Marked positions, with tooltips.
    pub(crate) stalls: Vec<(f64, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LabelStyle {
    /// Below a vertical gridline.
    Grid,
    /// The same, turned so that thirty names fit.
    Slanted,
    /// Without gridlines.
    Bare,
}

#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) mark: Mark,
    /// The tooltip of the line; of points without markers.
    pub(crate) title: String,
    pub(crate) points: Vec<Point>,
}

#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) at: f64,
    pub(crate) value: f64,
    pub(crate) whisker: Option<(f64, f64)>,
    /// The tooltip; without one, the point has no marker.
    pub(crate) title: String,
    /// Hollow: the load generator was the limit.
    pub(crate) bound: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Axis {
    Linear(Scale),
    /// Powers of ten.
    Logarithmic(f64, f64),
}

impl Axis {
    pub(crate) fn logarithmic(values: impl Iterator<Item = f64>) -> Self {
        let positive = values.filter(|value| *value > 0.0).map(f64::log10);
        let (low, high) =
            positive.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        let (low, high) = (low.floor(), high.ceil());
        Self::Logarithmic(low, if high > low { high } else { low + 1.0 })
    }

    /// From 0 at the bottom to 1.
    fn position(&self, value: f64) -> f64 {
        match self {
            Self::Linear(scale) => scale.clamped(value) / 100.0,
            Self::Logarithmic(low, high) if value > 0.0 => {
                ((value.log10() - low) / (high - low)).clamp(0.0, 1.0)
            }
            Self::Logarithmic(..) => 0.0,
        }
    }

    /// Values with labels and the classes of their gridlines.
    fn ticks(&self) -> Vec<(f64, String, &'static str)> {
        match self {
            Self::Linear(scale) => {
                let ticks = scale.ticks().into_iter();
                ticks.map(|(at, text)| (at, scale.label(at, text), scale.line_class(at))).collect()
            }
            Self::Logarithmic(low, high) => (*low as i32..=*high as i32)
                .map(|power| 10_f64.powi(power))
                .map(|value| (value, axis_label(value), "tick"))
                .collect(),
        }
    }
}

/// Characters of a slanted name for which there is room.
const LONGEST_NAME: usize = 16;

impl LineChart {
    /// Nothing without lines.
    pub(crate) fn draw(&self) -> Markup {
        if self.lines.is_empty() {
            return Markup::default();
        }
        let plot = &self.plot;
        let content = html! {
            @if let Some(noise) = self.noise {
                @let (top, bottom) = (self.y(1.0 + noise), self.y(1.0 - noise));
                rect.band x=(plot.left) width=(plot.right - plot.left) y=(coordinate(top))
                    height=(coordinate(bottom - top)) {}
            }
            @for (value, label, class) in self.axis.ticks() {
                (plot.horizontal(class, self.y(value), &label))
            }
            @for (at, label) in &self.labels { (self.label(self.x(*at), label)) }
            @if !self.below.is_empty() {
                (plot.label_below(plot.left.midpoint(plot.right), 28.0, self.below))
            }
            @for line in &self.lines { (self.line(line)) }
            @for (at, title) in &self.stalls { (self.stall(self.x(*at), title)) }
        };
        plot.figure(&self.title, &self.description, content)
    }

    fn label(&self, x: f64, label: &str) -> Markup {
        let (text_x, text_y) = (coordinate(x), coordinate(self.plot.bottom + 12.0));
        html! {
            @if self.style != LabelStyle::Bare { (self.plot.vertical(x)) }
            @if self.style == LabelStyle::Slanted {
                text x=(text_x) y=(text_y) text-anchor="end"
                    transform={ "rotate(-40 " (text_x) " " (text_y) ")" } {
                    title { (label) }
                    (cut(label, LONGEST_NAME))
                }
            } @else {
                (self.plot.label_below(x, 15.0, label))
            }
        }
    }

    fn line(&self, line: &Line) -> Markup {
        let marker = marker(line.mark);
        let path = line.points.iter().map(|point| (self.x(point.at), self.y(point.value)));
        html! {
            g.{ (marker.class()) } {
                @if !line.title.is_empty() { title { (line.title) } }
                (polyline(path))
                @for point in line.points.iter().filter(|point| !point.title.is_empty()) {
                    @let x = coordinate(self.x(point.at));
                    g class=[point.bound.then_some("bound")] {
                        title { (point.title) }
                        @if let Some((low, high)) = point.whisker {
                            line.whisker x1=(x) x2=(x) y1=(coordinate(self.y(low)))
                                y2=(coordinate(self.y(high))) {}
                        }
                        use href=(marker.shape()) x=(x) y=(coordinate(self.y(point.value))) {}
                    }
                }
            }
        }
    }

    fn stall(&self, x: f64, title: &str) -> Markup {
        let (x, top) = (coordinate(x), self.plot.top);
        html! {
            g.stall {
                title { (title) }
                line x1=(x) x2=(x) y1=(top) y2=(self.plot.bottom) {}
                path d={ "M" (x) " " (coordinate(top - 1.0)) "l-4 -7h8z" } {}
            }
        }
    }

    fn x(&self, share: f64) -> f64 {
        let Plot { left, right, .. } = self.plot;
        let (before, after) = self.margins;
        left + before + share * (right - left - before - after)
    }

    fn y(&self, value: f64) -> f64 {
        self.plot.y(self.axis.position(value))
    }
}
