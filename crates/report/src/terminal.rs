//! The report as text for a terminal.
//!
//! Tables of plain cells are laid out by comfy-table ([`table`]). The tables of ratios are not: a
//! cell has a ratio, a sign and an interval whose arrangement depends on the width, and parts of a
//! cell have their own colours.

mod builds;
mod counters;
mod group_table;
mod layout;
mod notes;
mod operations;
pub(crate) mod paint;
mod parity;
mod summaries;
pub(crate) mod table;
mod training;

use crate::counter_summaries::is_any;
use crate::inserts;
use crate::metric::{Grouping, Metric, client_bound_rows};
use crate::model::{Report, RunStatus};
use crate::words::NOTHING_MEASURED;
use layout::Layout;
pub use paint::COLOR_CODES;
use paint::{Paint, plain, wrap};

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

/// The groups in which CPU per query is the more reliable metric: it includes the candidate's
/// background work, even if that runs during another candidate's slice.
const WRITES: &str = "writes";

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
    for (group, members) in grouping.groups(&report.microbenchmarks) {
        let layout = Layout::choose(report, Metric::Qps, options.width);
        group_table::render(&mut out, report, (group, &members), &layout, paint);
        if group == WRITES && Metric::Cpu.is_known(report) {
            let layout = Layout::choose(report, Metric::Cpu, options.width);
            group_table::render(&mut out, report, (group, &members), &layout, paint);
        }
    }
    if options.details {
        for (group, members) in grouping.groups(&report.microbenchmarks) {
            let group = (operations::Of::Costs, (group, members.as_slice()));
            operations::render(&mut out, report, group, options.width, paint);
        }
        for line in wrap(operations::KEY, options.width) {
            out.push_str(&format!("{}\n", paint.dim(&line)));
        }
    }
    if options.details && is_any(report) {
        for (group, members) in grouping.groups(&report.microbenchmarks) {
            let group = (operations::Of::Counts, (group, members.as_slice()));
            operations::render(&mut out, report, group, options.width, paint);
        }
        counters::render(&mut out, report, options.width, paint);
    }
    summaries::render(&mut out, report, (Metric::Qps, grouping), options.width, paint);
    training::render(&mut out, report, grouping, options.width, paint);
    if options.details && Metric::Cpu.is_known(report) {
        summaries::render(&mut out, report, (Metric::Cpu, grouping), options.width, paint);
    }
    builds::render(&mut out, report, options.width, paint);
    parity::render(&mut out, report, options.width, paint);
    notes::render(&mut out, report, options.width, paint);
    out
}

fn header(report: &Report, options: &TerminalOptions, paint: Paint) -> String {
    let status = match report.status {
        RunStatus::Complete => paint.better("complete"),
        RunStatus::Incomplete => paint.worse("INCOMPLETE: can be resumed"),
    };
    let by = paint.dim(&format!("dbdyno {}", plain(&report.version)));
    let mut out = format!("{}  {status}  {by}\n", paint.bold(&plain(&report.name)));
    let facts = format!(
        "started {}, measured {}, elapsed {}",
        plain(&report.started),
        report.measuring_time,
        report.elapsed
    );
    let against = match report.candidates.first() {
        Some(baseline) => {
            let compiler = baseline.build.as_ref().map(|build| plain(&build.compiler));
            let compiler = compiler.map_or_else(String::new, |compiler| format!(", {compiler}"));
            format!(
                "baseline {}: {}{compiler}",
                plain(&report.baseline),
                plain(&baseline.system_title())
            )
        }
        None => format!("baseline {}", plain(&report.baseline)),
    };
    let key = "+ better than the baseline, - worse, ~ within noise, ? too few blocks, ! failed";
    let mut lines = vec![facts.as_str(), against.as_str()];
    if report.insert.is_none() {
        lines.push(key);
    }
    if client_bound_rows(report).0 > 0 {
        lines.push("c client-bound: the load generator was the limit, no verdict");
    }
    if report.is_imported() {
        lines.push("· measured by others, too few values for an interval, no verdict");
    }
    for line in lines {
        for line in wrap(line, options.width) {
            out.push_str(&paint.dim(&line));
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests;
