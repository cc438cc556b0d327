//! The report as one self-contained page that works offline and without scripts.
//!
//! Everything is drawn here, charts included: inline SVG with colours from CSS variables. A chart
//! library's SVG carries its own fixed colours and cannot follow dark mode, a toggle or the
//! keyboard. Both toggles are radio buttons that CSS acts on, so that they work without scripts;
//! the script only turns the figures of a microbenchmark into a dialog and moves the focus with
//! the arrow keys. It needs no data of its own, so the page carries none twice.

mod builds;
mod candidates;
mod comparison;
mod counters;
mod detail;
mod distribution;
pub(crate) mod escape;
mod facts;
pub(crate) mod key;
pub(crate) mod marks;
mod notes;
mod operations;
mod optimizations;
pub(crate) mod scale;
mod state_snapshots;
mod summaries;
mod sweep;

use crate::inserts;
use crate::metric::{Grouping, Metric, compared};
use crate::model::{Report, Role, RunStatus};
use escape::esc;

const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/script.js");

/// Draws the page.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut out = head(&report.name);
    out.push_str(&marks::definitions());
    let first = if report.insert.is_some() { "inserts" } else { "comparison" };
    out.push_str(&format!("<a class=\"skip\" href=\"#{first}\">Skip to the comparison</a>\n"));
    out.push_str(&header(report));
    out.push_str("<main>\n");
    out.push_str(&notes::failures_and_warnings(report));
    if let Some(insert) = &report.insert {
        out.push_str(&legend_alone(report));
        out.push_str(&inserts::html(insert));
    } else {
        out.push_str(&toggles(report));
        out.push_str(&key::render(report));
    }
    if !report.microbenchmarks.is_empty() {
        out.push_str(&measured(report));
    }
    out.push_str(&builds::render(report));
    out.push_str(&candidates::render(report));
    out.push_str(&optimizations::render(report));
    out.push_str(&state_snapshots::render(report));
    out.push_str(&facts::render(report));
    out.push_str("</main>\n");
    out.push_str(&notes::footer(report));
    out.push_str(&format!("<script>\n{SCRIPT}</script>\n</body>\n</html>\n"));
    out
}

/// Everything up to the page's body.
pub(crate) fn head(title: &str) -> String {
    let mut out = String::with_capacity(1 << 20);
    out.push_str("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    // Nothing may be loaded from anywhere: a mistake here fails in every browser.
    out.push_str(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n",
    );
    out.push_str(&format!("<title>{} – dbdyno</title>\n", esc(title)));
    out.push_str(&format!("<style>\n{STYLE}</style>\n</head>\n<body>\n"));
    out
}

/// All tables and charts.
fn measured(report: &Report) -> String {
    let mut out = sweep::render(report);
    out.push_str("<section id=\"comparison\" aria-labelledby=\"h-comparison\">\n");
    out.push_str("<h2 id=\"h-comparison\">Microbenchmarks</h2>\n");
    out.push_str(&notes::how_to_read(report));
    for view in views(report) {
        out.push_str(&comparison::render(report, view));
    }
    out.push_str("</section>\n");
    out.push_str(&summaries::render(report));
    out.push_str(&counters::render(report));
    out.push_str(&detail::render(report));
    out
}

/// One setting of the two toggles.
#[derive(Clone, Copy)]
struct View {
    grouping: Grouping,
    metric: Metric,
}

impl View {
    /// The classes that the style sheet hides by.
    const fn class(self) -> &'static str {
        match (self.grouping, self.metric) {
            (Grouping::Five, Metric::Qps) => "view five qps",
            (Grouping::Five, Metric::Cpu) => "view five cpu",
            (Grouping::Three, Metric::Qps) => "view three qps",
            (Grouping::Three, Metric::Cpu) => "view three cpu",
        }
    }
}

/// The settings that have something to show: without any CPU time there is one metric only.
fn views(report: &Report) -> impl Iterator<Item = View> {
    VIEWS.into_iter().filter(|view| view.metric.is_known(report))
}

const VIEWS: [View; 4] = [
    View { grouping: Grouping::Five, metric: Metric::Qps },
    View { grouping: Grouping::Five, metric: Metric::Cpu },
    View { grouping: Grouping::Three, metric: Metric::Qps },
    View { grouping: Grouping::Three, metric: Metric::Cpu },
];

fn header(report: &Report) -> String {
    let (class, status) = match report.status {
        RunStatus::Complete => ("complete", "complete"),
        RunStatus::Incomplete => ("incomplete", "incomplete: can be resumed"),
    };
    let system = report.candidates.iter().find(|candidate| candidate.role == Role::Baseline);
    let noise = report.noise.as_ref().map_or_else(
        || "unknown: no control".to_owned(),
        |noise| format!("{} typical, {} at most", noise.typical, noise.greatest),
    );
    let count = compared(report).iter().filter(|c| c.role == Role::Candidate).count();
    let (work, spread) = match &report.insert {
        None => (format!("{} microbenchmarks", report.microbenchmarks.len()), noise),
        Some(insert) => (
            "insert benchmark".to_owned(),
            match insert.repeats {
                1 => "unknown: one repeat".to_owned(),
                repeats => format!("over {repeats} repeats, in every table"),
            },
        ),
    };
    let label = if report.insert.is_some() { "Spread" } else { "Noise floor" };
    let facts = [
        ("Started", readable(&report.started)),
        ("Measured", format!("{} of {}", report.measuring_time, report.elapsed)),
        ("Baseline", report.baseline.clone()),
        ("System", system.map_or_else(String::new, |baseline| baseline.system.clone())),
        ("Compared", format!("{count} × {work}")),
        (label, spread),
    ];
    let mut out = format!(
        "<header>\n<p class=\"brand\">dbdyno {}</p>\n<h1>{}</h1>\n\
         <p class=\"status {class}\">{status}</p>\n<dl class=\"strip\">\n",
        esc(&report.version),
        esc(&report.name)
    );
    for (label, value) in facts {
        out.push_str(&format!("<div><dt>{label}</dt><dd>{}</dd></div>\n", esc(&value)));
    }
    out.push_str("</dl>\n</header>\n");
    out
}

/// `2026-03-01T09:30:00Z` as `2026-03-01 09:30 UTC`; anything else as it is.
fn readable(started: &str) -> String {
    match (started.split_once('T'), started.strip_suffix('Z')) {
        (Some((date, time)), Some(_)) if time.len() >= 5 && time.is_char_boundary(5) => {
            format!("{date} {} UTC", &time[..5])
        }
        _ => started.to_owned(),
    }
}

fn toggles(report: &Report) -> String {
    let mut out = String::from("<div class=\"toolbar\">\n");
    if Metric::Cpu.is_known(report) {
        out.push_str(
            "<fieldset><legend>Metric</legend>\
             <input type=\"radio\" name=\"metric\" id=\"t-qps\" checked>\
             <label for=\"t-qps\">QPS</label>\
             <input type=\"radio\" name=\"metric\" id=\"t-cpu\">\
             <label for=\"t-cpu\">CPU per query</label></fieldset>\n",
        );
    }
    out.push_str(
        "<fieldset><legend>Groups</legend>\
         <input type=\"radio\" name=\"groups\" id=\"t-five\" checked><label for=\"t-five\">five</label>\
         <input type=\"radio\" name=\"groups\" id=\"t-three\"><label for=\"t-three\">three</label>\
         </fieldset>\n",
    );
    out.push_str(&legend(report));
    out.push_str("</div>\n");
    out
}

/// The candidates' marks, where there is nothing to choose.
fn legend_alone(report: &Report) -> String {
    format!("<div class=\"toolbar\">\n{}</div>\n", legend(report))
}

/// What the marks stand for; of an insert benchmark the baseline has its own lines, too.
fn legend(report: &Report) -> String {
    let mut out = String::from("<ul class=\"legend\" aria-label=\"Marks of the candidates\">");
    if report.insert.is_some() {
        let mark = marks::inline(0, Role::Baseline);
        out.push_str(&format!("<li>{mark}{} (baseline)</li>", esc(&report.baseline)));
    }
    for (place, candidate) in compared(report).into_iter().enumerate() {
        let mark = marks::inline(place, candidate.role);
        out.push_str(&format!("<li>{mark}{}</li>", esc(&candidate.name)));
    }
    out.push_str("</ul>\n");
    out
}

#[cfg(test)]
mod tests;
