//! Where and how it was measured: host, settings, the experiment file.

use super::escape::esc;
use crate::model::Report;

pub(super) fn render(report: &Report) -> String {
    let mut out = String::from("<div class=\"grid two\">\n");
    out.push_str(&pairs("Host", "host", &report.host));
    out.push_str(&pairs("Settings", "settings", &report.settings));
    out.push_str(&format!(
        "</div>\n<section aria-labelledby=\"h-experiment\" id=\"experiment\">\n\
         <h2 id=\"h-experiment\">{}</h2>\n<pre tabindex=\"0\">{}</pre>\n</section>\n",
        if report.is_imported() { "Imported files" } else { "Experiment file" },
        esc(&report.experiment_text)
    ));
    out
}

fn pairs(title: &str, id: &str, pairs: &[(String, String)]) -> String {
    let mut out = format!(
        "<section aria-labelledby=\"h-{id}\" id=\"{id}\">\n<h2 id=\"h-{id}\">{title}</h2>\n"
    );
    if pairs.is_empty() {
        out.push_str("<p class=\"muted\">Nothing recorded.</p>\n</section>\n");
        return out;
    }
    out.push_str("<dl class=\"pairs card\">\n");
    for (label, value) in pairs {
        out.push_str(&format!("<div><dt>{}</dt><dd>{}</dd></div>\n", esc(label), esc(value)));
    }
    out.push_str("</dl>\n</section>\n");
    out
}
