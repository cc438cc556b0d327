//! Details of every microbenchmark: distribution of the blocks, response times, counts.
//!
//! Plain `<details>` that a link opens by its fragment; the script shows one at a time in a
//! dialog instead.

use std::fmt::Write;

use dbdyno_text::Mark;
use maud::{Markup, html};

use super::document::{self, label, with_heading};
use crate::charts::{Scale, colour, percent, shape};
use crate::metric::{compared, with_clients};
use crate::model::{CandidateRecord, MicrobenchmarkRows, Report, Role, Row};
use crate::sections::operations::{self, Part};
use crate::sections::{Output, engine_counters, mark, plans, profile, statements, waits};

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
    with_heading("figures", "Details", content)
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
                @if let Some(table) = statements::table(report, microbenchmark, Output::Page) {
                    (document::table(&table))
                    p.muted { (statements::KEY) }
                }
                @let counters = engine_counters::tables(report, microbenchmark, Output::Page);
                @if !counters.is_empty() {
                    @for table in &counters { (document::table(table)) }
                    p.muted { (engine_counters::KEY) }
                }
                (document::blocks(&plans::facts(report, microbenchmark)))
                (document::blocks(&profile::of_microbenchmark(report, microbenchmark)))
                (document::blocks(&waits::of_microbenchmark(report, microbenchmark)))
                (document::table(&operations::measurements(report, microbenchmark)))
            }
        }
    }
}

const BINS: usize = 48;

/// Dots in block order, at most: more would only overlap.
const DOTS: usize = 300;

pub(super) fn distribution(report: &Report, microbenchmark: &MicrobenchmarkRows) -> Markup {
    let rows = compared(report).into_iter().filter_map(|candidate| {
        let row = microbenchmark.row(&candidate.name)?;
        let mark = mark(report, &candidate.name, candidate.role);
        (!row.ratios.is_empty()).then_some((mark, candidate, row))
    });
    let rows: Vec<(Mark, &CandidateRecord, &Row)> = rows.collect();
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
            @for (mark, candidate, row) in rows {
                p.lane-name {
                    (label(mark, &candidate.name)) " " small { (row.ratios.len()) " blocks" }
                }
                svg.lane.{ (colour(mark)) } role="img" aria-label=(describe(&row.ratios)) {
                    (scale.grid(noise))
                    (histogram(&row.ratios, &scale))
                    (estimate(row, &scale, mark))
                }
                svg.lane.order.{ (colour(mark)) } aria-hidden="true" {
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
fn estimate(row: &Row, scale: &Scale, mark: Mark) -> Markup {
    let position = |value: f64| percent(scale.clamped(value));
    html! {
        @if let Some(estimate) = row.relative_qps {
            @let [low, median, high] =
                [estimate.low, estimate.median, estimate.high].map(|end| position(end.get()));
            line.whisker x1=(low) x2=(high) y1="84%" y2="84%" {}
            use.dot href=(shape(mark)) x=(median) y="84%" {}
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
