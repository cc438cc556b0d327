//! Details of every microbenchmark: distribution of the blocks, response times, counts.
//!
//! Plain `<details>` that a link opens by its fragment; the script shows one at a time in a
//! dialog instead.

use dbdyno_units::{Nanos, grouped};
use maud::{Markup, display, html};

use super::elements::{scrollable, section};
use super::marker::Marker;
use super::verdict::{class, icon};
use super::{distribution, document};
use crate::figures::{ends, micros, ratio};
use crate::metric::{Metric, with_clients};
use crate::model::{
    Absolute, CandidateRecord, Estimate, LatencySummary, MicrobenchmarkRows, Percentile,
    RelativePercentile, Report, Role, Row, Verdict,
};
use crate::sections::Output;
use crate::sections::operations::{self, Part};

pub(super) fn render(report: &Report) -> Markup {
    let content = html! {
        p.muted {
            "Distribution of the blocks, response times and counts of each microbenchmark. \
             Select a name in any table above, or open it here."
        }
        @for (index, microbenchmark) in report.microbenchmarks.iter().enumerate() {
            (one(report, index, microbenchmark))
        }
    };
    section("figures", "Details", content)
}

fn one(report: &Report, index: usize, microbenchmark: &MicrobenchmarkRows) -> Markup {
    let name = &microbenchmark.name;
    let MicrobenchmarkRows { group, clients, .. } = microbenchmark;
    let group = with_clients(group, *clients, report.is_sweep());
    html! {
        details.figures {
            summary { (name) " " small { (group) } }
            // The fragment's target lies inside: browsers open a closed ancestor of a target, not
            // a closed target.
            div.detail id={ "m" (index) } data-name=(name) data-group=(group) {
                (distribution::render(report, microbenchmark))
                @for part in [Part::Costs, Part::Counters] {
                    @if let Some(table) = operations::table(report, part, microbenchmark, Output::Page) {
                        (document::table(&table))
                    }
                }
                (table(report, microbenchmark))
            }
        }
    }
}

/// A candidate with its results.
struct Column<'a> {
    candidate: &'a CandidateRecord,
    row: Option<&'a Row>,
    absolute: Option<&'a Absolute>,
}

fn columns<'a>(report: &'a Report, microbenchmark: &'a MicrobenchmarkRows) -> Vec<Column<'a>> {
    let column = |candidate: &'a CandidateRecord| {
        let row = microbenchmark.rows.iter().find(|row| row.candidate == candidate.name);
        let absolute = match candidate.role {
            Role::Baseline => Some(&microbenchmark.baseline),
            Role::Candidate | Role::Control => row.map(|row| &row.absolute),
        };
        Column { candidate, row, absolute }
    };
    report.candidates.iter().map(column).collect()
}

/// A label, and how to draw a column's value; `None` is unknown.
type Line<'a> = (String, Box<dyn Fn(&Column<'_>) -> Option<Markup> + 'a>);

fn table(report: &Report, microbenchmark: &MicrobenchmarkRows) -> Markup {
    let columns = columns(report, microbenchmark);
    let content = html! {
        table.facts {
            thead { tr {
                th scope="col" { "Measurement" }
                @for Column { candidate, .. } in &columns {
                    th.num scope="col" {
                        (Marker::of(report, &candidate.name, candidate.role).label(&candidate.name))
                    }
                }
            } }
            tbody {
                @for (label, draw) in lines(microbenchmark) {
                    @let cells: Vec<Option<Markup>> = columns.iter().map(draw).collect();
                    @if cells.iter().flatten().any(|cell| cell.0 != BASELINE_RATIO) {
                        tr {
                            th scope="row" { (label) }
                            @for cell in cells { td.num { (cell.unwrap_or_else(|| html! { "–" })) } }
                        }
                    }
                }
            }
        }
    };
    scrollable("Measurements", content)
}

/// The baseline relative to itself; a line with nothing else is left out.
const BASELINE_RATIO: &str = "1";

/// Background work has a line of its own if it is at least this share of any CPU time.
const SHOWN_BACKGROUND: f64 = 0.03;

fn lines<'a>(microbenchmark: &'a MicrobenchmarkRows) -> Vec<Line<'a>> {
    let absolutes = microbenchmark.rows.iter().map(|row| &row.absolute);
    let has_background = absolutes.chain([&microbenchmark.baseline]).any(|own| {
        own.background_share().is_some_and(|share| share.as_fraction() >= SHOWN_BACKGROUND)
    });
    let mut lines: Vec<Line<'a>> = vec![
        line("Relative QPS", |column| relative(Metric::Qps, column)),
        line("Relative CPU per query", |column| relative(Metric::Cpu, column)),
        line("Relative context switches", |column| Some(interval(column.row?.relative_cs?))),
        line(&format!("Throughput, {}", microbenchmark.throughput_unit), |column| {
            let qps = column.absolute?.qps?;
            Some(html! { (display(qps)) })
        }),
        line("Interquartile range of the slices", |column| {
            let (low, high) = column.absolute?.qps_middle_half?;
            Some(html! { (display(low)) " – " (display(high)) })
        }),
    ];
    if has_background {
        lines.push(line("Background CPU µs per query", |column| {
            let own = column.absolute?;
            let (cpu, share) = (own.background_cpu_us_per_query?, own.background_share()?);
            Some(html! { (micros(cpu)) small { (display(share)) } })
        }));
    }
    lines.extend([latency("Response time, mean", |latency| latency.mean)]);
    for percentile in Percentile::ALL {
        let name = percentile.name();
        lines.push(latency(&format!("Response time, {name}"), move |times| percentile.of(times)));
        lines.push(line(&format!("Relative {name}"), move |column| {
            relative_percentile(percentile, column)
        }));
    }
    lines.extend([
        latency("Response time, max", |latency| latency.max),
        line("Blocks", |column| Some(html! { (grouped(column.row?.blocks)) })),
        line("Statements", |column| Some(html! { (grouped(column.absolute?.statements)) })),
        line("Errors", |column| Some(html! { (grouped(column.absolute?.errors)) })),
        line("Lock retries", |column| Some(html! { (grouped(column.absolute?.busy_retries)) })),
    ]);
    if microbenchmark.rows.iter().any(|row| row.restart_medians.len() > 1) {
        lines.push(line("Median of each restart", |column| {
            let medians = &column.row?.restart_medians;
            Some(html! {
                @for (index, median) in medians.iter().enumerate() {
                    @if index > 0 { br; }
                    (format_args!("{median:.3}"))
                }
            })
        }));
    }
    lines
}

fn line<'a>(label: &str, draw: impl Fn(&Column<'_>) -> Option<Markup> + 'a) -> Line<'a> {
    (label.to_owned(), Box::new(draw))
}

fn latency<'a>(label: &str, of: impl Fn(&LatencySummary) -> Nanos + 'a) -> Line<'a> {
    line(label, move |column| {
        let time = of(column.absolute?.latency.as_ref()?);
        Some(html! { (display(time)) })
    })
}

fn interval(estimate: Estimate) -> Markup {
    html! { b { (ratio(estimate.median)) } small { (ends(estimate)) } }
}

fn relative(metric: Metric, column: &Column<'_>) -> Option<Markup> {
    if column.candidate.role == Role::Baseline {
        return Some(html! { (BASELINE_RATIO) });
    }
    let row = column.row?;
    let verdict = metric.verdict(row);
    let word = metric.word(verdict);
    let Some(value) = metric.ratio(row) else {
        return (verdict == Verdict::Failed).then(|| html! { (word) });
    };
    Some(html! {
        span.(class(verdict)) { b { (ratio(value)) } " " (icon(verdict, metric)) }
        @if let Some(estimate) = metric.estimate(row) { small { (ends(estimate)) } }
        small { (word) }
    })
}

/// A percentile relative to the baseline's.
fn relative_percentile(percentile: Percentile, column: &Column<'_>) -> Option<Markup> {
    if column.candidate.role == Role::Baseline {
        return Some(html! { (BASELINE_RATIO) });
    }
    let RelativePercentile { relative, verdict, .. } = percentile.relative_of(column.row?)?;
    let relative = (*relative)?;
    Some(html! {
        span.(class(*verdict)) { b { (ratio(relative.median)) } " " (icon(*verdict, Metric::Cpu)) }
        small { (ends(relative)) }
        small { (verdict.name()) }
    })
}
