//! The chart in a table row: one lane per candidate.
//!
//! The chart is a column of the table: the numbers beside it are its text alternative, and one
//! axis serves all rows. Bars grow from the line at 1, not from 0, where a difference of one
//! percent would be invisible.

use dbdyno_units::Ratio;
use maud::{Markup, html};

use super::marker::Marker;
use super::scale::{Scale, percent};
use crate::model::Estimate;

/// One candidate's lane.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lane {
    pub(crate) marker: Marker,
    /// The class of the verdict.
    pub(crate) class: &'static str,
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
            span.hidden { "Chart of the values in the following columns" }
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
            g.{ (self.marker.class()) }.{ (self.class) } {
                (line("bar", 1.0, median))
                (line("whisker", low, high))
                // An arrow marks an interval that extends beyond the axis.
                @if scale.position(low) < 0.0 { use href="#m-less" x="0%" y=(y) {} }
                @if scale.position(high) > 100.0 { use href="#m-more" x="100%" y=(y) {} }
                use.dot href=(self.marker.shape()) x=(percent(scale.clamped(median))) y=(y) {}
            }
        }
    }
}
