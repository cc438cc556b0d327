//! The groups in short: spread of the ratios, and the best and the worst by name.

use super::escape::{breakable, esc};
use super::key::{class, group_label, sign};
use super::{View, marks, views};
use crate::figures::ratio;
use crate::metric::compared;
use crate::model::{GroupSummary, Report};

pub(super) fn render(report: &Report) -> String {
    let mut out = String::from(
        "<section aria-labelledby=\"h-groups\" id=\"groups\">\n<h2 id=\"h-groups\">Groups</h2>\n",
    );
    for view in views(report) {
        let summaries = view.metric.summaries(report, view.grouping);
        if !summaries.is_empty() {
            out.push_str(&table(report, view, &summaries));
        }
    }
    out.push_str("</section>\n");
    out
}

fn table(report: &Report, view: View, summaries: &[GroupSummary]) -> String {
    let mut out = format!(
        "<div class=\"scroll cards {}\" tabindex=\"0\" role=\"region\" aria-label=\"Groups\">\
         <table class=\"groups\"><caption class=\"hidden\">{} of each group and candidate</caption>\
         <thead><tr><th scope=\"col\">Group</th><th scope=\"col\">Candidate</th>",
        view.class(),
        view.metric.title()
    );
    for title in ["Count", "Min", "Max", "Avg", "Median", "Stddev"] {
        out.push_str(&format!("<th scope=\"col\" class=\"num\">{title}</th>"));
    }
    out.push_str("<th scope=\"col\">Worst</th><th scope=\"col\">Best</th></tr></thead>\n");
    let compared = compared(report);
    for same in summaries.chunk_by(|a, b| (&a.group, a.clients) == (&b.group, b.clients)) {
        out.push_str("<tbody>\n");
        for (line, summary) in same.iter().enumerate() {
            let place = compared.iter().position(|c| c.name == summary.candidate);
            let mark = place.map_or_else(String::new, |at| marks::inline(at, summary.role));
            let standing = view.metric.standing_of_group(report, summary);
            out.push_str("<tr>");
            if line == 0 {
                out.push_str(&format!(
                    "<th scope=\"rowgroup\" rowspan=\"{}\" class=\"group\">{}</th>",
                    same.len(),
                    breakable(&group_label(report, summary))
                ));
            }
            out.push_str(&format!(
                "<th scope=\"row\">{mark}{}</th>{}<td class=\"num {}\" data-c=\"median\"><b>{}</b> \
                 {}</td>{}<td class=\"at\" data-c=\"worst\">{}</td>\
                 <td class=\"at\" data-c=\"best\">{}</td></tr>\n",
                breakable(&summary.candidate),
                numbers(&[
                    ("count", summary.count.to_string()),
                    ("min", ratio(summary.min)),
                    ("max", ratio(summary.max)),
                    ("avg", ratio(summary.avg)),
                ]),
                class(standing),
                ratio(summary.median),
                sign(standing, view.metric),
                numbers(&[(
                    "stddev",
                    summary.stddev.map_or_else(|| "–".to_owned(), |value| format!("{value:.3}")),
                )]),
                named(report, summary, &summary.worst),
                named(report, summary, &summary.best),
            ));
        }
        out.push_str("</tbody>\n");
    }
    out.push_str("</table></div>\n");
    out
}

fn numbers(numbers: &[(&str, String)]) -> String {
    let cell = |(label, text): &(&str, String)| {
        format!("<td class=\"num\" data-c=\"{label}\">{text}</td>")
    };
    numbers.iter().map(cell).collect()
}

/// A microbenchmark's name, as a link to its figures.
fn named(report: &Report, summary: &GroupSummary, name: &str) -> String {
    let mut all = report.microbenchmarks.iter();
    match all.position(|one| one.name == name && one.clients == summary.clients) {
        Some(place) => format!("<a class=\"open\" href=\"#m{place}\">{}</a>", breakable(name)),
        None => esc(name).to_string(),
    }
}
