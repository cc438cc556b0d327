//! What the live optimizer did to servers: a table with a row for each time.

use super::escape::{breakable, esc};
use crate::figures::whole;
use crate::model::{Optimization, Report};

pub(super) fn render(report: &Report) -> String {
    if report.optimizations.is_empty() {
        return String::new();
    }
    let mut out = String::from(
        "<section aria-labelledby=\"h-optimizations\" id=\"optimizations\">\n\
         <h2 id=\"h-optimizations\">Live optimizer</h2>\n<p class=\"muted\">Hot code of these servers \
         was laid out anew while they ran, after a warm-up that all candidates had.</p>\n\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Live optimizer\">\
         <table class=\"facts\"><thead><tr>",
    );
    for heading in ["Candidate", "Trained with", "Before", "Sampled by"] {
        out.push_str(&format!("<th scope=\"col\">{heading}</th>"));
    }
    for heading in ["Samples", "Functions moved", "Left alone", "Hot", "Cold", "Stopped", "Took"] {
        out.push_str(&format!("<th scope=\"col\" class=\"num\">{heading}</th>"));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for optimization in &report.optimizations {
        out.push_str(&row(optimization));
    }
    out.push_str("</tbody></table></div>\n</section>\n");
    out
}

fn row(one: &Optimization) -> String {
    let layout = &one.layout;
    let again = if one.again { " (started again)" } else { "" };
    let before = format!("{}{again}", one.before);
    let before = esc(&before);
    let covered = layout.covered.map_or_else(|| "–".to_owned(), |share| share.to_string());
    let unchanged = layout.unchanged.as_ref().map_or_else(String::new, |(count, reason)| {
        format!(" {count} left as they were: {}", esc(reason))
    });
    let processes = match layout.processes {
        1 => String::new(),
        count => format!(" in {count} processes"),
    };
    let left_alone: u64 = layout.left_alone.iter().map(|(_, count)| count).sum();
    let mut out = format!(
        "<tr><th scope=\"row\">{}</th><td>{}</td><td>{before}{processes}{unchanged}</td><td>{}</td>",
        breakable(&one.candidate),
        esc(&one.trained_with),
        esc(&layout.source),
    );
    for figure in [
        format!("{} ({covered} moved)", whole(layout.samples)),
        whole(layout.functions),
        whole(left_alone),
        layout.hot.to_string(),
        layout.cold.to_string(),
        layout.longest_stop.to_string(),
        layout.took.to_string(),
    ] {
        out.push_str(&format!("<td class=\"num\">{figure}</td>"));
    }
    out.push_str("</tr>\n");
    out
}
