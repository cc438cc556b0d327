//! The report as text for a terminal.
//!
//! Tables of plain cells are laid out by comfy-table ([`table`]). The tables of ratios are not: a
//! cell has a ratio, a sign and an interval whose arrangement depends on the width, and parts of a
//! cell have their own colours.

mod builds;
mod counters;
mod effects;
mod group_table;
mod header;
mod key_results;
mod layout;
mod notes;
mod operations;
pub(crate) mod paint;
mod parity;
mod response_times;
mod series;
mod short_names;
mod summaries;
mod sweep;
pub(crate) mod table;
mod training;

use crate::counter_summaries::is_any;
use crate::inserts;
use crate::metric::{Grouping, Metric};
use crate::model::Report;
use crate::series::comes_first;
use crate::words::NOTHING_MEASURED;
use header::header;
use layout::Layout;
pub use paint::COLOR_CODES;
use paint::{Paint, wrap};
use short_names::ShortNames;

/// Maximum width of a candidate's name in a column of names.
const LONGEST_NAME: usize = 20;

/// Where the tables by candidate are, if they are left out.
const NOT_BY_CANDIDATE: &str =
    "relative.csv and the page have every candidate relative to the baseline; --details prints it.";

/// Output options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalOptions {
    /// Characters per line; 80 is enough for four candidates and the control.
    pub width: usize,
    /// Whether to use ANSI colours; signs carry the same meaning without them.
    pub color: bool,
    /// Three groups (point, range, writes) as in older reports, instead of five.
    pub three_groups: bool,
    /// Also show the cost per operation: a table per microbenchmark, absolute and relative.
    pub details: bool,
}

/// Render the report as text, ending with a line feed.
#[must_use]
pub fn render(report: &Report, options: &TerminalOptions) -> String {
    let paint = Paint::new(options.color);
    if let Some(insert) = &report.insert {
        let mut out = header(report, options, paint);
        inserts::terminal(&mut out, insert, options.width, paint);
        builds::render(&mut out, report, options.width, paint);
        parity::render(&mut out, report, options.width, paint);
        notes::of_inserts(&mut out, report, options.width, paint);
        return out;
    }
    let grouping = if options.three_groups { Grouping::Three } else { Grouping::Five };
    let mut out = header(report, options, paint);
    if report.microbenchmarks.is_empty() {
        out.push_str(&format!("\n{NOTHING_MEASURED}\n"));
    }
    let by_series = comes_first(report) && !options.details;
    // The report with names for tables. Those of a series are shortened there.
    let short = if by_series { None } else { ShortNames::of(report, options.width) };
    let renamed = short.as_ref().map(|names| names.apply(report));
    let (full, report) = (report, renamed.as_ref().unwrap_or(report));
    if let Some(names) = &short {
        names.legend(&mut out, options.width, paint);
    }
    for (group, members) in grouping.groups(&report.microbenchmarks) {
        if by_series {
            break;
        }
        for metric in group_table::metrics(report, &members) {
            let layout = Layout::choose(report, *metric, options.width);
            group_table::render(&mut out, report, (group, &members), &layout, paint);
        }
    }
    sweep::steps(&mut out, report, options.width, paint);
    if options.details {
        for (group, members) in grouping.groups(&report.microbenchmarks) {
            let group = (operations::Of::Costs, (group, members.as_slice()));
            operations::render(&mut out, report, group, options.width, paint);
        }
        for line in wrap(operations::KEY, options.width) {
            out.push_str(&format!("{}\n", paint.dim(&line)));
        }
        if report.microbenchmarks.iter().any(|one| one.baseline.latency.is_some()) {
            for (group, members) in grouping.groups(&report.microbenchmarks) {
                let group = (group, members.as_slice());
                response_times::render(&mut out, report, group, options.width, paint);
            }
            for line in wrap(response_times::KEY, options.width) {
                out.push_str(&format!("{}\n", paint.dim(&line)));
            }
        }
    }
    if options.details && is_any(report) {
        for (group, members) in grouping.groups(&report.microbenchmarks) {
            let group = (operations::Of::Counts, (group, members.as_slice()));
            operations::render(&mut out, report, group, options.width, paint);
        }
        counters::render(&mut out, report, options.width, paint);
    }
    if !by_series {
        summaries::render(&mut out, report, (Metric::Qps, grouping), options.width, paint);
    }
    effects::render(&mut out, report, options.width, paint);
    series::render(&mut out, full, options.width, paint);
    training::render(&mut out, report, grouping, options.width, paint);
    if options.details && Metric::Cpu.is_known(report) {
        summaries::render(&mut out, report, (Metric::Cpu, grouping), options.width, paint);
    }
    builds::render(&mut out, full, options.width, paint);
    parity::render(&mut out, report, options.width, paint);
    notes::render(&mut out, full, options.width, paint);
    if by_series {
        for line in wrap(NOT_BY_CANDIDATE, options.width) {
            out.push_str(&format!("{}\n", paint.dim(&line)));
        }
    } else {
        key_results::render(&mut out, full, grouping, options.width, paint);
    }
    sweep::scaling(&mut out, report, grouping, options.width, paint);
    sweep::key_results(&mut out, report, grouping, options.width, paint);
    out
}

#[cfg(test)]
mod tests;
