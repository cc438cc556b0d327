//! The result in a sentence and a small table: the median of every group and candidate.

use std::collections::BTreeSet;

use super::escape::{breakable, esc};
use super::{View, marks, views};
use crate::figures::ratio;
use crate::metric::{Metric, Standing, clients, compared};
use crate::model::{GroupSummary, Report, Role};

pub(super) fn render(report: &Report) -> String {
    let mut out = String::from(
        "<section class=\"key\" aria-labelledby=\"h-key\">\n<h2 id=\"h-key\">Key results</h2>\n",
    );
    if report.microbenchmarks.is_empty() {
        out.push_str("<p>Nothing is measured yet.</p>\n");
    }
    for view in views(report) {
        let summaries = view.metric.summaries(report, view.grouping);
        if summaries.is_empty() {
            continue;
        }
        out.push_str(&format!("<div class=\"{}\">\n", view.class()));
        out.push_str(&sentence(report, view, &summaries));
        out.push_str(&matrix(report, view, &summaries));
        out.push_str("</div>\n");
    }
    out.push_str("</section>\n");
    out
}

/// Each candidate's least and greatest median, with their groups.
fn sentence(report: &Report, view: View, summaries: &[GroupSummary]) -> String {
    let mut parts = Vec::new();
    for candidate in compared(report).iter().filter(|c| c.role == Role::Candidate) {
        let own = || summaries.iter().filter(|summary| summary.candidate == candidate.name);
        let least = own().min_by(|a, b| a.median.get().total_cmp(&b.median.get()));
        let most = own().max_by(|a, b| a.median.get().total_cmp(&b.median.get()));
        let (Some(least), Some(most)) = (least, most) else { continue };
        let named = |summary| esc(&group_label(report, summary)).to_string();
        let range = if std::ptr::eq(least, most) {
            format!("{} ({})", ratio(least.median), named(least))
        } else {
            format!(
                "{} ({}) to {} ({})",
                ratio(least.median),
                named(least),
                ratio(most.median),
                named(most)
            )
        };
        parts.push(format!("<strong>{}</strong> {range}", esc(&candidate.name)));
    }
    let what = match view.metric {
        Metric::Qps => "Throughput",
        Metric::Cpu => "CPU time per query",
    };
    match parts.is_empty() {
        true => String::new(),
        false => format!(
            "<p class=\"sentence\">{what} relative to <strong>{}</strong>, median of each group: \
             {}.</p>\n",
            esc(&report.baseline),
            parts.join("; ")
        ),
    }
}

fn matrix(report: &Report, view: View, summaries: &[GroupSummary]) -> String {
    // One column per group; in a sweep, one per group and number of clients.
    let columns: BTreeSet<(&str, u32)> =
        summaries.iter().map(|summary| (summary.group.as_str(), summary.clients)).collect();
    let sweep = report.is_sweep();
    let mut out = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Medians\">\
         <table class=\"matrix\"><caption class=\"hidden\">Median {} per group</caption>\
         <thead><tr><th scope=\"col\">Candidate</th>",
        view.metric.title()
    );
    for (group, at) in &columns {
        let at = if sweep { format!(" <small>{}</small>", clients(*at)) } else { String::new() };
        out.push_str(&format!("<th scope=\"col\">{}{at}</th>", breakable(group)));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for (place, candidate) in compared(report).into_iter().enumerate() {
        out.push_str(&format!(
            "<tr><th scope=\"row\">{}{}</th>",
            marks::inline(place, candidate.role),
            breakable(&candidate.name)
        ));
        for column in &columns {
            let found = summaries.iter().find(|summary| {
                (summary.group.as_str(), summary.clients) == *column
                    && summary.candidate == candidate.name
            });
            out.push_str(&match found {
                None => "<td>–</td>".to_owned(),
                Some(summary) => {
                    let standing = view.metric.standing_of_group(report, summary);
                    format!(
                        "<td class=\"{}\"><b>{}</b> {}</td>",
                        class(standing),
                        ratio(summary.median),
                        sign(standing, view.metric)
                    )
                }
            });
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    out
}

/// The group's name, with the number of clients in a sweep.
pub(super) fn group_label(report: &Report, summary: &GroupSummary) -> String {
    match report.is_sweep() {
        true => format!("{}, {}", summary.group, clients(summary.clients)),
        false => summary.group.clone(),
    }
}

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

/// The sign for the eye, with its word for a screen reader and as a hint.
pub(crate) fn sign(standing: Standing, metric: Metric) -> String {
    let word = standing.word(metric);
    let sign = match standing.sign() {
        '-' => '−',
        other => other,
    };
    format!(
        "<span class=\"sign\" title=\"{word}\" aria-hidden=\"true\">{sign}</span>\
         <span class=\"hidden\">{word}</span>"
    )
}
