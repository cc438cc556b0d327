//! The report as text for a terminal.
//!
//! Tables of plain cells are laid out by comfy-table ([`table`]). The tables of ratios are not: a
//! cell has a ratio, a sign and an interval whose arrangement depends on the width, and parts of a
//! cell have their own colours.

mod builds;
mod group_table;
mod header;
mod key_results;
mod layout;
mod notes;
pub(crate) mod paint;
mod parity;
mod series;
mod short_names;
mod sweep;
pub(crate) mod table;
mod training;

use crate::inserts;
use crate::metric::{Grouping, Metric};
use crate::model::Report;
use crate::sections::counters::counters;
use crate::sections::effects::effects;
use crate::sections::operations::{Part, operations};
use crate::sections::summaries::summaries;
use crate::sections::{Output, Section};
use crate::series::comes_first;
use crate::words::NOTHING_MEASURED;
use dbdyno_text::terminal;
pub use dbdyno_text::{COLOR_CODES, Paint};
use header::header;
use layout::Layout;
use paint::wrap;
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
    let mut add = |section: Section| {
        out.push_str(&terminal(&[section], options.width, paint));
    };
    let part = |part| {
        let groups = grouping.groups(&report.microbenchmarks).into_values();
        let members: Vec<_> = groups.flatten().map(|(_, member)| member).collect();
        operations(report, part, &members, Output::Terminal)
    };
    if options.details {
        add(part(Part::Costs));
        add(part(Part::ResponseTimes));
        add(part(Part::Counters));
        add(counters(report, Output::Terminal));
    }
    if !by_series {
        add(summaries(report, Metric::Qps, grouping, Output::Terminal));
    }
    add(effects(report, Output::Terminal));
    series::render(&mut out, full, options.width, paint);
    training::render(&mut out, report, grouping, options.width, paint);
    if options.details && Metric::Cpu.is_known(report) {
        let section = summaries(report, Metric::Cpu, grouping, Output::Terminal);
        out.push_str(&terminal(&[section], options.width, paint));
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
