//! What to know before trusting the numbers, and how to read them.

use super::escape::esc;
use crate::metric::{Metric, client_bound_rows};
use crate::model::Report;

/// Failures first, then warnings; nothing if there are none.
pub(super) fn failures_and_warnings(report: &Report) -> String {
    let mut out = String::new();
    if !report.failures.is_empty() {
        out.push_str(
            "<section class=\"note failure\" aria-labelledby=\"h-failures\">\n\
             <h2 id=\"h-failures\">Failed</h2>\n<ul>\n",
        );
        for failure in &report.failures {
            out.push_str(&format!(
                "<li><strong>{}</strong> at {}: {}</li>\n",
                esc(&failure.candidate),
                esc(&failure.at),
                esc(&failure.reason)
            ));
        }
        out.push_str("</ul>\n</section>\n");
    }
    let (bound, rows) = client_bound_rows(report);
    if bound > 0 || !report.lost.is_empty() {
        out.push_str(
            "<section class=\"note warning\" aria-labelledby=\"h-limits\">\n\
             <h2 id=\"h-limits\">Limits and losses</h2>\n<ul>\n",
        );
        if bound > 0 {
            out.push_str(&format!(
                "<li><strong>Client-bound: {bound} of {rows} rows.</strong> The load generator used \
                 its CPUs up while the server had CPU time left. They give no verdict on throughput \
                 and are left out of its summaries; CPU per query is good.</li>\n"
            ));
        }
        for lost in &report.lost {
            let times = if lost.count == 1 { "time" } else { "times" };
            out.push_str(&format!(
                "<li><strong>{} lost its connections {} {times}</strong> and went on; the last at \
                 {}: {}</li>\n",
                esc(&lost.candidate),
                lost.count,
                esc(&lost.at),
                esc(&lost.reason)
            ));
        }
        out.push_str("</ul>\n</section>\n");
    }
    if !report.warnings.is_empty() {
        out.push_str(
            "<section class=\"note warning\" aria-labelledby=\"h-warnings\">\n\
             <h2 id=\"h-warnings\">Warnings</h2>\n<ul>\n",
        );
        for warning in &report.warnings {
            out.push_str(&format!(
                "<li><strong>{}</strong> {}</li>\n",
                esc(&warning.what),
                esc(&warning.advice)
            ));
        }
        out.push_str("</ul>\n</section>\n");
    }
    out
}

/// The legend of signs and charts.
pub(super) fn how_to_read(report: &Report) -> String {
    let band = match (&report.noise, Metric::Cpu.noise(report)) {
        (Some(noise), Some(cpu)) => format!(
            "The band around 1 is the noise floor that the control shows: ±{} of QPS, ±{cpu} of \
             CPU per query.",
            noise.typical
        ),
        (Some(noise), None) => format!(
            "The band around 1 is the noise floor that the control shows: ±{}.",
            noise.typical
        ),
        (None, _) => "Without a control nothing shows which differences are noise.".to_owned(),
    };
    let bound = match client_bound_rows(report).0 {
        0 => "",
        _ => ", <b>c</b> client-bound: the load generator was the limit",
    };
    let alone =
        if report.is_imported() { ", <b>·</b> too few values for an interval" } else { "" };
    format!(
        "<p class=\"muted\"><b class=\"better\">+</b> better than the baseline, \
         <b class=\"worse\">−</b> worse, <b>~</b> within noise (a hollow mark){bound}{alone}. Whiskers and the \
         figures below a ratio are its 95% interval. {band} <span class=\"js\">Choose a name for \
         its distribution and latencies; ↑ ↓ move between names.</span></p>\n"
    )
}

pub(super) fn footer(report: &Report) -> String {
    let noise = report.noise.as_ref().map_or_else(String::new, |noise| {
        format!(
            " The control differs from 1 by {} at most ({}), and its interval contains 1 in {} of \
             {} microbenchmarks.",
            noise.greatest,
            esc(&noise.greatest_at),
            noise.contains_one,
            noise.count
        )
    });
    let method = if report.insert.is_some() { "" } else { &report.interval_method };
    format!(
        "<footer>\n<p>{}{noise}</p>\n<p>Made by dbdyno {} from a run that started at {}.</p>\n\
         </footer>\n",
        esc(method),
        esc(&report.version),
        esc(&report.started)
    )
}
