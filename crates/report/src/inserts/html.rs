//! The insert benchmark on the page: a chart of all steps, then tables and charts of each.

mod bars;
mod charts;

use super::metrics::{METRICS, Metric};
use super::model::{BUCKETS, CandidateStep, InsertReport, Responses, StepReport, StepRun};
use super::terminal::{figure, percent, ratio_text, remarks_of, standing};
use crate::html::escape::{breakable, esc};
use crate::html::marks;
use crate::model::Role;

/// All of it.
pub(crate) fn render(report: &InsertReport) -> String {
    let mut out = String::from("<section id=\"inserts\" aria-labelledby=\"h-inserts\">\n");
    out.push_str("<h2 id=\"h-inserts\">Insert benchmark</h2>\n");
    out.push_str(&introduction(report));
    if report.steps.is_empty() {
        out.push_str("<p>Nothing is measured yet.</p>\n</section>\n");
        return out;
    }
    out.push_str(&bars::render(report));
    for step in &report.steps {
        out.push_str(&section(step));
    }
    out.push_str("</section>\n");
    out.push_str(&key(report));
    out
}

fn introduction(report: &InsertReport) -> String {
    let InsertReport { clients, tables, repeats, order, .. } = report;
    let plural = |n: u32| if n == 1 { "" } else { "s" };
    let how_often = match repeats {
        1 => "once: nothing shows the spread".to_owned(),
        n => format!("{n} times: a figure is their median"),
    };
    let orders: Vec<String> = order
        .iter()
        .filter(|names| names.len() > 1)
        .map(|names| names.iter().map(|name| esc(name).to_string()).collect::<Vec<_>>().join(", "))
        .collect();
    let orders = match orders.is_empty() {
        true => String::new(),
        false => format!(" Order, drawn from the seed: {}.", orders.join("; then ")),
    };
    format!(
        "<p class=\"muted\">{clients} client{} on {tables} table{}. The candidates ran one after \
         another, each alone through all steps, {how_often}.{orders} What an engine owes after a \
         step it would otherwise have paid while others run.</p>\n",
        plural(*clients),
        plural(*tables)
    )
}

fn section(step: &StepReport) -> String {
    let name = esc(&step.name);
    let mut out = format!(
        "<section class=\"step\" id=\"step-{name}\" aria-labelledby=\"h-step-{name}\">\n\
         <h3 id=\"h-step-{name}\">{name} <small>{}</small></h3>\n",
        esc(&step.what)
    );
    out.push_str(&remarks(step));
    out.push_str(&figures(step));
    out.push_str(&charts::render(step));
    out.push_str(&distribution(step));
    out.push_str("</section>\n");
    out
}

fn remarks(step: &StepReport) -> String {
    let mut items = String::new();
    for candidate in &step.candidates {
        for run in &candidate.repeats {
            let at = match candidate.repeats.len() {
                1 => candidate.candidate.clone(),
                _ => format!("{}, repeat {}", candidate.candidate, run.repeat),
            };
            for remark in remarks_of(&at, run, step) {
                let text = remark.trim_start_matches("! ").to_owned();
                items.push_str(&format!("<li>{}</li>\n", esc(&text)));
            }
        }
    }
    if items.is_empty() {
        return String::new();
    }
    format!("<div class=\"note warning\"><ul>\n{items}</ul></div>\n")
}

/// One table with all figures: each absolute, and below it relative to the baseline's.
fn figures(step: &StepReport) -> String {
    let known =
        |metric: &&Metric| step.candidates.iter().any(|one| one.figures.get(metric.name).is_some());
    let metrics: Vec<&Metric> = METRICS.iter().filter(known).collect();
    let mut out = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Figures of {}\">\n\
         <table class=\"steps\">\n<thead><tr><th scope=\"col\">Candidate</th>",
        esc(&step.name)
    );
    for metric in &metrics {
        out.push_str(&format!(
            "<th scope=\"col\" class=\"num\"><abbr title=\"{}\">{}</abbr></th>",
            esc(metric.what),
            metric.name
        ));
    }
    if metrics.is_empty() {
        out.push_str("<th scope=\"col\" class=\"num\">time</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for candidate in &step.candidates {
        out.push_str(&row(candidate, &metrics));
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
    out
}

fn row(candidate: &CandidateStep, metrics: &[&Metric]) -> String {
    let times: Vec<String> = candidate.repeats.iter().map(|run| run.wall.to_string()).collect();
    let unsustained = match candidate.sustained() {
        Some(false) => " <b class=\"worse\">rate not sustained</b>",
        _ => "",
    };
    let mut out = format!(
        "<tr><th scope=\"row\">{}{}<small>{}{unsustained}</small></th>",
        marks::inline(candidate.place, candidate.role),
        breakable(&candidate.candidate),
        esc(&times.join(", "))
    );
    for metric in metrics {
        let value = candidate.figures.get(metric.name).map_or_else(|| "–".to_owned(), figure);
        out.push_str(&format!("<td class=\"num\">{value}{}</td>", relative(candidate, metric)));
    }
    if metrics.is_empty() {
        out.push_str(&format!("<td class=\"num\">{}</td>", esc(&times.join(", "))));
    }
    out.push_str("</tr>\n");
    out
}

/// A ratio below its figure, with the spread over repeats.
fn relative(candidate: &CandidateStep, metric: &Metric) -> String {
    let Some(ratio) = candidate.relative.as_ref().and_then(|r| r.get(metric.name)) else {
        return match candidate.role {
            Role::Baseline => String::new(),
            Role::Candidate | Role::Control => "<small>–</small>".to_owned(),
        };
    };
    let class = match standing(metric, ratio) {
        Some(true) => "better",
        Some(false) => "worse",
        None => "noise",
    };
    let spread = candidate.relative_spread.as_ref().and_then(|(low, high)| {
        Some(format!(
            "<i>{}–{}</i>",
            ratio_text(low.get(metric.name)?),
            ratio_text(high.get(metric.name)?)
        ))
    });
    format!(
        "<small class=\"{class}\"><b>{}</b>{}</small>",
        ratio_text(ratio),
        spread.unwrap_or_default()
    )
}

/// Response times in the published buckets, the last repeat's.
fn distribution(step: &StepReport) -> String {
    type Of = fn(&StepRun) -> &Option<Responses>;
    let kinds: [(&str, Of); 4] = [
        ("inserts", |run| &run.insert_responses),
        ("inserts, from when sent", |run| &run.insert_service),
        ("queries", |run| &run.query_responses),
        ("deletes", |run| &run.delete_responses),
    ];
    let mut rows = String::new();
    for (kind, of) in kinds {
        for candidate in &step.candidates {
            let Some(responses) = candidate.repeats.last().and_then(|run| of(run).as_ref()) else {
                continue;
            };
            rows.push_str(&format!(
                "<tr><th scope=\"row\">{}{} <small>{kind}</small></th>",
                marks::inline(candidate.place, candidate.role),
                breakable(&candidate.candidate)
            ));
            for share in responses.shares {
                let strength = (share.as_fraction().sqrt() * 100.0).round();
                rows.push_str(&format!(
                    "<td class=\"num bucket\" style=\"--s:{strength}%\">{}</td>",
                    esc(&percent(share))
                ));
            }
            let Responses { p50, p99, p999, max, .. } = responses;
            for time in [p50, p99, p999, max] {
                rows.push_str(&format!("<td class=\"num\">{time}</td>"));
            }
            rows.push_str("</tr>\n");
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let mut out = String::from(
        "<details class=\"figures\"><summary>Response times in percent per bucket</summary>\n\
         <div class=\"scroll\" tabindex=\"0\">\n<table class=\"steps\">\n<thead><tr><th></th>",
    );
    for (_, end) in BUCKETS {
        let end = end.replace("us", " µs").replace("ms", " ms");
        out.push_str(&format!("<th scope=\"col\" class=\"num\">≤ {end}</th>"));
    }
    for title in ["more", "median", "99%", "99.9%", "longest"] {
        out.push_str(&format!("<th scope=\"col\" class=\"num\">{title}</th>"));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    out.push_str(&rows);
    out.push_str("</tbody>\n</table>\n</div>\n</details>\n");
    out
}

/// What the names of the figures mean.
fn key(report: &InsertReport) -> String {
    let mut out = String::from(
        "<section aria-labelledby=\"h-figures\">\n<h2 id=\"h-figures\">What the figures are</h2>\n\
         <dl class=\"pairs meanings\">\n",
    );
    for metric in METRICS {
        let what = esc(metric.what);
        out.push_str(&format!("<div><dt>{}</dt><dd>{what}</dd></div>\n", metric.name));
    }
    out.push_str(&format!(
        "</dl>\n<p class=\"muted\">Reads and writes are the device's, whoever caused them. \
         Response times of inserts count from when they were due, service times from when they \
         were sent. A write stall is a second below {} of its step's median of inserts. A rate is \
         sustained from {} of it on.</p>\n</section>\n",
        report.stall, report.sustained
    ));
    out
}
