//! Charts as SVG: axes, the lanes in table rows, line charts, and flame graphs.

pub(crate) mod flame;

use dbdyno_text::{Mark, Tone, cut};
use dbdyno_units::Ratio;
use maud::{Markup, html};

use crate::figures::compact;
use crate::model::Estimate;

/// An axis of ratios near 1, or of amounts from 0. Positions are in percent of the axis's length,
/// so that a chart grows with the page without stretching its markers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    step: f64,
    /// Whether values are ratios, so that 1 stands for the baseline.
    ratios: bool,
}

impl Scale {
    /// A ratio axis that covers 1 and every value; at least ±1%.
    pub(crate) fn covering(values: impl IntoIterator<Item = f64>) -> Self {
        let (mut low, mut high) = (0.99_f64, 1.01_f64);
        for value in values.into_iter().filter(|value| value.is_finite()) {
            low = low.min(value);
            high = high.max(value);
        }
        let margin = (high - low) * 0.04;
        let (low, high) = ((low - margin).max(0.0), high + margin);
        Self { low, high, step: step((high - low) / 7.0), ratios: true }
    }

    /// An axis from 0 to slightly above the greatest value.
    pub(crate) fn from_zero(values: impl IntoIterator<Item = f64>) -> Self {
        let greatest = values.into_iter().filter(|value| value.is_finite()).fold(0.0, f64::max);
        let high = if greatest > 0.0 { greatest * 1.04 } else { 1.0 };
        Self { low: 0.0, high, step: step(high / 6.0), ratios: false }
    }

    /// A ratio axis that covers all medians, and each interval up to half the range of the medians
    /// beyond it: one wide interval must not squeeze the medians together.
    pub(crate) fn of_estimates(estimates: &[Estimate]) -> Self {
        let medians = Self::covering(estimates.iter().map(|one| one.median.get()));
        let reach = (medians.high - medians.low) / 2.0;
        Self::covering(estimates.iter().flat_map(|Estimate { low, median, high, .. }| {
            let low = low.get().max(medians.low - reach);
            [low, median.get(), high.get().min(medians.high + reach)]
        }))
    }

    /// The position of a value in percent: below 0 or above 100 if it is beyond the ends.
    pub(crate) fn position(&self, value: f64) -> f64 {
        100.0 * (value - self.low) / (self.high - self.low)
    }

    /// The position of a value, moved to the nearer end if it is beyond.
    pub(crate) fn clamped(&self, value: f64) -> f64 {
        self.position(value).clamp(0.0, 100.0)
    }

    /// Round values on the axis with their labels, all with the same number of decimals.
    pub(crate) fn ticks(&self) -> Vec<(f64, String)> {
        let decimals = (-self.step.log10().floor()).max(1.0) as usize;
        let first = (self.low / self.step).ceil() as i64;
        let last = (self.high / self.step).floor() as i64;
        (first..=last)
            .map(|n| n as f64 * self.step)
            .map(|value| (value, format!("{value:.decimals$}")))
            .collect()
    }

    /// Gridlines over the whole height, the line at 1, and the noise floor as a band around it.
    pub(crate) fn grid(&self, noise: Option<f64>) -> Markup {
        html! {
            @if let Some(noise) = noise {
                @let (low, high) = (self.clamped(1.0 - noise), self.clamped(1.0 + noise));
                rect.band x=(percent(low)) width=(percent(high - low)) height="100%" {}
            }
            @for (value, _) in self.ticks() {
                @let x = percent(self.position(value));
                line class=(self.line_class(value)) x1=(x) x2=(x) y2="100%" {}
            }
        }
    }

    /// The labels of an axis. `bottom` is the text's base line in pixels.
    pub(crate) fn labels(&self, bottom: u32) -> Markup {
        // A centred label at an end would stick out of the chart.
        let anchor = |x: f64| match x {
            ..5.0 => "start",
            95.0.. => "end",
            _ => "middle",
        };
        html! {
            @for (value, text) in self.ticks() {
                @let x = self.position(value);
                @let class = is_one(value).then_some("at-one");
                text class=[class] x=(percent(x)) y=(bottom) text-anchor=(anchor(x)) { (text) }
            }
        }
    }

    /// The class of the gridline at a value.
    pub(crate) fn line_class(&self, value: f64) -> &'static str {
        if self.ratios && is_one(value) { "one" } else { "tick" }
    }
}

fn is_one(value: f64) -> bool {
    (value - 1.0).abs() < 1e-9
}

pub(crate) fn percent(position: f64) -> String {
    format!("{position:.2}%")
}

/// A round amount, without trailing zeros: `2.5k`, `0.25`.
pub(crate) fn axis_label(value: f64) -> String {
    let text = match value {
        0.0 => return "0".to_owned(),
        ..0.01 => format!("{value:.9}"),
        _ => compact(value),
    };
    let (digits, unit) =
        text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let digits = match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    };
    format!("{digits}{unit}")
}

/// The round number (1, 2 or 5 times a power of ten) at or above `rough`.
fn step(rough: f64) -> f64 {
    let power = 10_f64.powf(rough.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    factors.into_iter().map(|factor| factor * power).find(|step| *step >= rough).unwrap_or(power)
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lane {
    pub(crate) mark: Mark,
    pub(crate) tone: Tone,
    pub(crate) estimate: Estimate,
}

/// A ratio without an interval: it is drawn without a whisker.
pub(crate) const fn point_estimate(ratio: Ratio) -> Estimate {
    Estimate { median: ratio, low: ratio, high: ratio, blocks: 1, starts: None }
}

/// The head of the chart's column, with the axis.
pub(crate) fn column_head(scale: &Scale) -> Markup {
    html! {
        th.chart scope="col" {
            span.hidden { "Chart of the values of each row" }
            svg.axis aria-hidden="true" { (scale.labels(14)) }
        }
    }
}

/// The chart of one row; a lane without an estimate stays empty.
pub(crate) fn chart(scale: &Scale, noise: Option<f64>, lanes: &[Option<Lane>]) -> Markup {
    let count = lanes.len() as f64;
    html! {
        svg.lanes aria-hidden="true" {
            (scale.grid(noise))
            @for (index, lane) in lanes.iter().enumerate() {
                @if let Some(lane) = lane {
                    (lane.draw(scale, 10.0 + 80.0 * (index as f64 + 0.5) / count))
                }
            }
        }
    }
}

impl Lane {
    /// A bar from 1 to the median, the interval as a whisker, and the candidate's marker.
    fn draw(&self, scale: &Scale, y: f64) -> Markup {
        let Estimate { low, median, high, .. } = self.estimate;
        let (low, median, high) = (low.get(), median.get(), high.get());
        let y = format!("{y:.1}%");
        let line = |class, from: f64, to: f64| {
            let (from, to) = (percent(scale.clamped(from)), percent(scale.clamped(to)));
            html! { line class=(class) x1=(from) x2=(to) y1=(y) y2=(y) {} }
        };
        html! {
            g.{ (colour(self.mark)) }.{ (class(self.tone)) } {
                (line("bar", 1.0, median))
                (line("whisker", low, high))
                // An arrow marks an interval that extends beyond the axis.
                @if scale.position(low) < 0.0 { use href="#m-less" x="0%" y=(y) {} }
                @if scale.position(high) > 100.0 { use href="#m-more" x="100%" y=(y) {} }
                use.dot href=(shape(self.mark)) x=(percent(scale.clamped(median))) y=(y) {}
            }
        }
    }
}

/// The size of a drawing and of the plot inside it. Drawings are about as wide as the page's
/// columns, so that text is shown at its size.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
}

impl Plot {
    /// A figure with its caption. `description` is the chart in words, for screen readers.
    pub(crate) fn figure(&self, title: &str, description: &str, content: Markup) -> Markup {
        html! {
            figure {
                figcaption { (title) }
                svg.over role="img" viewBox={ "0 0 " (self.width) " " (self.height) }
                    aria-label=(description) { (content) }
            }
        }
    }

    pub(crate) fn horizontal(&self, class: &str, y: f64, label: &str) -> Markup {
        let text_y = coordinate(y + 3.5);
        let y = coordinate(y);
        html! {
            line class=(class) x1=(self.left) x2=(self.right) y1=(y) y2=(y) {}
            text x=(coordinate(self.left - 6.0)) y=(text_y) text-anchor="end" { (label) }
        }
    }

    /// A label below the horizontal axis, `below` units under it.
    pub(crate) fn label_below(&self, x: f64, below: f64, label: &str) -> Markup {
        let (x, y) = (coordinate(x), coordinate(self.bottom + below));
        html! { text x=(x) y=(y) text-anchor="middle" { (label) } }
    }

    /// The vertical coordinate of a share of the plot's height, from 0 at the bottom to 1.
    pub(crate) fn y(&self, share: f64) -> f64 {
        self.bottom - share * (self.bottom - self.top)
    }
}

pub(crate) fn coordinate(value: f64) -> String {
    format!("{value:.1}")
}

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
    pub(crate) labels: Vec<(f64, String)>,
    pub(crate) style: LabelStyle,
    pub(crate) below: &'static str,
    /// The noise floor as a band around 1.
    pub(crate) noise: Option<f64>,
    pub(crate) lines: Vec<Line>,
    /// Marked positions, with tooltips.
    pub(crate) stalls: Vec<(f64, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LabelStyle {
    Grid,
    /// The same, turned so that thirty names fit.
    Slanted,
    Bare,
}

#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) mark: Mark,
    /// The tooltip of the line; of points without markers.
    pub(crate) title: String,
    pub(crate) points: Vec<Point>,
}

#[derive(Clone, Debug, Default)]
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
                // Labels of amounts have no fixed number of decimals.
                let label = |at, fixed| if scale.ratios { fixed } else { axis_label(at) };
                let ticks = scale.ticks().into_iter();
                ticks.map(|(at, text)| (at, label(at, text), scale.line_class(at))).collect()
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
        let Plot { top, bottom, .. } = self.plot;
        let (text_x, text_y) = (coordinate(x), coordinate(bottom + 12.0));
        html! {
            @if self.style != LabelStyle::Bare {
                line.tick x1=(text_x) x2=(text_x) y1=(top) y2=(bottom) {}
            }
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
        let point = |point: &Point| format!("{:.1},{:.1}", self.x(point.at), self.y(point.value));
        let points: Vec<String> = line.points.iter().map(point).collect();
        html! {
            g.{ (colour(line.mark)) } {
                @if !line.title.is_empty() { title { (line.title) } }
                polyline points=(points.join(" ")) {}
                @for point in line.points.iter().filter(|point| !point.title.is_empty()) {
                    @let x = coordinate(self.x(point.at));
                    g class=[point.bound.then_some("bound")] {
                        title { (point.title) }
                        @if let Some((low, high)) = point.whisker {
                            line.whisker x1=(x) x2=(x) y1=(coordinate(self.y(low)))
                                y2=(coordinate(self.y(high))) {}
                        }
                        use href=(shape(line.mark)) x=(x) y=(coordinate(self.y(point.value))) {}
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

/// Colours in the style sheet: `k0` to `k5`; `kc` is the control's, `kb` the baseline's.
const COLOURS: usize = 6;

/// Shapes centred on the origin. There is one more of them than colours: the combinations repeat
/// only after 42 candidates.
const SHAPES: [&str; 7] = [
    "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
    "M-4 -4h8v8h-8z",
    "M0 -5.6L5.6 0L0 5.6L-5.6 0z",
    "M0 -5L5 4H-5z",
    "M0 5L5 -4H-5z",
    "M-1.8 -5h3.6v3.2h3.2v3.6h-3.2v3.2h-3.6v-3.2h-3.2v-3.6h3.2z",
    "M-5 -4.5L0 0L5 -4.5V4.5L0 0L-5 4.5z",
];

/// The class that sets the colour of a difference.
pub(crate) const fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Better => "better",
        Tone::Worse => "worse",
        Tone::Noise => "noise",
        Tone::Bound => "bound",
        Tone::Alone => "alone",
        Tone::Unknown => "unknown",
        Tone::Failed => "failed",
    }
}

/// The class that sets a candidate's colour.
pub(crate) fn colour(mark: Mark) -> String {
    match mark {
        Mark::Control => "kc".to_owned(),
        Mark::Baseline => "kb".to_owned(),
        Mark::Candidate(index) => format!("k{}", index % COLOURS),
    }
}

/// The reference to a candidate's shape in [`definitions`].
pub(crate) fn shape(mark: Mark) -> String {
    match mark {
        Mark::Control => "#m-c".to_owned(),
        Mark::Baseline => "#m-b".to_owned(),
        Mark::Candidate(index) => format!("#m-{}", index % SHAPES.len()),
    }
}

pub(crate) fn definitions() -> Markup {
    html! {
        svg.defs aria-hidden="true" width="0" height="0" {
            defs {
                @for (index, path) in SHAPES.iter().enumerate() {
                    path id={ "m-" (index) } d=(path) {}
                }
                path #m-c d="M-4 -4L4 4M4 -4L-4 4" fill="none" stroke-width="2" {}
                path #m-b d="M0 -6V6" fill="none" stroke-width="2.5" {}
                path #m-less d="M5 -3.5L1 0L5 3.5" fill="none" {}
                path #m-more d="M-5 -3.5L-1 0L-5 3.5" fill="none" {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use dbdyno_units::Ratio;

    use super::*;

    #[test]
    fn ratio_axis_is_close_to_one_with_a_tick_there() {
        let scale = Scale::covering([1.02, 1.08]);
        let labels: Vec<String> = scale.ticks().into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["1.00", "1.02", "1.04", "1.06", "1.08"]);
        assert!(scale.position(1.0) > 0.0 && scale.position(1.08) < 100.0);
    }

    #[test]
    fn wide_interval_does_not_squeeze_the_medians() {
        let estimate = |low, median, high| {
            crate::sample::interval(Ratio::new(median), Ratio::new(low), Ratio::new(high))
        };
        let scale = Scale::of_estimates(&[estimate(0.99, 1.0, 1.01), estimate(0.2, 1.04, 9.0)]);
        assert!(scale.position(1.04) - scale.position(1.0) > 25.0);
        assert_eq!(scale.clamped(9.0), 100.0);
    }

    #[test]
    fn amounts_start_at_zero_and_fit() {
        let scale = Scale::from_zero([12_345.0, 300.0, f64::NAN]);
        assert_eq!(scale.position(0.0), 0.0);
        assert!(scale.position(12_345.0) > 90.0 && scale.position(12_345.0) <= 100.0);
        let ticks: Vec<f64> = scale.ticks().into_iter().map(|(value, _)| value).collect();
        assert_eq!(ticks, [0.0, 5_000.0, 10_000.0]);
        assert_eq!(Scale::from_zero([]).position(0.5), 50.0);
    }

    #[test]
    fn axis_without_values_is_usable() {
        let scale = Scale::covering([f64::NAN]);
        assert!((scale.position(1.0) - 50.0).abs() < 1e-9);
    }

    #[test]
    fn axis_labels_have_no_trailing_zeros() {
        let shown = [0.0, 0.002, 0.25, 50.0, 120.0, 2_500.0, 40_000.0, 1e6].map(axis_label);
        assert_eq!(shown, ["0", "0.002", "0.25", "50", "120", "2.5k", "40k", "1M"]);
    }

    #[test]
    fn logarithmic_axis_covers_its_values() {
        let axis = Axis::logarithmic([0.3, 2_000.0].into_iter());
        assert_eq!((axis.position(0.1), axis.position(10_000.0)), (0.0, 1.0));
        let labels: Vec<String> = axis.ticks().into_iter().map(|(_, label, _)| label).collect();
        assert_eq!(labels, ["0.1", "1", "10", "100", "1k", "10k"]);
        assert_eq!(Axis::logarithmic([5.0].into_iter()).position(5.0), 5.0_f64.log10());
    }
}
