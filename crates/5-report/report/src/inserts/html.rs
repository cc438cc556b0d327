//! The insert benchmark on the HTML page: a chart of all steps, then tables and charts of each
//! step.

mod bars;
mod charts;

use maud::{Markup, display, html};

use super::terminal::{figure, percent, ratio_text, remarks_of, standing};
use crate::html::elements::{or_dash, scrollable, section};
use crate::html::marker::Marker;
use crate::model::Role;
use crate::model::{BUCKETS, CandidateStep, InsertReport, Responses, StepReport, StepRun};
use crate::model::{INSERT_METRICS, InsertMetric};
use crate::words;

/// Render all steps.
pub(crate) fn render(report: &InsertReport) -> Markup {
    let content = html! {
        (introduction(report))
        @if report.steps.is_empty() { p { (words::NOTHING_MEASURED) } }
        (bars::render(report))
        @for step in &report.steps { (step_section(step)) }
    };
    html! {
        (section("inserts", "Insert benchmark", content))
        @if !report.steps.is_empty() { (section("metrics", "Metrics", definitions(report))) }
    }
}

fn introduction(report: &InsertReport) -> Markup {
    let orders: Vec<String> =
        report.order.iter().filter(|names| names.len() > 1).map(|names| names.join(", ")).collect();
    html! {
        p.muted {
            (words::insert_benchmark(report))
            @if !orders.is_empty() { " Order, drawn from the seed: " (orders.join("; then ")) "." }
            " Background work that an engine defers in one step therefore slows down only its own \
             later steps."
        }
    }
}

fn step_section(step: &StepReport) -> Markup {
    let name = &step.name;
    html! {
        section.step id={ "step-" (name) } aria-labelledby={ "h-step-" (name) } {
            h3 id={ "h-step-" (name) } { (name) " " small { (step.what) } }
            (remarks(step))
            (values(step))
            (charts::render(step))
            (response_times(step))
        }
    }
}

fn remarks(step: &StepReport) -> Markup {
    let mut remarks = Vec::new();
    for candidate in &step.candidates {
        for run in &candidate.repeats {
            let at = match candidate.repeats.len() {
                1 => candidate.candidate.clone(),
                _ => format!("{}, repeat {}", candidate.candidate, run.repeat),
            };
            remarks.extend(remarks_of(&at, run, step));
        }
    }
    html! {
        @if !remarks.is_empty() {
            div.note.warning { ul {
                @for remark in &remarks { li { (remark.trim_start_matches("! ")) } }
            } }
        }
    }
}

/// A table of all values: absolute, and below relative to the baseline's.
fn values(step: &StepReport) -> Markup {
    let known = |metric: &&InsertMetric| {
        step.candidates.iter().any(|one| one.figures.get(metric.name).is_some())
    };
    let metrics: Vec<&InsertMetric> = INSERT_METRICS.iter().filter(known).collect();
    let content = html! {
        table.steps {
            thead { tr {
                th scope="col" { "Candidate" }
                @for metric in &metrics {
                    th.num scope="col" { abbr title=(metric.what) { (metric.name) } }
                }
                @if metrics.is_empty() { th.num scope="col" { "time" } }
            } }
            tbody { @for candidate in &step.candidates { (row(candidate, &metrics)) } }
        }
    };
    scrollable(&format!("Values of {}", step.name), content)
}

fn row(candidate: &CandidateStep, metrics: &[&InsertMetric]) -> Markup {
    let times: Vec<String> = candidate.repeats.iter().map(|run| run.wall.to_string()).collect();
    let times = times.join(", ");
    html! {
        tr {
            th scope="row" {
                (label(candidate))
                small {
                    (times)
                    @if candidate.sustained() == Some(false) {
                        " " b.worse { "rate not sustained" }
                    }
                }
            }
            @for metric in metrics {
                td.num {
                    (or_dash(candidate.figures.get(metric.name).map(figure)))
                    (relative(candidate, metric))
                }
            }
            @if metrics.is_empty() { td.num { (times) } }
        }
    }
}

fn label(candidate: &CandidateStep) -> Markup {
    Marker::new(candidate.index, candidate.role).label(&candidate.candidate)
}

/// A ratio below its value, with its range over the repeats.
fn relative(candidate: &CandidateStep, metric: &InsertMetric) -> Markup {
    let Some(ratio) = candidate.relative.as_ref().and_then(|r| r.get(metric.name)) else {
        return html! { @if candidate.role != Role::Baseline { small { "–" } } };
    };
    let class = match standing(metric, ratio) {
        Some(true) => "better",
        Some(false) => "worse",
        None => "noise",
    };
    let range = candidate.relative_spread.as_ref();
    let range = range.and_then(|(low, high)| Some((low.get(metric.name)?, high.get(metric.name)?)));
    html! {
        small.(class) {
            b { (ratio_text(ratio)) }
            @if let Some((low, high)) = range { i { (ratio_text(low)) "–" (ratio_text(high)) } }
        }
    }
}

type ResponsesOf = fn(&StepRun) -> &Option<Responses>;

/// Kinds of response times and their names.
const KINDS: [(&str, ResponsesOf); 4] = [
    ("inserts", |run| &run.insert_responses),
    ("inserts, from when sent", |run| &run.insert_service),
    ("queries", |run| &run.query_responses),
    ("deletes", |run| &run.delete_responses),
];

/// Response times of the last repeat, in the published buckets.
fn response_times(step: &StepReport) -> Markup {
    let rows: Vec<Markup> = KINDS
        .into_iter()
        .flat_map(|(kind, of)| step.candidates.iter().map(move |one| (kind, of, one)))
        .filter_map(|(kind, of, candidate)| {
            let responses = of(candidate.repeats.last()?).as_ref()?;
            Some(response_row(kind, candidate, responses))
        })
        .collect();
    if rows.is_empty() {
        return Markup::default();
    }
    let of_repeat = if step.has_repeats() { " of the last repeat" } else { "" };
    let table = html! {
        table.steps {
            thead { tr {
                th scope="col" { "Operations" }
                @for (_, end) in BUCKETS {
                    th.num scope="col" { "≤ " (end.replace("us", " µs").replace("ms", " ms")) }
                }
                @for title in ["more", "median", "99%", "99.9%", "max"] {
                    th.num scope="col" { (title) }
                }
            } }
            tbody { @for row in &rows { (row) } }
        }
    };
    html! {
        details.figures {
            summary { "Response times" (of_repeat) ": percentage in each bucket, and percentiles" }
            (scrollable(&format!("Response times of {}", step.name), table))
        }
    }
}

fn response_row(kind: &str, candidate: &CandidateStep, responses: &Responses) -> Markup {
    let Responses { shares, p50, p99, p999, max, .. } = responses;
    html! {
        tr {
            th scope="row" { (label(candidate)) " " small { (kind) } }
            @for share in shares {
                // A class, because the page's policy forbids styles in attributes.
                @let tenths = (share.as_fraction().sqrt() * 10.0).ceil().min(10.0);
                td.num.bucket.{ "s" (tenths) } { (percent(*share)) }
            }
            @for time in [p50, p99, p999, max] { td.num { (display(time)) } }
        }
    }
}

/// Definitions of the metrics.
fn definitions(report: &InsertReport) -> Markup {
    html! {
        dl.pairs.meanings {
            @for metric in INSERT_METRICS { div { dt { (metric.name) } dd { (metric.what) } } }
        }
        p.muted { (words::insert_definitions(report)) }
    }
}
