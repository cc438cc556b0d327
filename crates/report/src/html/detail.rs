//! Every figure of every microbenchmark: the distribution of the blocks, latencies, counts.
//!
//! Plain `<details>` that a link opens by its fragment; the script shows one at a time in a
//! dialog instead.

use dbdyno_units::Nanos;

use super::escape::{breakable, esc};
use super::key::{class, sign};
use super::{distribution, marks, operations};
use crate::figures::{ends, ratio, whole};
use crate::metric::{Metric, Standing, clients};
use crate::model::{Absolute, CandidateSummary, MicrobenchmarkRows, Report, Role, Row};

pub(super) fn render(report: &Report) -> String {
    let mut out = String::from(
        "<section aria-labelledby=\"h-figures\" id=\"figures\">\n<h2 id=\"h-figures\">Every \
         figure</h2>\n<p class=\"muted\">The distribution of the blocks, response times and counts \
         of one microbenchmark. Choose a name in any table above, or open it here.</p>\n",
    );
    for (place, microbenchmark) in report.microbenchmarks.iter().enumerate() {
        // The fragment's target lies inside: browsers open a closed ancestor of a target, not a
        // closed target.
        let name = esc(&microbenchmark.name);
        let group = match report.is_sweep() {
            true => format!("{}, {}", microbenchmark.group, clients(microbenchmark.clients)),
            false => microbenchmark.group.clone(),
        };
        let group = esc(&group);
        out.push_str(&format!(
            "<details class=\"figures\"><summary>{name} <small>{group}</small></summary>\
             <div class=\"detail\" id=\"m{place}\" data-name=\"{name}\" \
             data-group=\"{group}\">\n",
        ));
        out.push_str(&distribution::render(report, microbenchmark));
        out.push_str(&operations::render(report, microbenchmark));
        out.push_str(&figures(report, microbenchmark));
        out.push_str("</div></details>\n");
    }
    out.push_str("</section>\n");
    out
}

/// A candidate with what is known of it here.
struct Column<'a> {
    candidate: &'a CandidateSummary,
    mark: String,
    row: Option<&'a Row>,
    absolute: Option<&'a Absolute>,
}

fn columns<'a>(report: &'a Report, microbenchmark: &'a MicrobenchmarkRows) -> Vec<Column<'a>> {
    let mut compared = 0;
    let column = |candidate: &'a CandidateSummary| {
        let row = microbenchmark.rows.iter().find(|row| row.candidate == candidate.name);
        let mark = marks::inline(compared, candidate.role);
        if candidate.role != Role::Baseline {
            compared += 1;
        }
        let absolute = match candidate.role {
            Role::Baseline => Some(&microbenchmark.baseline),
            Role::Candidate | Role::Control => row.map(|row| &row.absolute),
        };
        Column { candidate, mark, row, absolute }
    };
    report.candidates.iter().map(column).collect()
}

/// A figure's label, and how to write it for a column; `None` is unknown.
type Line<'a> = (String, Box<dyn Fn(&Column<'_>) -> Option<String> + 'a>);

fn figures(report: &Report, microbenchmark: &MicrobenchmarkRows) -> String {
    let columns = columns(report, microbenchmark);
    let mut out = String::from(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Figures\">\
         <table class=\"facts\"><thead><tr><th scope=\"col\">Figure</th>",
    );
    for column in &columns {
        out.push_str(&format!(
            "<th scope=\"col\" class=\"num\">{}{}</th>",
            column.mark,
            breakable(&column.candidate.name)
        ));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for (label, write) in lines(microbenchmark) {
        let texts: Vec<Option<String>> = columns.iter().map(write).collect();
        // What nobody knows needs no line.
        if texts.iter().all(|text| text.as_deref().is_none_or(|text| text == "1")) {
            continue;
        }
        out.push_str(&format!("<tr><th scope=\"row\">{label}</th>"));
        for text in texts {
            let text = text.unwrap_or_else(|| "–".to_owned());
            out.push_str(&format!("<td class=\"num\">{text}</td>"));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    out
}

/// From this share of somebody's CPU time on, work in the background has a line of its own.
const MUCH_BACKGROUND: f64 = 0.03;

fn lines<'a>(microbenchmark: &'a MicrobenchmarkRows) -> Vec<Line<'a>> {
    let latency = |of: fn(&crate::model::Latency) -> Nanos| {
        move |column: &Column<'_>| Some(of(column.absolute?.latency.as_ref()?).to_string())
    };
    let count =
        |of: fn(&Absolute) -> u64| move |column: &Column<'_>| Some(whole(of(column.absolute?)));
    let absolutes = microbenchmark.rows.iter().map(|row| &row.absolute);
    let has_background = absolutes.chain([&microbenchmark.baseline]).any(|own| {
        own.background_share().is_some_and(|share| share.as_fraction() >= MUCH_BACKGROUND)
    });
    let mut lines: Vec<Line<'a>> = vec![
        ("Relative QPS".to_owned(), Box::new(|column| relative(Metric::Qps, column))),
        ("Relative CPU per query".to_owned(), Box::new(|column| relative(Metric::Cpu, column))),
        (
            "Relative context switches".to_owned(),
            Box::new(|column| {
                let estimate = column.row?.relative_cs?;
                let median = ratio(estimate.median);
                Some(format!("<b>{median}</b><small>{}</small>", ends(estimate)))
            }),
        ),
        (
            format!("Throughput, {}", esc(&microbenchmark.throughput_unit)),
            Box::new(|column| Some(column.absolute?.qps?.to_string())),
        ),
        (
            "Middle half of the slices".to_owned(),
            Box::new(|column| {
                let (low, high) = column.absolute?.qps_middle_half?;
                Some(format!("{low} – {high}"))
            }),
        ),
        (
            "CPU µs per query in the background".to_owned(),
            Box::new(move |column| {
                let own = column.absolute?;
                let (cpu, share) = (own.background_cpu_us_per_query?, own.background_share()?);
                has_background.then(|| format!("{}<small>{share}</small>", micros(cpu)))
            }),
        ),
        ("Response time, mean".to_owned(), Box::new(latency(|latency| latency.mean))),
        ("p50".to_owned(), Box::new(latency(|latency| latency.p50))),
        ("p95".to_owned(), Box::new(latency(|latency| latency.p95))),
        ("p99".to_owned(), Box::new(latency(|latency| latency.p99))),
        ("max".to_owned(), Box::new(latency(|latency| latency.max))),
        ("Blocks".to_owned(), Box::new(|column| Some(whole(column.row?.blocks)))),
        ("Statements".to_owned(), Box::new(count(|absolute| absolute.statements))),
        ("Errors".to_owned(), Box::new(count(|absolute| absolute.errors))),
        ("Lock retries".to_owned(), Box::new(count(|absolute| absolute.busy_retries))),
    ];
    if microbenchmark.rows.iter().any(|row| row.restart_medians.len() > 1) {
        lines.push(("Median of each restart".to_owned(), Box::new(restarts)));
    }
    lines
}

fn relative(metric: Metric, column: &Column<'_>) -> Option<String> {
    if column.candidate.role == Role::Baseline {
        return Some("1".to_owned());
    }
    let row = column.row?;
    let standing = metric.standing(row);
    let word = standing.word(metric);
    let Some(value) = metric.ratio(row) else {
        return (standing == Standing::Failed).then(|| word.to_owned());
    };
    let interval = metric.estimate(row).map_or_else(String::new, ends);
    Some(format!(
        "<span class=\"{}\"><b>{}</b> {}</span><small>{interval}</small><small>{word}</small>",
        class(standing),
        ratio(value),
        sign(standing, metric).split("<span class=\"hidden\">").next().unwrap_or_default(),
    ))
}

fn restarts(column: &Column<'_>) -> Option<String> {
    let medians = &column.row?.restart_medians;
    let written: Vec<String> = medians.iter().map(|median| format!("{median:.3}")).collect();
    Some(written.join("<br>"))
}

/// Microseconds with digits that suit the size.
pub(super) fn micros(micros: f64) -> String {
    match micros {
        ..10.0 => format!("{micros:.3}"),
        ..100.0 => format!("{micros:.2}"),
        ..1000.0 => format!("{micros:.1}"),
        _ => whole(micros.round() as u64),
    }
}
