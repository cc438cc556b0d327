//! How the ratios of the blocks are spread, and whether they drift: two lanes per candidate.

use std::fmt::Write;

use super::escape::breakable;
use super::marks;
use super::scale::Scale;
use crate::metric::compared;
use crate::model::{CandidateSummary, MicrobenchmarkRows, Report, Role, Row};

/// Bars of a histogram.
const BINS: usize = 48;

/// Dots in block order, at most: more would only overlap.
const DOTS: usize = 300;

pub(super) fn render(report: &Report, microbenchmark: &MicrobenchmarkRows) -> String {
    let rows: Vec<(usize, &CandidateSummary, &Row)> = compared(report)
        .into_iter()
        .enumerate()
        .filter_map(|(place, candidate)| {
            let mut rows = microbenchmark.rows.iter();
            let row = rows.find(|row| row.candidate == candidate.name)?;
            (!row.ratios.is_empty()).then_some((place, candidate, row))
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let scale = Scale::covering(rows.iter().flat_map(|(_, _, row)| inner(&row.ratios)));
    let noise = report.noise.as_ref().map(|noise| noise.typical.as_fraction());
    let mut out = String::from(
        "<div class=\"spread\" role=\"group\" aria-label=\"Distribution of the blocks' relative \
         QPS\">\n<p class=\"head\"></p><p class=\"head\">relative QPS of the blocks</p>\
         <p class=\"head order\">the same in block order</p>\n",
    );
    for (place, candidate, row) in rows {
        let class = marks::class(place, candidate.role);
        let blocks = row.ratios.len();
        let _ = writeln!(
            out,
            "<p class=\"lane-name\">{}{} <small>{blocks} blocks</small></p>\
             <svg class=\"lane {class}\" role=\"img\" aria-label=\"{}\">{}{}</svg>\
             <svg class=\"lane order {class}\" aria-hidden=\"true\">{}</svg>",
            marks::inline(place, candidate.role),
            breakable(&candidate.name),
            describe(row),
            scale.grid(noise),
            histogram(row, &scale, &marks::shape(place, candidate.role)),
            order(&row.ratios, &scale, candidate.role),
        );
    }
    let _ = writeln!(
        out,
        "<p></p><svg class=\"axis\" aria-hidden=\"true\">{}</svg>\
         <p class=\"head order\">first block → last block</p></div>",
        scale.labels(12)
    );
    out
}

/// The ratios without the outermost hundredth on either side: one hiccup must not squeeze all the
/// others together. Those left out are drawn at the axis's ends.
fn inner(ratios: &[f64]) -> Vec<f64> {
    let mut sorted = ratios.to_vec();
    sorted.sort_by(f64::total_cmp);
    let cut = sorted.len() / 100;
    sorted[cut..sorted.len() - cut].to_vec()
}

/// The chart in words.
fn describe(row: &Row) -> String {
    let mut sorted = row.ratios.clone();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
    format!(
        "{} blocks from {:.3} to {:.3}, the middle half from {:.3} to {:.3}",
        sorted.len(),
        at(0.0),
        at(1.0),
        at(0.25),
        at(0.75)
    )
}

/// The histogram, and the estimate as in the other charts.
///
/// The outline is stretched by its own view box; everything else has places in percent, so that
/// strokes and marks keep their form.
fn histogram(row: &Row, scale: &Scale, shape: &str) -> String {
    let mut bins = [0_u32; BINS];
    for ratio in &row.ratios {
        let bin = scale.clamped(*ratio) / 100.0 * BINS as f64;
        bins[(bin as usize).min(BINS - 1)] += 1;
    }
    let most = f64::from(bins.iter().copied().max().unwrap_or(1).max(1));
    let mut path = String::from("M0 100");
    for bin in bins {
        let _ = write!(path, "V{:.0}h1", 100.0 - 92.0 * f64::from(bin) / most);
    }
    path.push_str("V100z");
    let mut out = format!(
        "<svg class=\"fit\" y=\"0\" height=\"70%\" width=\"100%\" viewBox=\"0 0 {BINS} 100\" \
         preserveAspectRatio=\"none\"><path class=\"hist\" d=\"{path}\"/></svg>"
    );
    if let Some(estimate) = row.relative_qps {
        let (low, high) = (scale.clamped(estimate.low.get()), scale.clamped(estimate.high.get()));
        let median = scale.clamped(estimate.median.get());
        let _ = write!(
            out,
            "<line class=\"whisker\" x1=\"{low:.2}%\" x2=\"{high:.2}%\" y1=\"84%\" y2=\"84%\"/>\
             <use class=\"dot\" href=\"#{shape}\" x=\"{median:.2}%\" y=\"84%\"/>"
        );
    }
    if row.restart_medians.len() > 1 {
        for median in &row.restart_medians {
            let x = scale.clamped(*median);
            let _ = write!(
                out,
                "<line class=\"restart\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"92%\" y2=\"100%\"/>"
            );
        }
    }
    out
}

/// A dot per block from left to right; higher is a greater ratio.
fn order(ratios: &[f64], scale: &Scale, role: Role) -> String {
    let thin = ratios.len().div_ceil(DOTS).max(1);
    let last = (ratios.len().max(2) - 1) as f64;
    let one = 100.0 - scale.clamped(1.0);
    let mut path = String::new();
    for (place, ratio) in ratios.iter().enumerate().step_by(thin) {
        // A subpath without length is drawn as a dot by its round line cap.
        let (x, y) = (10.0 + 980.0 * place as f64 / last, 100.0 - scale.clamped(*ratio));
        let _ = write!(path, "M{x:.0} {y:.0}h0");
    }
    let class = if role == Role::Control { "dots faint" } else { "dots" };
    format!(
        "<line class=\"one\" x2=\"100%\" y1=\"{one:.1}%\" y2=\"{one:.1}%\"/>\
         <svg class=\"fit\" width=\"100%\" height=\"100%\" viewBox=\"0 0 1000 100\" \
         preserveAspectRatio=\"none\"><path class=\"{class}\" d=\"{path}\"/></svg>"
    )
}
