//! A sweep over numbers of clients: throughput, CPU per query and relative QPS as lines.
//!
//! The numbers of clients double from one to the next in most sweeps, so the axis has their
//! logarithm. Every point says its figures to whoever points at it; the table below each chart is
//! for everybody else.

mod chart;

use super::escape::{breakable, esc};
use super::marks;
use super::scale::Scale;
use crate::counters::CounterFigure;
use crate::figures::{compact, ends as ends_of, ratio};
use crate::metric::{Metric, clients, compared};
use crate::model::{Absolute, CandidateSummary, MicrobenchmarkRows, Report, Role, Row};
use chart::{Chart, Point, Series};

/// Draws a card per microbenchmark; nothing without a sweep.
pub(super) fn render(report: &Report) -> String {
    if !report.is_sweep() {
        return String::new();
    }
    let mut names: Vec<&str> = Vec::new();
    for microbenchmark in &report.microbenchmarks {
        if !names.contains(&microbenchmark.name.as_str()) {
            names.push(&microbenchmark.name);
        }
    }
    let mut out = String::from(
        "<section aria-labelledby=\"h-sweep\" id=\"sweep\">\n<h2 id=\"h-sweep\">Over clients</h2>\n\
         <p class=\"muted\">Numbers of clients on a logarithmic axis. Whiskers hold the middle half \
         of the slices; on ratios they are the 95% interval.</p>\n<ul class=\"legend\">",
    );
    for (mark, _, candidate) in all(report) {
        out.push_str(&format!("<li>{mark}{}</li>", esc(&candidate.name)));
    }
    out.push_str("</ul>\n");
    for name in names {
        out.push_str(&card(report, name));
    }
    out.push_str("</section>\n");
    out
}

/// Every candidate with its mark, and its place among those that are compared.
fn all(report: &Report) -> Vec<(String, usize, &CandidateSummary)> {
    let compared = compared(report);
    let place = |name: &str| compared.iter().position(|one| one.name == name).unwrap_or(0);
    let candidates = report.candidates.iter();
    candidates
        .map(|one| (marks::inline(place(&one.name), one.role), place(&one.name), one))
        .collect()
}

/// What a candidate showed at each number of clients.
fn found<'a>(
    steps: &[&'a MicrobenchmarkRows],
    candidate: &CandidateSummary,
) -> Vec<(u32, &'a Absolute, Option<&'a Row>)> {
    let at = |step: &&'a MicrobenchmarkRows| {
        if candidate.role == Role::Baseline {
            return Some((step.clients, &step.baseline, None));
        }
        let row = step.rows.iter().find(|row| row.candidate == candidate.name)?;
        Some((step.clients, &row.absolute, Some(row)))
    };
    steps.iter().filter_map(at).collect()
}

fn card(report: &Report, name: &str) -> String {
    let mut steps: Vec<&MicrobenchmarkRows> =
        report.microbenchmarks.iter().filter(|one| one.name == name).collect();
    steps.sort_by_key(|step| step.clients);
    let unit = steps.first().map_or("", |step| step.throughput_unit.as_str());
    let axis: Vec<u32> = steps.iter().map(|step| step.clients).collect();
    let mut out = format!(
        "<article class=\"card sweep\">\n<h3>{}</h3>\n<div class=\"charts\">\n",
        breakable(name)
    );
    let throughput = series(report, &steps, |own, _| {
        let middle = own.qps_middle_half.map(|(low, high)| (low.per_second(), high.per_second()));
        Some((own.qps?.per_second(), middle))
    });
    let cpu = series(report, &steps, |own, _| Some((own.cpu_us_per_query?, own.cpu_middle_half)));
    let relative = series(report, &steps, |_, row| {
        let interval = row?.relative_qps.map(|e| (e.low.get(), e.high.get()));
        Some((Metric::Qps.ratio(row?)?.get(), interval))
    });
    for (title, series) in
        [(format!("Throughput, {unit}"), throughput), ("CPU per query, µs".to_owned(), cpu)]
    {
        let scale = Scale::from_zero(ends(&series));
        out.push_str(&Chart { title, axis: &axis, scale, series, write: compact }.draw());
    }
    let estimates: Vec<(f64, f64, f64)> = relative
        .iter()
        .flat_map(|series| &series.points)
        .map(|point| {
            let (low, high) = point.spread.unwrap_or((point.value, point.value));
            (low, point.value, high)
        })
        .collect();
    let title = format!("QPS relative to {}", report.baseline);
    let scale = Scale::of_estimates(&estimates);
    let write = |value| format!("{value:.3}");
    out.push_str(&Chart { title, axis: &axis, scale, series: relative, write }.draw());
    for figure in CounterFigure::OF_SWEEPS {
        let series = series(report, &steps, |own, _| Some((*own.counters.get(&figure)?, None)));
        if !series.is_empty() {
            let scale = Scale::from_zero(ends(&series));
            let title = first_up(figure.title());
            out.push_str(&Chart { title, axis: &axis, scale, series, write: compact }.draw());
        }
    }
    out.push_str("</div>\n");
    out.push_str(&table(report, &steps));
    out.push_str("</article>\n");
    out
}

/// One figure of every candidate at every number of clients, with its spread.
fn series(
    report: &Report,
    steps: &[&MicrobenchmarkRows],
    figure: impl Fn(&Absolute, Option<&Row>) -> Option<(f64, Option<(f64, f64)>)>,
) -> Vec<Series> {
    let one = |(_, place, candidate): (String, usize, &CandidateSummary)| Series {
        name: candidate.name.clone(),
        class: marks::class(place, candidate.role),
        shape: marks::shape(place, candidate.role),
        points: found(steps, candidate)
            .into_iter()
            .filter_map(|(clients, own, row)| {
                let (value, spread) = figure(own, row)?;
                let verdict = row.map(|row| Metric::Qps.standing(row));
                let bound = verdict == Some(crate::metric::Standing::ClientBound);
                Some(Point { clients, value, spread, bound })
            })
            .collect(),
    };
    all(report).into_iter().map(one).filter(|series| !series.points.is_empty()).collect()
}

/// With a capital letter, as titles have; a name that starts like `iTLB` stays.
fn first_up(title: &str) -> String {
    let mut letters = title.chars();
    let Some(first) = letters.next() else { return String::new() };
    if letters.clone().next().is_some_and(char::is_uppercase) {
        return title.to_owned();
    }
    first.to_uppercase().chain(letters).collect()
}

fn ends(series: &[Series]) -> impl Iterator<Item = f64> {
    let points = series.iter().flat_map(|series| &series.points);
    points.map(|point| point.spread.map_or(point.value, |(_, high)| high.max(point.value)))
}

/// The charts' figures as a table.
fn table(report: &Report, steps: &[&MicrobenchmarkRows]) -> String {
    let mut out = String::from(
        "<details><summary>The figures</summary><div class=\"scroll\" tabindex=\"0\" \
         role=\"region\" aria-label=\"Figures over clients\"><table class=\"facts\"><thead><tr>\
         <th scope=\"col\">Candidate</th>",
    );
    for step in steps {
        out.push_str(&format!("<th scope=\"col\" class=\"num\">{}</th>", clients(step.clients)));
    }
    out.push_str("</tr></thead>\n");
    let mut body = |title: &str, cell: &dyn Fn(&Absolute, Option<&Row>) -> Option<String>| {
        out.push_str(&format!(
            "<tbody><tr><th scope=\"rowgroup\" class=\"block\" colspan=\"{}\">{title}</th></tr>\n",
            steps.len() + 1
        ));
        for (mark, _, candidate) in all(report) {
            let row = format!("<th scope=\"row\">{mark}{}</th>", breakable(&candidate.name));
            let found = found(steps, candidate);
            let cells: Vec<Option<String>> = steps
                .iter()
                .map(|step| {
                    let (_, own, row) = found.iter().find(|(at, ..)| *at == step.clients)?;
                    cell(own, *row)
                })
                .collect();
            if cells.iter().all(Option::is_none) {
                continue;
            }
            let cells: String = cells
                .into_iter()
                .map(|text| {
                    let text = text.unwrap_or_else(|| "–".to_owned());
                    format!("<td class=\"num\">{text}</td>")
                })
                .collect();
            out.push_str(&format!("<tr>{row}{cells}</tr>\n"));
        }
        out.push_str("</tbody>\n");
    };
    body("throughput", &|own, _| Some(own.qps?.to_string()));
    body("CPU per query, µs", &|own, _| Some(super::detail::micros(own.cpu_us_per_query?)));
    for figure in CounterFigure::OF_SWEEPS {
        let title = figure.title();
        body(title, &|own, _| Some(super::detail::micros(*own.counters.get(&figure)?)));
        body(&format!("relative {title}"), &|_, row| {
            let estimate = row?.relative_counters.get(&figure)?;
            let (value, interval) = (ratio(estimate.median), ends_of(*estimate));
            Some(format!("<b>{value}</b><small>{interval}</small>"))
        });
    }
    body("relative QPS", &|_, row| {
        let interval = row?.relative_qps.map_or_else(String::new, ends_of);
        let value = ratio(Metric::Qps.ratio(row?)?);
        Some(format!("<b>{value}</b><small>{interval}</small>"))
    });
    out.push_str("</table></div></details>\n");
    out
}
