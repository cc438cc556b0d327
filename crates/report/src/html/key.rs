//! The result in a sentence and a small table: the median of every group and candidate.

use super::escape::{breakable, esc};
use super::{VIEWS, View, marks};
use crate::figures::ratio;
use crate::metric::{Metric, Standing, compared};
use crate::model::{GroupSummary, Report, Role};

pub(super) fn render(report: &Report) -> String {
    let mut out = String::from(
        "<section class=\"key\" aria-labelledby=\"h-key\">\n<h2 id=\"h-key\">Key results</h2>\n",
    );
    if report.microbenchmarks.is_empty() {
        out.push_str("<p>Nothing is measured yet.</p>\n");
    }
    for view in VIEWS {
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
        let range = if least.group == most.group {
            format!("{} ({})", ratio(least.median), esc(&least.group))
        } else {
            format!(
                "{} ({}) to {} ({})",
                ratio(least.median),
                esc(&least.group),
                ratio(most.median),
                esc(&most.group)
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
    let groups: Vec<&str> = view.grouping.groups(&report.microbenchmarks).into_keys().collect();
    let mut out = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Medians\">\
         <table class=\"matrix\"><caption class=\"hidden\">Median {} per group</caption>\
         <thead><tr><th scope=\"col\">Candidate</th>",
        view.metric.title()
    );
    for group in &groups {
        out.push_str(&format!("<th scope=\"col\">{}</th>", breakable(group)));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for (place, candidate) in compared(report).into_iter().enumerate() {
        out.push_str(&format!(
            "<tr><th scope=\"row\">{}{}</th>",
            marks::inline(place, candidate.role),
            breakable(&candidate.name)
        ));
        for group in &groups {
            let found =
                summaries.iter().find(|s| s.group == *group && s.candidate == candidate.name);
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

/// The class that sets the colour of a difference.
pub(super) const fn class(standing: Standing) -> &'static str {
    match standing {
        Standing::Better => "better",
        Standing::Worse => "worse",
        Standing::WithinNoise => "noise",
        Standing::Unknown => "unknown",
        Standing::Failed => "failed",
    }
}

/// The sign for the eye, with its word for a screen reader and as a hint.
pub(super) fn sign(standing: Standing, metric: Metric) -> String {
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
