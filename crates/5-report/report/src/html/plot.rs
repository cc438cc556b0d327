//! The frame of a line chart: caption, axes and gridlines, in units of the view box.

use maud::{Markup, html};

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

    /// A horizontal gridline with its label.
    pub(crate) fn horizontal(&self, class: &str, y: f64, label: &str) -> Markup {
        let text_y = coordinate(y + 3.5);
        let y = coordinate(y);
        html! {
            line class=(class) x1=(self.left) x2=(self.right) y1=(y) y2=(y) {}
            text x=(coordinate(self.left - 6.0)) y=(text_y) text-anchor="end" { (label) }
        }
    }

    /// A vertical gridline.
    pub(crate) fn vertical(&self, x: f64) -> Markup {
        let x = coordinate(x);
        html! { line.tick x1=(x) x2=(x) y1=(self.top) y2=(self.bottom) {} }
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

/// A coordinate as an attribute's value.
pub(crate) fn coordinate(value: f64) -> String {
    format!("{value:.1}")
}

/// Points of a polyline.
pub(crate) fn polyline(points: impl IntoIterator<Item = (f64, f64)>) -> Markup {
    let points: Vec<String> = points.into_iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    html! { polyline points=(points.join(" ")) {} }
}
