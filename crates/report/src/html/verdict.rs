//! Colours and signs of verdicts.

use maud::{Markup, html};

use crate::metric::{Metric, Standing};

/// The class that sets the colour of a difference.
pub(crate) const fn class(standing: Standing) -> &'static str {
    match standing {
        Standing::Better => "better",
        Standing::Worse => "worse",
        Standing::WithinNoise => "noise",
        Standing::ClientBound => "bound",
        Standing::NoInterval => "alone",
        Standing::Unknown => "unknown",
        Standing::Failed => "failed",
    }
}

/// The sign with its word as a tooltip and for screen readers.
pub(crate) fn sign(standing: Standing, metric: Metric) -> Markup {
    html! { (icon(standing, metric)) span.hidden { (standing.word(metric)) } }
}

/// The sign with its word as a tooltip only.
pub(crate) fn icon(standing: Standing, metric: Metric) -> Markup {
    let sign = match standing.sign() {
        '-' => '−',
        other => other,
    };
    html! { span.sign title=(standing.word(metric)) aria-hidden="true" { (sign) } }
}
