//! What one operation costs: absolute figures, then the same relative to the baseline.

use super::detail::micros;
use super::escape::{breakable, esc};
use super::marks;
use crate::metric::compared;
use crate::model::{MicrobenchmarkRows, Report};
use crate::operations::{Line, table};

pub(super) fn render(report: &Report, microbenchmark: &MicrobenchmarkRows) -> String {
    let (figures, lines) = table(report, microbenchmark);
    let mut out = String::from(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Per query\">\
         <table class=\"facts operations\"><thead><tr><th scope=\"col\">Per query</th>",
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
    body("absolute", lines.iter().map(|line| row(report, line, &line.absolute, micros)).collect());
    let relative = lines.iter().filter_map(|line| {
        let cells = line.relative.as_ref()?;
        Some(row(report, line, cells, |value| format!("{value:.3}")))
    });
    body(&format!("relative to {}", esc(&report.baseline)), relative.collect());
    out.push_str("</table></div>\n");
    out
}

fn row(
    report: &Report,
    line: &Line<'_>,
    cells: &[Option<f64>],
    write: impl Fn(f64) -> String,
) -> String {
    let place = compared(report).iter().position(|one| one.name == line.candidate.name);
    let mut out = format!(
        "<tr><th scope=\"row\">{}{}</th>",
        marks::inline(place.unwrap_or(0), line.candidate.role),
        breakable(&line.candidate.name)
    );
    for cell in cells {
        let text = cell.map_or_else(|| "–".to_owned(), &write);
        out.push_str(&format!("<td class=\"num\">{text}</td>"));
    }
    out.push_str("</tr>\n");
    out
}
