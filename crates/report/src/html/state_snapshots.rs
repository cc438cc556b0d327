//! Where the instances stood: a table per point of time.

use super::escape::{breakable, esc};
use crate::figures::whole;
use crate::model::{Report, StateSnapshots};

pub(super) fn render(report: &Report) -> String {
    if report.state_snapshots.is_empty() {
        return String::new();
    }
    let mut out = String::from(
        "<section aria-labelledby=\"h-states\" id=\"states\">\n<h2 id=\"h-states\">States of the \
         data</h2>\n<p class=\"muted\">What every instance said of itself once it had settled: \
         candidates are compared from states like these.</p>\n",
    );
    for (place, state_snapshots) in report.state_snapshots.iter().enumerate() {
        let open = if place == 0 { " open" } else { "" };
        out.push_str(&format!(
            "<details class=\"figures\"{open}><summary>{}</summary>\n{}</details>\n",
            esc(&state_snapshots.at),
            table(state_snapshots)
        ));
    }
    out.push_str("</section>\n");
    out
}

fn table(state_snapshots: &StateSnapshots) -> String {
    let mut out = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"States {}\">\
         <table class=\"facts\"><thead><tr><th scope=\"col\">State</th>",
        esc(&state_snapshots.at)
    );
    for candidate in &state_snapshots.candidates {
        out.push_str(&format!("<th scope=\"col\" class=\"num\">{}</th>", breakable(candidate)));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for (name, values) in &state_snapshots.state {
        out.push_str(&format!("<tr><th scope=\"row\">{}</th>", breakable(name)));
        for value in values {
            let text = value.map_or_else(|| "–".to_owned(), whole);
            out.push_str(&format!("<td class=\"num\">{text}</td>"));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    out
}
