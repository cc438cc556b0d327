//! The comparison as one self-contained page, in the manner of a report's.

use super::terminal::standing;
use super::{Agreement, Cell, Column, Comparison, GroupRow, RatioRow};
use crate::figures::{ends, ratio};
use crate::html::escape::{breakable, esc};
use crate::html::key::{class, sign};
use crate::html::marks;
use crate::html::scale::Scale;
use crate::metric::Metric;
use crate::model::{Estimate, GroupSummary, Role, Verdict};

/// Draws the page.
#[must_use]
pub fn html(comparison: &Comparison) -> String {
    let runs = comparison.columns.len();
    let title = format!("{runs} runs side by side");
    let mut out = crate::html::head(&title);
    out.push_str(&marks::definitions());
    out.push_str(&format!(
        "<header>\n<p class=\"brand\">dbdyno</p>\n<h1>{title}</h1>\n</header>\n<main>\n"
    ));
    out.push_str(&notes(comparison));
    out.push_str(&columns(comparison));
    let mut candidates: Vec<&str> = comparison.rows.iter().map(|r| r.candidate.as_str()).collect();
    candidates.dedup();
    for candidate in candidates {
        out.push_str(&format!("<section>\n<h2>{}</h2>\n", breakable(candidate)));
        out.push_str(&groups(comparison, candidate));
        let rows: Vec<&RatioRow> =
            comparison.rows.iter().filter(|row| row.candidate == candidate).collect();
        for of_group in rows.chunk_by(|a, b| a.group == b.group) {
            out.push_str(&microbenchmarks(comparison, of_group));
        }
        out.push_str("</section>\n");
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn notes(comparison: &Comparison) -> String {
    if comparison.notes.is_empty() {
        return String::new();
    }
    let items: String =
        comparison.notes.iter().map(|note| format!("<li>{}</li>\n", esc(note))).collect();
    format!(
        "<section class=\"note warning\" aria-labelledby=\"h-notes\">\n<h2 id=\"h-notes\">Before \
         comparing</h2>\n<ul>\n{items}</ul>\n</section>\n"
    )
}

fn columns(comparison: &Comparison) -> String {
    let mut out = String::from(
        "<section aria-labelledby=\"h-runs\">\n<h2 id=\"h-runs\">Runs</h2>\n<div class=\"scroll \
         cards\" tabindex=\"0\" role=\"region\" aria-label=\"Runs\"><table class=\"groups\">\
         <thead><tr>",
    );
    const TITLES: [&str; 6] =
        ["Run", "Machine", "Clients", "Tables × rows", "Baseline", "Noise floor"];
    for title in TITLES {
        out.push_str(&format!("<th scope=\"col\">{title}</th>"));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for (place, column) in comparison.columns.iter().enumerate() {
        let Column { label, run, machine, clients, data, baseline, noise } = column;
        let cell = |title: &str, text: &str| {
            format!("<td class=\"at\" data-c=\"{title}\">{}</td>", esc(text))
        };
        out.push_str(&format!(
            "<tr><th scope=\"row\">{}<b>{label}</b> {}</th>{}{}{}{}{}</tr>\n",
            mark(place),
            breakable(run),
            cell("machine", machine),
            cell("clients", &clients.to_string()),
            cell("tables × rows", data.as_deref().unwrap_or("–")),
            cell("baseline", baseline),
            cell("noise floor", noise),
        ));
    }
    out.push_str("</tbody></table></div>\n</section>\n");
    out
}

fn mark(place: usize) -> String {
    marks::inline(place, Role::Candidate)
}

fn groups(comparison: &Comparison, candidate: &str) -> String {
    let mut out = String::from(
        "<h3>Groups <small>relative QPS, median with min and max below; worst and best by \
         name</small></h3>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" \
         aria-label=\"Groups\"><table class=\"facts\"><thead><tr><th scope=\"col\">Group</th>",
    );
    for (place, column) in comparison.columns.iter().enumerate() {
        out.push_str(&format!(
            "<th scope=\"col\" class=\"num\">{}{}</th>",
            mark(place),
            esc(&column.label)
        ));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in comparison.groups.iter().filter(|row| row.candidate == candidate) {
        let GroupRow { group, cells, .. } = row;
        out.push_str(&format!("<tr><th scope=\"row\">{}</th>", breakable(group)));
        for cell in cells {
            out.push_str(&group_cell(cell.as_ref()));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    out
}

fn group_cell(summary: Option<&GroupSummary>) -> String {
    let Some(summary) = summary else { return "<td class=\"num\">–</td>".to_owned() };
    format!(
        "<td class=\"num\"><b>{}</b><small>{} – {}</small><small>worst {}</small>\
         <small>best {}</small></td>",
        ratio(summary.median),
        ratio(summary.min),
        ratio(summary.max),
        breakable(&summary.worst),
        breakable(&summary.best)
    )
}

fn microbenchmarks(comparison: &Comparison, rows: &[&RatioRow]) -> String {
    let estimates: Vec<(f64, f64, f64)> = rows
        .iter()
        .flat_map(|row| row.cells.iter().flatten())
        .filter_map(whole)
        .map(|e| (e.low.get(), e.median.get(), e.high.get()))
        .collect();
    let scale = Scale::of_estimates(&estimates);
    let group = rows.first().map_or("", |row| row.group.as_str());
    let fits = if comparison.columns.len() <= 4 { " fits" } else { "" };
    let mut out = format!(
        "<h3>{} <small>relative QPS, above 1 is better</small></h3>\n<div class=\"scroll \
         compare{fits}\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">\n<table>\n<thead><tr>\
         <th scope=\"col\">Microbenchmark</th><th scope=\"col\" class=\"chart\"><span \
         class=\"hidden\">Chart of the figures in the next columns</span><svg class=\"axis\" \
         aria-hidden=\"true\">{}</svg></th>",
        esc(group),
        esc(group),
        scale.labels(14)
    );
    for (place, column) in comparison.columns.iter().enumerate() {
        out.push_str(&format!(
            "<th scope=\"col\" class=\"num\">{}{}</th>",
            mark(place),
            esc(&column.label)
        ));
    }
    out.push_str("<th scope=\"col\">Together</th></tr></thead>\n<tbody>\n");
    for row in rows {
        out.push_str(&format!(
            "<tr><th scope=\"row\">{}</th><td class=\"chart\">{}</td>",
            breakable(&row.microbenchmark),
            chart(&scale, &row.cells)
        ));
        for (column, cell) in comparison.columns.iter().zip(&row.cells) {
            out.push_str(&figure(column, cell.as_ref()));
        }
        let words = row.agreement.words(&comparison.columns);
        let differs = matches!(row.agreement, Agreement::OneDiffers { .. } | Agreement::Split);
        let words =
            if differs { format!("<b>{}</b>", esc(&words)) } else { esc(&words).to_string() };
        out.push_str(&format!("<td class=\"at\">{words}</td></tr>\n"));
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
    out
}

fn figure(column: &Column, cell: Option<&Cell>) -> String {
    let name = esc(&column.label);
    let Some(cell) = cell else {
        return format!("<td class=\"num\" data-c=\"{name}\">–</td>");
    };
    let standing = standing(cell.verdict);
    let class = class(standing);
    let Some(value) = cell.ratio else {
        let words = if cell.verdict == Verdict::Failed { "failed" } else { "too few blocks" };
        return format!("<td class=\"num {class}\" data-c=\"{name}\">{words}</td>");
    };
    format!(
        "<td class=\"num {class}\" data-c=\"{name}\"><b>{}</b> {}<small>{}</small></td>",
        ratio(value),
        sign(standing, Metric::Qps),
        cell.estimate.map_or_else(|| "–".to_owned(), ends)
    )
}

/// The interval as far as there is one.
fn whole(cell: &Cell) -> Option<Estimate> {
    let alone = || cell.ratio.map(|ratio| Estimate { median: ratio, low: ratio, high: ratio });
    cell.estimate.or_else(alone)
}

/// A lane per run.
fn chart(scale: &Scale, cells: &[Option<Cell>]) -> String {
    let mut out = format!("<svg class=\"lanes\" aria-hidden=\"true\">{}", scale.grid(None));
    for (place, cell) in cells.iter().enumerate() {
        let Some((cell, estimate)) = cell.as_ref().and_then(|cell| Some((cell, whole(cell)?)))
        else {
            continue;
        };
        let y = 10.0 + 80.0 * (place as f64 + 0.5) / cells.len() as f64;
        let [low, median, high] =
            [estimate.low, estimate.median, estimate.high].map(|end| scale.clamped(end.get()));
        let one = scale.clamped(1.0);
        let line = |class: &str, from: f64, to: f64| {
            format!(
                "<line class=\"{class}\" x1=\"{from:.2}%\" x2=\"{to:.2}%\" y1=\"{y:.1}%\" \
                 y2=\"{y:.1}%\"/>"
            )
        };
        out.push_str(&format!(
            "<g class=\"{} {}\">{}{}<use class=\"dot\" href=\"#{}\" x=\"{median:.2}%\" \
             y=\"{y:.1}%\"/></g>",
            marks::class(place, Role::Candidate),
            class(standing(cell.verdict)),
            line("bar", one, median),
            line("whisker", low, high),
            marks::shape(place, Role::Candidate),
        ));
    }
    out.push_str("</svg>");
    out
}
