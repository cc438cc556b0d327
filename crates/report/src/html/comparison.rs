//! One group: a row per microbenchmark with a chart of all candidates and their figures.
//!
//! The chart is a column of the table: the figures beside it are its text alternative, and one
//! axis serves all rows. Bars grow from the line at 1, never from 0, where a difference of a
//! percent could not be seen.

use super::escape::{breakable, esc};
use super::key::{class, sign};
use super::scale::Scale;
use super::{View, marks};
use crate::figures::{ends, ratio};
use crate::metric::{Metric, Standing, clients, compared, missing};
use crate::model::{CandidateSummary, Estimate, MicrobenchmarkRows, Report, Row};

pub(super) fn render(report: &Report, view: View) -> String {
    let mut out = format!("<div class=\"{}\">\n", view.class());
    for (group, members) in view.grouping.groups(&report.microbenchmarks) {
        out.push_str(&table(report, view, group, &members));
    }
    out.push_str("</div>\n");
    out
}

fn table(
    report: &Report,
    view: View,
    group: &str,
    members: &[(usize, &MicrobenchmarkRows)],
) -> String {
    let candidates = compared(report);
    let estimates: Vec<(f64, f64, f64)> = members
        .iter()
        .flat_map(|(_, microbenchmark)| &microbenchmark.rows)
        .filter_map(|row| whole_estimate(view.metric, row))
        .map(|e| (e.low.get(), e.median.get(), e.high.get()))
        .collect();
    let group_chart = GroupChart {
        report,
        metric: view.metric,
        scale: Scale::of_estimates(&estimates),
        candidates: &candidates,
    };
    // Up to here the table fits a wide page, and its head may stick to the window's top.
    let fits = if candidates.len() <= 5 { " fits" } else { "" };
    let trust = match (view.metric, group) {
        (Metric::Qps, "writes") if Metric::Cpu.is_known(report) => {
            "; for writes trust CPU per query"
        }
        _ => "",
    };
    let mut out = format!(
        "<h3>{} <small>{}, {}{trust}</small></h3>\n<div class=\"scroll compare{fits}\" \
         tabindex=\"0\" role=\"region\" aria-label=\"{}\">\n<table>\n<thead><tr>\
         <th scope=\"col\">Microbenchmark</th><th scope=\"col\" class=\"num base\">{}</th>\
         <th scope=\"col\" class=\"chart\"><span class=\"hidden\">Chart of the figures in the next \
         columns</span>{}</th>",
        esc(group),
        view.metric.title(),
        view.metric.better(),
        esc(group),
        match view.metric {
            Metric::Qps => "Baseline QPS",
            Metric::Cpu => "Baseline CPU µs",
        },
        group_chart.axis(),
    );
    for (place, candidate) in candidates.iter().enumerate() {
        out.push_str(&format!(
            "<th scope=\"col\" class=\"num\">{}{}</th>",
            marks::inline(place, candidate.role),
            breakable(&candidate.name)
        ));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for (place, microbenchmark) in members {
        out.push_str(&group_chart.row(*place, microbenchmark));
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
    out
}

/// The estimate for the chart; a ratio that stands alone has no whisker.
fn whole_estimate(metric: Metric, row: &Row) -> Option<Estimate> {
    let alone = || {
        let ratio = metric.ratio(row)?;
        Some(Estimate { median: ratio, low: ratio, high: ratio })
    };
    metric.estimate(row).or_else(alone)
}

struct GroupChart<'a> {
    report: &'a Report,
    metric: Metric,
    scale: Scale,
    candidates: &'a [&'a CandidateSummary],
}

impl GroupChart<'_> {
    fn axis(&self) -> String {
        format!("<svg class=\"axis\" aria-hidden=\"true\">{}</svg>", self.scale.labels(14))
    }

    fn row(&self, place: usize, microbenchmark: &MicrobenchmarkRows) -> String {
        let unit = if microbenchmark.throughput_unit == "statements/s" {
            String::new()
        } else {
            format!(" <small>{}</small>", esc(&microbenchmark.throughput_unit))
        };
        let (base, unit) = match self.metric {
            Metric::Qps => (microbenchmark.baseline.qps.map(|qps| qps.to_string()), unit),
            Metric::Cpu => {
                (microbenchmark.baseline.cpu_us_per_query.map(super::detail::micros), String::new())
            }
        };
        let at = match self.report.is_sweep() {
            true => format!(" <small>{}</small>", clients(microbenchmark.clients)),
            false => String::new(),
        };
        let mut out = format!(
            "<tr><th scope=\"row\"><a class=\"open\" href=\"#m{place}\">{}{at}</a></th>\
             <td class=\"num base\" data-c=\"baseline\">{}{unit}</td><td class=\"chart\">{}</td>",
            breakable(&microbenchmark.name),
            base.unwrap_or_else(|| "–".to_owned()),
            self.chart(microbenchmark)
        );
        for candidate in self.candidates {
            out.push_str(&self.cell(microbenchmark, candidate));
        }
        out.push_str("</tr>\n");
        out
    }

    fn cell(&self, microbenchmark: &MicrobenchmarkRows, candidate: &CandidateSummary) -> String {
        let name = esc(&candidate.name);
        let row = microbenchmark.rows.iter().find(|row| row.candidate == candidate.name);
        let Some(row) = row else {
            let word = missing(self.report, &candidate.name);
            return format!("<td class=\"num {word}\" data-c=\"{name}\">{word}</td>");
        };
        let standing = self.metric.standing(row);
        let Some(value) = self.metric.ratio(row) else {
            let words = match standing {
                Standing::Failed => "failed",
                _ if !self.metric.is_measured(row) => "–",
                _ => "too few blocks",
            };
            return format!("<td class=\"num {}\" data-c=\"{name}\">{words}</td>", class(standing));
        };
        format!(
            "<td class=\"num {}\" data-c=\"{name}\"><b>{}</b> {}<small>{}</small></td>",
            class(standing),
            ratio(value),
            sign(standing, self.metric),
            self.metric.estimate(row).map_or_else(|| "–".to_owned(), ends)
        )
    }

    /// The microbenchmark's part of the group's chart: a lane per candidate.
    fn chart(&self, microbenchmark: &MicrobenchmarkRows) -> String {
        let noise = self.metric.noise(self.report);
        let grid = self.scale.grid(noise.map(|noise| noise.as_fraction()));
        let mut out = format!("<svg class=\"lanes\" aria-hidden=\"true\">{grid}");
        let count = self.candidates.len() as f64;
        for (place, candidate) in self.candidates.iter().enumerate() {
            let row = microbenchmark.rows.iter().find(|row| row.candidate == candidate.name);
            let Some((row, estimate)) =
                row.and_then(|row| Some((row, whole_estimate(self.metric, row)?)))
            else {
                continue;
            };
            let standing = self.metric.standing(row);
            let y = 10.0 + 80.0 * (place as f64 + 0.5) / count;
            out.push_str(&format!(
                "<g class=\"{} {}\">{}</g>",
                marks::class(place, candidate.role),
                class(standing),
                self.lane(estimate, y, &marks::shape(place, candidate.role))
            ));
        }
        out.push_str("</svg>");
        out
    }

    /// A bar from 1 to the median, the interval as a whisker, and the candidate's mark.
    fn lane(&self, estimate: Estimate, y: f64, shape: &str) -> String {
        let line = |class: &str, from: f64, to: f64| {
            let (from, to) = (self.scale.clamped(from), self.scale.clamped(to));
            format!(
                "<line class=\"{class}\" x1=\"{from:.2}%\" x2=\"{to:.2}%\" y1=\"{y:.1}%\" y2=\"{y:.1}%\"/>"
            )
        };
        let (low, median, high) = (estimate.low.get(), estimate.median.get(), estimate.high.get());
        let mut out = line("bar", 1.0, median) + &line("whisker", low, high);
        // An interval that goes past the axis says so.
        for (beyond, at, arrow) in [
            (self.scale.place(low) < 0.0, 0, "m-less"),
            (self.scale.place(high) > 100.0, 100, "m-more"),
        ] {
            if beyond {
                out.push_str(&format!("<use href=\"#{arrow}\" x=\"{at}%\" y=\"{y:.1}%\"/>"));
            }
        }
        let x = self.scale.clamped(median);
        out.push_str(&format!(
            "<use class=\"dot\" href=\"#{shape}\" x=\"{x:.2}%\" y=\"{y:.1}%\"/>"
        ));
        out
    }
}
