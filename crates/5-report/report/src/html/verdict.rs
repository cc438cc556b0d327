//! Colours and signs of verdicts.

use maud::{Markup, html};

use crate::metric::Metric;
use crate::model::Verdict;

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
    html! { (icon(verdict, metric)) span.hidden { (metric.word(verdict)) } }
}

/// The sign with its word as a tooltip only.
pub(crate) fn icon(verdict: Verdict, metric: Metric) -> Markup {
    let sign = match verdict.sign() {
        '-' => '−',
        other => other,
    };
    html! { span.sign title=(metric.word(verdict)) aria-hidden="true" { (sign) } }
}
