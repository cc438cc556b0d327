//! Details of every microbenchmark: distribution of the blocks, response times, counts.
//!
//! Plain `<details>` that a link opens by its fragment; the script shows one at a time in a
//! dialog instead.

use std::fmt::Write;

use dbdyno_units::{Nanos, grouped};
use maud::{Markup, display, html};

use super::charts::{Scale, percent};
use super::document;
use super::elements::{Marker, class, icon, scrollable, section};
use crate::figures::{ends, micros, ratio};
use crate::metric::{compared, with_clients};
use crate::model::{
    Absolute, CandidateRecord, Estimate, LatencySummary, Metric, MicrobenchmarkRows, Percentile,
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
                (distribution(report, microbenchmark))
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
        let row = microbenchmark.row(&candidate.name);
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
    let verdict = row.verdict_of(metric);
    let word = verdict.word(metric);
    let Some(value) = row.ratio(metric) else {
        return (verdict == Verdict::Failed).then(|| html! { (word) });
    };
    Some(html! {
        span.(class(verdict)) { b { (ratio(value)) } " " (icon(verdict, metric)) }
        @if let Some(estimate) = row.estimate(metric) { small { (ends(estimate)) } }
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

/// Bars of a histogram.
const BINS: usize = 48;

/// Dots in block order, at most: more would only overlap.
const DOTS: usize = 300;

pub(super) fn distribution(report: &Report, microbenchmark: &MicrobenchmarkRows) -> Markup {
    let rows: Vec<(Marker, &CandidateRecord, &Row)> = compared(report)
        .into_iter()
        .enumerate()
        .filter_map(|(index, candidate)| {
            let row = microbenchmark.row(&candidate.name)?;
            let marker = Marker::new(index, candidate.role);
            (!row.ratios.is_empty()).then_some((marker, candidate, row))
        })
        .collect();
    if rows.is_empty() {
        return Markup::default();
    }
    let scale = Scale::covering(rows.iter().flat_map(|(.., row)| without_outliers(&row.ratios)));
    let noise = report.noise.as_ref().map(|noise| noise.typical.as_fraction());
    html! {
        div.spread role="group" aria-label="Distribution of the blocks' relative QPS" {
            p.head {}
            p.head { "relative QPS of the blocks" }
            p.head.order { "in block order" }
            @for (marker, candidate, row) in rows {
                p.lane-name {
                    (marker.label(&candidate.name)) " " small { (row.ratios.len()) " blocks" }
                }
                svg.lane.{ (marker.class()) } role="img" aria-label=(describe(&row.ratios)) {
                    (scale.grid(noise))
                    (histogram(&row.ratios, &scale))
                    (estimate(row, &scale, marker))
                }
                svg.lane.order.{ (marker.class()) } aria-hidden="true" {
                    (block_order(&row.ratios, &scale, candidate.role))
                }
            }
            p {}
            svg.axis aria-hidden="true" { (scale.labels(12)) }
            p.head.order { "first block → last block" }
        }
    }
}

/// The ratios without the outermost 1% on either side: one outlier must not squeeze all the others
/// together. Those left out are drawn at the axis's ends.
fn without_outliers(ratios: &[f64]) -> Vec<f64> {
    let mut sorted = ratios.to_vec();
    sorted.sort_by(f64::total_cmp);
    let cut = sorted.len() / 100;
    sorted[cut..sorted.len() - cut].to_vec()
}

/// The chart in words.
fn describe(ratios: &[f64]) -> String {
    let mut sorted = ratios.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
    format!(
        "{} blocks from {:.3} to {:.3}, interquartile range {:.3} to {:.3}",
        sorted.len(),
        at(0.0),
        at(1.0),
        at(0.25),
        at(0.75)
    )
}

/// The histogram, stretched by a view box of its own. Everything else is positioned in percent, so
/// that strokes and markers keep their form.
fn histogram(ratios: &[f64], scale: &Scale) -> Markup {
    let mut bins = [0_u32; BINS];
    for ratio in ratios {
        let bin = scale.clamped(*ratio) / 100.0 * BINS as f64;
        bins[(bin as usize).min(BINS - 1)] += 1;
    }
    let most = f64::from(bins.iter().copied().max().unwrap_or(1).max(1));
    let mut path = String::from("M0 100");
    for bin in bins {
        let _ = write!(path, "V{:.0}h1", 100.0 - 92.0 * f64::from(bin) / most);
    }
    path.push_str("V100z");
    html! {
        svg.fit y="0" height="70%" width="100%" viewBox={ "0 0 " (BINS) " 100" }
            preserveAspectRatio="none" { path.hist d=(path) {} }
    }
}

/// The estimate as in the other charts, and a line for the median of each restart.
fn estimate(row: &Row, scale: &Scale, marker: Marker) -> Markup {
    let position = |value: f64| percent(scale.clamped(value));
    html! {
        @if let Some(estimate) = row.relative_qps {
            @let [low, median, high] =
                [estimate.low, estimate.median, estimate.high].map(|end| position(end.get()));
            line.whisker x1=(low) x2=(high) y1="84%" y2="84%" {}
            use.dot href=(marker.shape()) x=(median) y="84%" {}
        }
        @if row.restart_medians.len() > 1 {
            @for median in &row.restart_medians {
                @let x = position(*median);
                line.restart x1=(x) x2=(x) y1="92%" y2="100%" {}
            }
        }
    }
}

/// A dot per block from left to right; higher is a greater ratio.
fn block_order(ratios: &[f64], scale: &Scale, role: Role) -> Markup {
    let thin = ratios.len().div_ceil(DOTS).max(1);
    let last = (ratios.len().max(2) - 1) as f64;
    let one = format!("{:.1}%", 100.0 - scale.clamped(1.0));
    let mut path = String::new();
    for (index, ratio) in ratios.iter().enumerate().step_by(thin) {
        // A subpath without length is drawn as a dot by its round line cap.
        let (x, y) = (10.0 + 980.0 * index as f64 / last, 100.0 - scale.clamped(*ratio));
        let _ = write!(path, "M{x:.0} {y:.0}h0");
    }
    html! {
        line.one x2="100%" y1=(one) y2=(one) {}
        svg.fit width="100%" height="100%" viewBox="0 0 1000 100" preserveAspectRatio="none" {
            path.dots.faint[role == Role::Control] d=(path) {}
        }
    }
}
