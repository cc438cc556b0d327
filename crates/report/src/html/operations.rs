//! What one operation costs: absolute figures, then the same relative to the baseline.

use super::detail::micros;
use super::escape::{breakable, esc};
use super::marks;
use crate::figures::{ends, tiny};
use crate::metric::compared;
use crate::model::{MicrobenchmarkRows, Report};
use crate::operations::{COSTS, COUNTS, Figure, Line, table};

pub(super) fn render(report: &Report, microbenchmark: &MicrobenchmarkRows) -> String {
    let costs = one(report, microbenchmark, &COSTS, "Per query", micros);
    // Large counts as whole numbers, and none of a rare thing as 0.
    let count = |value: f64| if value < 1.0 { tiny(value) } else { micros(value) };
    costs + &one(report, microbenchmark, &COUNTS, "Counted per query", count)
}

/// A table; nothing where no figure is known.
fn one(
    report: &Report,
    microbenchmark: &MicrobenchmarkRows,
    all: &'static [Figure],
    title: &str,
    write: impl Fn(f64) -> String + Copy,
) -> String {
    let (figures, lines) = table(report, microbenchmark, all);
    if figures.is_empty() {
        return String::new();
    }
    let mut out = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\">\
         <table class=\"facts operations\"><thead><tr><th scope=\"col\">{title}</th>"
    );
    for figure in &figures {
        out.push_str(&format!("<th scope=\"col\" class=\"num\">{}</th>", esc(figure.long)));
    }
    out.push_str("</tr></thead>\n");
    let columns = figures.len() + 1;
    let mut body = |title: &str, rows: Vec<String>| {
        out.push_str(&format!(
            "<tbody><tr><th scope=\"rowgroup\" colspan=\"{columns}\" class=\"block\">{title}</th>\
             </tr>\n{}</tbody>\n",
            rows.concat()
        ));
    };
    let absolute = lines
        .iter()
        .map(|line| row(report, line, line.absolute.iter().map(|cell| cell.map(write)).collect()));
    body("absolute", absolute.collect());
    let relative = lines.iter().filter_map(|line| {
        let cells = figures.iter().zip(line.relative.as_ref()?).map(|(figure, cell)| {
            let interval = figure
                .interval(line.row?)
                .map_or_else(String::new, |interval| format!("<small>{}</small>", ends(interval)));
            Some(format!("{:.3}{interval}", (*cell)?))
        });
        Some(row(report, line, cells.collect()))
    });
    body(&format!("relative to {}", esc(&report.baseline)), relative.collect());
    out.push_str("</table></div>\n");
    out
}

fn row(report: &Report, line: &Line<'_>, cells: Vec<Option<String>>) -> String {
    let place = compared(report).iter().position(|one| one.name == line.candidate.name);
    let mut out = format!(
        "<tr><th scope=\"row\">{}{}</th>",
        marks::inline(place.unwrap_or(0), line.candidate.role),
        breakable(&line.candidate.name)
    );
    for cell in cells {
        let text = cell.unwrap_or_else(|| "–".to_owned());
        out.push_str(&format!("<td class=\"num\">{text}</td>"));
    }
    out.push_str("</tr>\n");
    out
}
