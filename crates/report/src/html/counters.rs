//! What the CPU and the kernel counted, by group, and what they could not count.

use super::escape::{breakable, esc};
use super::marks;
use dbdyno_units::Share;

use crate::counters::{CounterFigure, is_any};
use crate::figures::ratio;
use crate::metric::{clients, compared};
use crate::model::{CounterSummary, Report};

/// The section; nothing where nobody tried to count.
pub(super) fn render(report: &Report) -> String {
    if !is_any(report) {
        return String::new();
    }
    let mut out = String::from(
        "<section aria-labelledby=\"h-counters\" id=\"counters\">\n\
         <h2 id=\"h-counters\">Counters</h2>\n<p class=\"muted\">What the CPU and the kernel \
         counted for the system under test in its slices, without what a server did in the \
         background between them. The counts of each microbenchmark are among its figures.</p>\n",
    );
    if let Some(share) = taking_turns(report) {
        out.push_str(&format!(
            "<p class=\"muted\">The CPU has fewer counters than were wanted: they took turns, and \
             were at work for at least {share} of the time. Their counts are estimates.</p>\n"
        ));
    }
    for one in &report.not_counted {
        let advice = one
            .advice
            .as_ref()
            .map_or_else(String::new, |advice| format!("<small> – {}</small>", esc(advice)));
        out.push_str(&format!("<p>{}{advice}</p>\n", esc(&one.line())));
    }
    if !report.counter_groups.is_empty() {
        out.push_str(&groups(report));
    }
    out.push_str("</section>\n");
    out
}

/// The least share of the time that a counter was at work; `None` where all were all the time.
fn taking_turns(report: &Report) -> Option<Share> {
    let absolutes = report.microbenchmarks.iter().flat_map(|one| {
        std::iter::once(&one.baseline).chain(one.rows.iter().map(|row| &row.absolute))
    });
    let least =
        absolutes.filter_map(|own| own.counted_time).reduce(|a, b| if b < a { b } else { a });
    // Starting and stopping a counter costs it a moment.
    least.filter(|share| share.as_fraction() < 0.99)
}

fn groups(report: &Report) -> String {
    let mut out = String::from(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Counters by group\">\
         <table class=\"groups\"><caption class=\"hidden\">Counted relative to the baseline, by \
         group and candidate</caption><thead><tr><th scope=\"col\">Group</th>\
         <th scope=\"col\">Candidate</th><th scope=\"col\" class=\"num\">Count</th>",
    );
    for figure in CounterFigure::OF_GROUPS {
        out.push_str(&format!("<th scope=\"col\" class=\"num\">{}</th>", figure.title()));
    }
    out.push_str("</tr></thead>\n");
    let compared = compared(report);
    let place = |name: &str| compared.iter().position(|one| one.name == name).unwrap_or(0);
    let group = |one: &CounterSummary| (one.group.clone(), one.clients);
    let candidate = |one: &CounterSummary| one.candidate.clone();
    for of_group in report.counter_groups.chunk_by(|a, b| group(a) == group(b)) {
        let members: Vec<&[CounterSummary]> =
            of_group.chunk_by(|a, b| candidate(a) == candidate(b)).collect();
        out.push_str("<tbody>\n");
        for (line, figures) in members.iter().enumerate() {
            let first = &figures[0];
            out.push_str("<tr>");
            if line == 0 {
                let name = match report.is_sweep() {
                    true => format!("{}, {}", first.group, clients(first.clients)),
                    false => first.group.clone(),
                };
                out.push_str(&format!(
                    "<th scope=\"rowgroup\" rowspan=\"{}\" class=\"group\">{}</th>",
                    members.len(),
                    breakable(&name)
                ));
            }
            out.push_str(&format!(
                "<th scope=\"row\">{}{}</th><td class=\"num\" data-c=\"count\">{}</td>",
                marks::inline(place(&first.candidate), first.role),
                breakable(&first.candidate),
                first.count
            ));
            for figure in CounterFigure::OF_GROUPS {
                let found = figures.iter().find(|one| one.figure == figure);
                let text = found.map_or_else(|| "–".to_owned(), median);
                out.push_str(&format!("<td class=\"num\" data-c=\"median\">{text}</td>"));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody>\n");
    }
    out.push_str("</table></div>\n");
    out
}

/// The median, with the least and the greatest of several.
fn median(one: &CounterSummary) -> String {
    let spread = match one.count {
        1 => String::new(),
        _ => format!("<small>{} – {}</small>", ratio(one.min), ratio(one.max)),
    };
    format!("<b>{}</b>{spread}", ratio(one.median))
}
