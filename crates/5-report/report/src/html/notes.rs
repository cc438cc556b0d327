//! Failures and warnings, how to read the page, and the footer.

use maud::{Markup, html};

use crate::metric::{Metric, client_bound_rows};
use crate::model::Report;
use crate::sections::optimizations;
use crate::words;

/// Failures first, then limits, then warnings; nothing if there are none.
pub(super) fn failures_and_warnings(report: &Report) -> Markup {
    let failures = html! {
        @for failure in &report.failures {
            li { strong { (failure.candidate) } " at " (failure.at) ": " (failure.reason) }
        }
    };
    let limits = html! {
        @if let Some(text) = words::client_bound(report) {
            li { strong { "Client-bound:" } " " (text) }
        }
        @for lost in &report.lost {
            li { strong { (lost.candidate) } " " (words::lost_connections(lost)) }
        }
        @for (candidate, text) in optimizations::refused(report) {
            li { strong { (candidate) } " " (text) }
        }
    };
    let warnings = html! {
        @for warning in &report.warnings {
            li { strong { (warning.what.trim_end_matches('.')) "." } " " (warning.advice) }
        }
    };
    html! {
        (note("failure", "failures", "Failed", failures))
        (note("warning", "limits", "Limits and lost connections", limits))
        (note("warning", "warnings", "Warnings", warnings))
    }
}

/// A box with a list; nothing for an empty list.
pub(crate) fn note(class: &str, id: &str, title: &str, items: Markup) -> Markup {
    html! {
        @if !items.0.is_empty() {
            section.note.(class) aria-labelledby={ "h-" (id) } {
                h2 id={ "h-" (id) } { (title) }
                ul { (items) }
            }
        }
    }
}

/// The legend of signs and charts.
pub(super) fn how_to_read(report: &Report) -> Markup {
    html! {
        p.muted {
            b.better { "+" } " better than the baseline, " b.worse { "−" } " worse, "
            b { "~" } " within noise (hollow marker)"
            @if client_bound_rows(report).0 > 0 {
                ", " b { "c" } " client-bound: limited by the load generator"
            }
            @if report.is_imported() { ", " b { "·" } " too few values for an interval" }
            ". Whiskers and the numbers below a ratio are its 95% confidence interval. "
            (noise_band(report))
            span.js {
                " Select a name to see its distribution and response times; ↑ ↓ move between names."
            }
        }
    }
}

fn noise_band(report: &Report) -> String {
    let floor = match (&report.noise, Metric::Cpu.noise(report)) {
        (Some(noise), Some(cpu)) => format!("±{} of QPS, ±{cpu} of CPU per query", noise.typical),
        (Some(noise), None) => format!("±{}", noise.typical),
        (None, Some(cpu)) => format!("±{cpu} of CPU per query, unknown of QPS"),
        (None, None) => {
            return format!("The noise floor is unknown: {}.", words::unknown_noise(report));
        }
    };
    format!("The band around 1 is the noise floor measured with the control: {floor}.")
}

pub(super) fn footer(report: &Report) -> Markup {
    html! {
        footer {
            p {
                @if report.insert.is_none() { (report.interval_method) }
                @if report.noise.is_some() || report.cpu_noise.is_some() {
                    " Noise floor: " (words::noise_floor(report))
                }
            }
            p { "Created by dbdyno " (report.version) " from a run started at " (report.started) "." }
        }
    }
}
