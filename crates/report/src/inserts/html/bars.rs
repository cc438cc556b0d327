//! Throughput relative to the baseline, step by step: one bar per candidate.

use std::fmt::Write;

use crate::html::escape::{breakable, esc};
use crate::html::marks;
use crate::html::scale::Scale;
use crate::inserts::model::{InsertReport, StepReport};
use crate::inserts::terminal::ratio_text;
use crate::model::Role;

/// Pixels of a bar's row.
const ROW: u32 = 22;

/// The chart; nothing with a baseline only.
pub(super) fn render(report: &InsertReport) -> String {
    let bars: Vec<Bar<'_>> = report.steps.iter().flat_map(of_step).collect();
    if bars.is_empty() {
        return String::new();
    }
    let values = bars.iter().flat_map(|bar| {
        let (low, high) = bar.spread.unwrap_or((bar.ratio, bar.ratio));
        [bar.ratio, low, high]
    });
    let scale = Scale::covering(values);
    let title = format!(
        "Throughput relative to the baseline, {} client{} on {} table{}",
        report.clients,
        if report.clients == 1 { "" } else { "s" },
        report.tables,
        if report.tables == 1 { "" } else { "s" }
    );
    let mut out = format!(
        "<div class=\"scroll\" tabindex=\"0\">\n<table class=\"relatives\">\n\
         <caption>{}</caption>\n<thead><tr><th scope=\"col\">Step</th><th scope=\"col\">Candidate\
         </th><th scope=\"col\" class=\"num\">Ratio</th><th class=\"chart\"><svg class=\"axis\" \
         aria-hidden=\"true\">{}</svg></th></tr></thead>\n",
        esc(&title),
        scale.labels(13)
    );
    for step in &report.steps {
        let of_step: Vec<&Bar<'_>> = bars.iter().filter(|bar| bar.step == step.name).collect();
        if of_step.is_empty() {
            continue;
        }
        out.push_str("<tbody>\n");
        for (number, bar) in of_step.iter().enumerate() {
            out.push_str("<tr>");
            if number == 0 {
                let _ = write!(
                    out,
                    "<th scope=\"rowgroup\" rowspan=\"{}\" class=\"group\"><a \
                     href=\"#step-{1}\">{1}</a> <small>{2}</small></th>",
                    of_step.len(),
                    esc(bar.step),
                    bar.unit
                );
            }
            out.push_str(&bar.row(&scale));
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody>\n");
    }
    out.push_str("</table>\n</div>\n");
    out
}

struct Bar<'a> {
    step: &'a str,
    unit: &'static str,
    candidate: &'a str,
    place: usize,
    role: Role,
    ratio: f64,
    spread: Option<(f64, f64)>,
    unsustained: bool,
}

fn of_step(step: &StepReport) -> Vec<Bar<'_>> {
    let Some(unit) = step.throughput() else { return Vec::new() };
    let baseline_unsustained = step
        .candidates
        .iter()
        .any(|one| one.role == Role::Baseline && one.sustained() == Some(false));
    step.candidates
        .iter()
        .filter_map(|candidate| {
            let ratio = candidate.relative.as_ref()?.get(unit)?;
            let spread = candidate
                .relative_spread
                .as_ref()
                .and_then(|(low, high)| Some((low.get(unit)?, high.get(unit)?)));
            Some(Bar {
                step: &step.name,
                unit,
                candidate: &candidate.candidate,
                place: candidate.place,
                role: candidate.role,
                ratio,
                spread,
                unsustained: baseline_unsustained || candidate.sustained() == Some(false),
            })
        })
        .collect()
}

impl Bar<'_> {
    fn row(&self, scale: &Scale) -> String {
        let class = marks::class(self.place, self.role);
        let (one, end) = (scale.clamped(1.0), scale.clamped(self.ratio));
        let middle = ROW / 2;
        let mut svg = format!(
            "<svg class=\"lanes\" aria-hidden=\"true\">{}<g class=\"{class}\"><rect \
             class=\"value\" x=\"{:.2}%\" width=\"{:.2}%\" y=\"4\" height=\"{}\"/>",
            scale.grid(None),
            one.min(end),
            (end - one).abs().max(0.15),
            ROW - 8
        );
        if let Some((low, high)) = self.spread {
            let (low, high) = (scale.clamped(low), scale.clamped(high));
            let _ = write!(
                svg,
                "<line class=\"whisker\" x1=\"{low:.2}%\" x2=\"{high:.2}%\" y1=\"{middle}\" \
                 y2=\"{middle}\"/>"
            );
        }
        svg.push_str("</g></svg>");
        let mark = if self.unsustained {
            " <abbr class=\"worse\" title=\"the rate of inserts was not sustained\">!</abbr>"
        } else {
            ""
        };
        format!(
            "<td>{}{}</td><td class=\"num\"><b>{}</b>{mark}</td><td class=\"chart\">{svg}</td>",
            marks::inline(self.place, self.role),
            breakable(self.candidate),
            ratio_text(self.ratio)
        )
    }
}
