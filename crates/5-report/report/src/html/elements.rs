//! Elements used throughout the page: sections, markers of candidates, signs of verdicts.

use std::fmt::Display;

use maud::{Markup, html};

use crate::metric::compared;
use crate::model::{Metric, Report, Role, Verdict};

/// A name in which lines may break after `_`, `-`, `.`, `+` and `/`, and nowhere else.
pub(crate) fn breakable(name: &str) -> Markup {
    html! {
        @for (index, part) in name.split_inclusive(['_', '-', '.', '+', '/']).enumerate() {
            @if index > 0 { wbr; }
            (part)
        }
    }
}

/// A section with a heading that names it for screen readers.
pub(crate) fn section(id: &str, title: &str, content: Markup) -> Markup {
    html! {
        section id=(id) aria-labelledby={ "h-" (id) } {
            h2 id={ "h-" (id) } { (title) }
            (content)
        }
    }
}

/// A box with content that may be wider than the window. `label` names it for screen readers.
pub(crate) fn scrollable(label: &str, content: Markup) -> Markup {
    scrollable_with("", label, content)
}

/// The same with a class of the frame.
pub(crate) fn scrollable_with(class: &str, label: &str, content: Markup) -> Markup {
    let space = if class.is_empty() { "" } else { " " };
    html! {
        div class={ "scroll" (space) (class) } tabindex="0" role="region" aria-label=(label) {
            (content)
        }
    }
}

/// A list of labels with their values.
pub(crate) fn pairs<V: AsRef<str>>(pairs: &[(String, V)]) -> Markup {
    html! {
        @for (label, value) in pairs {
            div { dt { (breakable(label)) } dd { (value.as_ref()) } }
        }
    }
}

/// The value, or a dash where it is unknown.
pub(crate) fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| value.to_string())
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

/// A candidate's colour and shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Marker {
    /// Position among the candidates that are compared with the baseline.
    index: usize,
    role: Role,
}

impl Marker {
    pub(crate) const fn new(index: usize, role: Role) -> Self {
        Self { index, role }
    }

    /// The marker of a report's candidate.
    pub(crate) fn of(report: &Report, name: &str, role: Role) -> Self {
        let index = compared(report).iter().position(|one| one.name == name);
        Self::new(index.unwrap_or(0), role)
    }

    /// The class that sets the colour.
    pub(crate) fn class(self) -> String {
        match self.role {
            Role::Control => "kc".to_owned(),
            Role::Baseline => "kb".to_owned(),
            Role::Candidate => format!("k{}", self.index % COLOURS),
        }
    }

    /// The reference to the shape in [`definitions`].
    pub(crate) fn shape(self) -> String {
        match self.role {
            Role::Control => "#m-c".to_owned(),
            Role::Baseline => "#m-b".to_owned(),
            Role::Candidate => format!("#m-{}", self.index % SHAPES.len()),
        }
    }

    /// The marker followed by a name.
    pub(crate) fn label(self, name: &str) -> Markup {
        html! { (self.inline()) (breakable(name)) }
    }

    /// The marker as part of a line of text.
    pub(crate) fn inline(self) -> Markup {
        html! {
            svg.mark.{ (self.class()) } viewBox="-7 -7 14 14" aria-hidden="true" {
                use href=(self.shape()) {}
            }
        }
    }
}

/// The shapes, defined once per page.
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

/// The class that sets the colour of a difference.
pub(crate) const fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::WithinNoise => "noise",
        Verdict::ClientBound => "bound",
        Verdict::NoInterval => "alone",
        Verdict::Unknown => "unknown",
        Verdict::Failed => "failed",
    }
}

/// The sign with its word as a tooltip and for screen readers.
pub(crate) fn sign(verdict: Verdict, metric: Metric) -> Markup {
    html! { (icon(verdict, metric)) span.hidden { (verdict.word(metric)) } }
}

/// The sign with its word as a tooltip only.
pub(crate) fn icon(verdict: Verdict, metric: Metric) -> Markup {
    let sign = match verdict.sign() {
        '-' => '−',
        other => other,
    };
    html! { span.sign title=(verdict.word(metric)) aria-hidden="true" { (sign) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breakable_name_is_escaped_and_keeps_its_text() {
        let markup = breakable("a<b_c+d").into_string();
        assert_eq!(markup, "a&lt;b_<wbr>c+<wbr>d");
    }
}
